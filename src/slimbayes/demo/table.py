"""The demo's one table, for people: mean and standard error over seeds, the best in each column marked."""

from statistics import mean
from typing import Any

from slimbayes._text_table import aligned, as_markdown
from slimbayes.metrics.spread import standard_error

__all__ = ["table"]

COLUMNS = [
    ("NLL", "clean", "nll", 3, min),
    ("accuracy", "clean", "accuracy", 3, max),
    ("ECE", "clean", "ece", 3, min),
    ("cNLL", "corrupted", "nll", 3, min),
    ("c-accuracy", "corrupted", "accuracy", 3, max),
    ("cECE", "corrupted", "ece", 3, min),
]


def table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return the results as text.

    Args:
        results: What ``slimbayes.demo.run`` returned.
        markdown: Write a Markdown table instead of aligned columns.
    """
    by_title: dict[str, list[dict[str, Any]]] = {}
    for result in results["results"]:
        by_title.setdefault(result["title"], []).append(result)
    cells = {
        title: [_mean_and_error([run[part][name] for run in runs]) for _, part, name, _, _ in COLUMNS]
        for title, runs in by_title.items()
    }
    best = [better(row[i][0] for row in cells.values()) for i, (*_, better) in enumerate(COLUMNS)]
    rows = [["method", *(column[0] for column in COLUMNS), "stored numbers", "seconds"]]
    for title, runs in by_title.items():
        row = [title]
        for i, (value, error) in enumerate(cells[title]):
            text = f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}")
            row.append(text + (" *" if value == best[i] and len(by_title) > 1 else ""))
        seconds = sum(run["seconds"] for run in runs) / len(runs)
        rows.append([*row, f"{runs[0]['stored_numbers']:,}", f"{seconds:.1f}"])
    if markdown:
        return as_markdown(rows)
    seeds, severities = results["settings"]["seeds"], results["settings"].get("severities", range(1, 6))
    note = (
        f"Handwritten digits, {results['settings']['part']} part; c: mean over 5 corruptions at severities "
        f"{', '.join(map(str, severities))}; "
        f"{seeds} seed{'s' if seeds > 1 else ''}, ± standard error; * best; seconds of training."
    )
    return f"{aligned(rows)}\n{note}"


def _mean_and_error(values: list[float]) -> tuple[float, float | None]:
    return mean(values), standard_error(values)
