"""A service's figures in tables, for people."""

from typing import Any

from slimbayes._text_table import aligned, as_markdown
from slimbayes.bench.networks import NETWORKS
from slimbayes.bench.service_modules import MODULES

__all__ = ["service_table"]

HEADINGS = ["network", "batch", "served", "form", "rows/s", "p50 ms", "p99 ms", "ratio", "ratio per row"]


def service_table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return rows per second and latency of every network, batch, module and form.

    Args:
        results: What ``run_service`` returned.
        markdown: Write a Markdown table instead of aligned columns with a note; what is missing follows either way.

    Example:
        >>> ratio = {"median": 4.4, "quartiles": [4.3, 4.5], "interval": [4.3, 4.5]}
        >>> one = {"module": "rank1 held draw", "form": "eager", "rows_per_second": 999.6, "p50": 1e-3, "p99": 2e-3}
        >>> results = {"settings": {"members": 4}, "results": {"mlp_512": {"1": [one | {"ratio": ratio}]}}}
        >>> print(service_table(results, markdown=True))
        | network | batch | served | form | rows/s | p50 ms | p99 ms | ratio | ratio per row |
        |---|---|---|---|---|---|---|---|---|
        | MLP 512 | 1 | rank1 held draw | eager | 1,000 | 1.00 | 2.00 | 4.40 | 1.10 |
    """
    members = results["settings"]["members"]
    rows, reasons = [HEADINGS], {}
    for network, by_batch in results["results"].items():
        title = NETWORKS[network].title if network in NETWORKS else network
        for batch, timed in by_batch.items():
            for one in timed:
                if "unavailable" in one:
                    reasons[title, one["module"], one["form"]] = one["unavailable"]
                else:
                    rows.append([title, batch, one["module"], one["form"], *_figures(one, members)])
    parts = [as_markdown(rows) if markdown else aligned(rows)]
    if reasons:
        parts.append("\n".join(f"Not measured: {', '.join(key)}: {reason}" for key, reason in reasons.items()))
    if not markdown:
        parts.append(_note(results))
    return "\n\n".join(parts)


def _figures(one: dict[str, Any], members: int) -> list[str]:
    draws = 1 if one["module"] == MODULES[0] else members
    ratio = one["ratio"] and one["ratio"]["median"]
    return [
        f"{one['rows_per_second']:,.0f}",
        *(f"{1000 * one[name]:.2f}" for name in ("p50", "p99")),
        *("" if ratio is None else f"{value:.2f}" for value in (ratio, ratio and ratio / draws)),
    ]


def _note(results: dict[str, Any]) -> str:
    settings = results["settings"]
    return (
        f"Class probabilities, {settings['threads']} thread{'s' if settings['threads'] > 1 else ''}; rank-1 models of "
        f"{settings['members']} members, one draw each. Rows/s: batch / mean latency of single requests.\n"
        "Ratio to the plain network in the same form at the same batch (median within interleaved rounds); per row, "
        "divided by the draws that run through the network for each example."
    )
