"""Growth as a picture: time and memory along every axis, relative to the smallest size."""

from typing import Any

from slimbayes.bench.growth_table import MEBIBYTE
from slimbayes.report.figures.panels import Panels, short
from slimbayes.report.figures.style import MUTED, Drawing, series, styled

__all__ = ["growth_figure"]

_CURVES = {"seconds": "time", "activation_bytes": "memory of activations"}


@styled()
def growth_figure(results: dict[str, Any]) -> Drawing:
    """Draw what ``run_growth`` returned; ``slimbayes.report.svg.save`` writes it.

    Example:
        >>> points = [{"value": v, "seconds": 0.1 * v, "activation_bytes": 2**20} for v in (1, 2, 4)]
        >>> drawing = growth_figure({"axes": {"rows": {"title": "rows", "points": points}}})
        >>> drawing.key, drawing.table[1]
        ('growth', ['rows', '1', '100.00', '1.00'])
    """
    axes = results["axes"]
    panels = Panels(len(axes), 3, legend=list(_CURVES.values()), top=0.28)
    table = [["Axis", "Value", "Milliseconds", "MiB"]]
    for ax, axis in zip(panels.axes, axes.values(), strict=True):
        values = [point["value"] for point in axis["points"]]
        ax.plot(values, [value / values[0] for value in values], color=MUTED, linewidth=0.6, linestyle=":")
        for place, name in enumerate(_CURVES):
            sizes = [point[name] for point in axis["points"]]
            ax.plot(values, [size / sizes[0] for size in sizes], **series(place).line)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        ax.set_title(short(axis["title"]))
        for scale in (ax.xaxis, ax.yaxis):
            scale.set_major_formatter(lambda value, _: f"{value:g}")
        table += [
            [
                axis["title"],
                str(point["value"]),
                f"{1000 * point['seconds']:.2f}",
                f"{point['activation_bytes'] / MEBIBYTE:.2f}",
            ]
            for point in axis["points"]
        ]
    panels.outer("", "relative to the first")
    return Drawing(
        "growth",
        "Growth of a train step",
        "Time and memory of a train step relative to the smallest size; dotted: proportional to the axis.",
        f"Curves of time and memory along {len(axes)} axes, from one to that many times the smallest size.",
        panels.figure,
        table,
    )
