"""What a figure of a report is, and how it looks: its colours, quiet axes, and series that differ in three ways."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

#: How many series have a colour of their own.
SERIES = 8

#: What ``static/style.css`` gives light pages. Figures are drawn in these colours, and ``themed_svg`` replaces each by
#: ``var(--name)``, so that a figure follows its page into the dark; each value is therefore used once.
LIGHT = {
    "ink": "#1b1f24",
    "muted": "#5a626d",
    "grid": "#e4e7eb",
    "surface": "#ffffff",
    "series-1": "#2f61cc",
    "series-2": "#d27c16",
    "series-3": "#599b8c",
    "series-4": "#590480",
    "series-5": "#786330",
    "series-6": "#7b1304",
    "series-7": "#a53585",
    "series-8": "#363f4b",
}

#: Heat maps are this colour, more or less opaque: it stands out from a light surface and from a dark one.
MAP_COLOUR = "#4a86e0"

INK, MUTED, GRID, SURFACE = (LIGHT[name] for name in ("ink", "muted", "grid", "surface"))

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.5, 1.5)), (0, (9, 2)))

_SETTINGS = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelpad": 3.0,
    "axes.labelsize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 5.0,
    "axes.titlesize": 9.5,
    # A fixed height spares the search for one above the tick labels.
    "axes.titley": 1.0,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.color": INK,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "patch.edgecolor": INK,
    "path.simplify_threshold": 0.3,
    "pdf.fonttype": 42,
    "svg.hashsalt": "slimbayes",
    "text.color": INK,
    "text.parse_math": False,
    "text.usetex": False,
    "xtick.color": MUTED,
    "xtick.labelsize": 8.5,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.color": MUTED,
    "ytick.labelsize": 8.5,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}

_LOCK = threading.RLock()


class Drawing(NamedTuple):
    """A figure of a report.

    Attributes:
        key: A short name, unlike those of the report's other figures: file name and prefix of ids.
        title: What the page calls it.
        caption: How to read it: what the axes, bars and bands are.
        alt: What is shown and what it shows, for those who do not see it.
        figure: A ``matplotlib.figure.Figure``.
        table: The numbers that it shows, a row of headings first.
    """

    key: str
    title: str
    caption: str
    alt: str
    figure: Any
    table: list[list[str]]


class Series(NamedTuple):
    """How one series is drawn.

    Attributes:
        colour: Its colour on light pages.
        marker: Its marker.
        dash: Its line style.
        alpha: Its opacity.
    """

    colour: str
    marker: str
    dash: Any
    alpha: float = 1

    @property
    def line(self) -> dict[str, Any]:
        """Options of a line with markers."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dash,
            "alpha": self.alpha,
            "markeredgecolor": SURFACE,
            "markeredgewidth": 0.5,
        }


def series(index: int) -> Series:
    """Return the look of a series; no two of 360 look the same.

    Example:
        >>> series(0).colour == series(8).colour, series(0).marker == series(8).marker
        (True, False)
    """
    colour = LIGHT[f"series-{index % SERIES + 1}"]
    return Series(colour, _MARKERS[index % len(_MARKERS)], _DASHES[index % len(_DASHES)])


@contextlib.contextmanager
def styled(**settings: Any) -> Iterator[None]:
    """Draw in the report's style whatever the reader's own settings are; one thread at a time, as they are global."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError('Drawing needs matplotlib. Install it with: pip install "slimbayes[report]"') from error
    chosen: Any = {**_SETTINGS, **settings}
    with _LOCK, matplotlib.rc_context(chosen):
        yield
