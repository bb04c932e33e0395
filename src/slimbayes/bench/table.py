"""A benchmark's one table, for people."""

from typing import Any

from slimbayes._text_table import aligned, as_markdown

__all__ = ["table"]

HEADINGS = ["case", "ms per step", "ratio", "quartiles", "95% interval"]


def table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return a benchmark's results as text.

    Args:
        results: What ``slimbayes.bench.run`` returned.
        markdown: Write a Markdown table instead of aligned columns.

    Example:
        >>> case = {"seconds": 0.01, "ratio": 1.0, "quartiles": [1.0, 1.0], "interval": [1.0, 1.0]}
        >>> print(table({"results": {"plain": case}}, markdown=True))
        | case | ms per step | ratio | quartiles | 95% interval |
        |---|---|---|---|---|
        | plain | 10.00 | 1.000 | 1.000 to 1.000 | 1.000 to 1.000 |
    """
    rows = [HEADINGS] + [
        [name, f"{1000 * one['seconds']:.2f}", f"{one['ratio']:.3f}", _range(one["quartiles"]), _range(one["interval"])]
        for name, one in results["results"].items()
    ]
    if markdown:
        return as_markdown(rows)
    settings = results["settings"]
    note = (
        f"{results['suite']}: {results['description']}; {settings['threads']} "
        f"thread{'s' if settings['threads'] > 1 else ''}.\nRatio to {settings['baseline']}: median over "
        f"{settings['rounds']} interleaved rounds of {settings['repetitions']} steps, quartiles of the rounds, "
        "interval of the median."
    )
    return f"{aligned(rows)}\n{note}"


def _range(pair: list[float]) -> str:
    return f"{pair[0]:.3f} to {pair[1]:.3f}"
