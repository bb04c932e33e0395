"""Figure 8 of the k-tied paper: which posterior contains which."""

from typing import Any

from reproductions.show.base import Kind, Shown
from reproductions.show.pictures import linked, svg
from reproductions.stored import Sources
from slimbayes.report.figures._panels import WIDTH
from slimbayes.report.figures._style import INK, series, styled

__all__ = ["Families"]

_ALT = "Sets of covariances: dense ones contain the matrix Normal and the mean field, which meet in the 1-tied Normal"


class Families(Kind):
    """Drawn from the definitions; nothing is measured."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Draw the sets."""
        with styled(**{"axes.grid": False}):
            picture = svg(_figure())
        return Shown(linked(f"{stem}.svg", _ALT), {f"{stem}.svg": picture})


def _figure() -> Any:
    from matplotlib.figure import Figure
    from matplotlib.patches import Ellipse

    green, red, blue = series(2).colour, series(5).colour, series(0).colour
    figure: Any = Figure(figsize=(WIDTH, 3.6))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(-5, 5), ylim=(-2.4, 2.4))
    ax.set_axis_off()
    for centre, width, height, colour in (
        ((0.0, 0.0), 9.8, 4.6, INK),
        ((-2.3, -0.1), 4.3, 2.6, red),
        ((2.05, -0.1), 5.2, 3.2, blue),
        ((1.3, -0.1), 3.6, 2.2, green),
        ((0.55, -0.1), 2.0, 1.3, green),
    ):
        ax.add_patch(Ellipse(centre, width, height, fill=False, edgecolor=colour, linewidth=1.6))
    ax.plot([-0.3], [-0.1], marker="o", markersize=12, fillstyle="left", color=red, markerfacecoloralt=green)
    ax.plot([-0.3, -0.3], [-1.6, -0.3], color=INK, linewidth=0.6)
    for x, y, words, colour in (
        (0.0, 1.85, "dense covariance: mn(mn + 1)/2", INK),
        (-2.4, -0.1, "matrix Normal:\nm(m + 1)/2 + n(n + 1)/2", red),
        (3.0, 0.95, "mean field: mn", blue),
        (2.3, -0.1, "k-tied:\nk(m + n)", green),
        (0.8, -0.1, "2-tied:\n2(m + n)", green),
        (-0.3, -1.75, "1-tied: m + n", INK),
    ):
        ax.text(x, y, words, color=colour, ha="center", va="center")
    return figure
