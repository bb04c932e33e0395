"""Growth in tables, for people."""

from typing import Any

from slimbayes._text_table import aligned, as_markdown

__all__ = ["growth_points_table", "growth_table", "splitting_table"]

MEBIBYTE = 2**20


def growth_table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return how time and memory grow along each axis, and what splitting costs.

    Args:
        results: What ``run_growth`` returned.
        markdown: Write Markdown tables instead of aligned columns with a note.

    Example:
        >>> line = {"intercept": 0.001, "slope": 1e-4, "misfit": 0.1}
        >>> law = {"power_law": {"slope": 1.0, "error": 0.01}, "line": line}
        >>> axis = {"title": "rows", "points": [{"value": 64}, {"value": 128}]}
        >>> axis["fits"] = {"seconds": law, "activation_bytes": law}
        >>> print(growth_table({"axes": {"rows": axis}, "splitting": {}}, markdown=True))
        | axis | from, to | slope of time | slope of memory | ms per step | off by at most |
        |---|---|---|---|---|---|
        | rows | 64, 128 | 1.00 ± 0.01 | 1.00 ± 0.01 | 1 + 0.1 x | 10% |
    """
    rows = [["axis", "from, to", "slope of time", "slope of memory", "ms per step", "off by at most"]]
    for axis in results["axes"].values():
        line = axis["fits"]["seconds"]["line"]
        first, last = (axis["points"][place]["value"] for place in (0, -1))
        slopes = [_slope(axis["fits"][name]["power_law"]) for name in ("seconds", "activation_bytes")]
        rows.append([axis["title"], f"{first}, {last}", *slopes, _line(line), f"{100 * line['misfit']:.0f}%"])
    tables = [as_markdown(rows) if markdown else aligned(rows)] if results["axes"] else []
    if results["splitting"]:
        tables.append(splitting_table(results, markdown))
    if not markdown:
        tables.append(_note(results))
    return "\n\n".join(tables)


def splitting_table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return what many members by splitting cost, as a ratio to one member; see ``growth_table``."""
    rows = [["network", "rows per member", "ms with one member", "ratio", "quartiles", "95% interval", "target", "met"]]
    rows += [
        [
            one["title"],
            f"{one['rows_per_member']:g}",
            f"{1000 * one['seconds_of_one']:.2f}",
            f"{one['ratio']:.3f}",
            *(f"{low:.3f} to {high:.3f}" for low, high in (one["quartiles"], one["interval"])),
            f"{one['target']:g}",
            "yes" if one["met"] else "no",
        ]
        for one in results["splitting"].values()
    ]
    return as_markdown(rows) if markdown else aligned(rows)


def growth_points_table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return time and memory of every measured point; see ``growth_table``.

    Example:
        >>> axis = {"title": "rows", "points": [{"value": 64, "seconds": 0.001, "activation_bytes": 2**20}]}
        >>> print(growth_points_table({"axes": {"rows": axis}}, markdown=True))
        | axis | value | ms per step | MiB of activations |
        |---|---|---|---|
        | rows | 64 | 1.00 | 1.00 |
    """
    rows = [["axis", "value", "ms per step", "MiB of activations"]]
    for axis in results["axes"].values():
        for point in axis["points"]:
            size = point["activation_bytes"] / MEBIBYTE
            rows.append([axis["title"], str(point["value"]), f"{1000 * point['seconds']:.2f}", f"{size:.2f}"])
    return as_markdown(rows) if markdown else aligned(rows)


def _slope(law: dict[str, float]) -> str:
    return f"{law['slope']:.2f} ± {law['error']:.2f}"


def _line(line: dict[str, float]) -> str:
    intercept, slope = 1000 * line["intercept"], 1000 * line["slope"]
    return f"{intercept:.3g} {'-' if slope < 0 else '+'} {abs(slope):.2g} x"


def _note(results: dict[str, Any]) -> str:
    settings = results["settings"]
    return (
        f"Rank-1 networks, noise per example, {settings['threads']} thread{'s' if settings['threads'] > 1 else ''}. "
        f"Slopes of log time and log memory (peak of activations) against log x, with standard errors; medians of "
        f"{settings['rounds']} interleaved rounds.\nThe line a + b x is fitted to relative distances. Splitting: "
        f"ratio to one member on the same rows, {settings['splitting_rounds']} interleaved rounds."
    )
