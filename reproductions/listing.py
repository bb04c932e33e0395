"""What ``python -m reproductions --list`` shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reproductions.facts import hardware_at, hours_at
from reproductions.item import Item, read_items
from reproductions.pages import runs_in_words
from reproductions.stored import SHOWN_SCALES, Sources
from slimbayes._text_table import aligned

__all__ = ["listing", "listing_text", "runs_text"]


def listing(folder: Path) -> list[dict[str, Any]]:
    """Return what each item of a folder needs and has, as JSON values.

    Returns:
        For each its name, paper, item, title, studies, data, hours and hardware by scale, results, verdict.

    Example:
        >>> listing(Path("nowhere"))
        []
    """
    sources = Sources(folder)
    return [
        {
            "name": name,
            "paper": item.paper,
            "item": item.item,
            "title": item.title,
            "studies": item.studies,
            "data": _data(item, sources),
            "hours": {scale: hours_at(sources, item, scale) for scale in SHOWN_SCALES},
            "hardware": {scale: hardware_at(sources, item, scale) for scale in SHOWN_SCALES},
            "results": runs_in_words(item, sources),
            "verdict": item.verdict,
        }
        for name, item in read_items(folder).items()
    ]


def listing_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the listing as a table for people.

    Example:
        >>> row = {"name": "a", "paper": "k-tied", "item": "Table 1", "data": ["mnist"], "results": "none"}
        >>> print(listing_text([{**row, "hours": {"paper": 2.5}, "hardware": {"paper": ["a GPU"]}}]))
        name  item             data   hours, paper  hours, small  results
        a     k-tied, Table 1  mnist  2.5 (a GPU)                 none
        Hours are those of all runs, one after another; on one CPU core unless something else is said.
    """
    table = [["name", "item", "data", *(f"hours, {scale}" for scale in SHOWN_SCALES), "results"]]
    for row in rows:
        hours = [_hours(row["hours"].get(scale), row["hardware"].get(scale, [])) for scale in SHOWN_SCALES]
        item = f"{row['paper']}, {row['item']}"
        table.append([row["name"], item, ", ".join(row["data"]), *hours, row["results"]])
    note = "Hours are those of all runs, one after another; on one CPU core unless something else is said."
    return f"{aligned(table)}\n{note}"


def runs_text(folder: Path, scale: str = "small") -> str:
    """Return what runs there are to make at a scale, study by study, and what is done, as a table for people.

    A study without the scale has its nearest one, unless that is out of two cores' reach. Hours are those of one core.
    """
    sources = Sources(folder)
    table = [["study", "scale", "runs", "stored", "hours", "hours to go", "next"]]
    total = [0, 0, 0.0, 0.0]
    for name, study in sources.studies.items():
        near = study.nearest(scale)
        if near not in study.scales or study.scale(near).hardware != "one CPU core":
            continue
        done = {run["cell"] for run in sources.runs_at(name, near)}
        cells = sorted(study.cells(near), key=lambda cell: cell.seed)
        missing = [cell for cell in cells if cell.name not in done]
        hours = [sum(study.minutes(cell, near) for cell in some) / 60 for some in (cells, missing)]
        counts = [len(cells), len(cells) - len(missing), *hours]
        table.append([name, near, *_counts(counts), missing[0].name if missing else "–"])
        total = [one + other for one, other in zip(total, counts, strict=True)]
    table.append(["all", "", *_counts(total), ""])
    heading = (
        "Runs of each study, in hours of one core; `python -m reproductions STUDY` makes those that are not stored:"
    )
    return f"{heading}\n{aligned(table)}"


def _counts(counts: Sequence[float]) -> list[str]:
    """Return counts of runs and hours as words."""
    return [f"{one:.1f}" if isinstance(one, float) else str(one) for one in counts]


def _data(item: Item, sources: Sources) -> list[str]:
    studies = [sources.studies[name] for name in item.studies if name in sources.studies]
    found = [study.base.get("data") for study in studies]
    return list(dict.fromkeys(str(one["name"] if isinstance(one, dict) else one) for one in found))


def _hours(hours: float | None, hardware: list[str]) -> str:
    if hours is None:
        return ""
    others = [one for one in hardware if one != "one CPU core"]
    number = f"{hours:.1f}" if hours < 100 else f"{hours:,.0f}"
    return f"{number} ({', '.join(others)})" if others else number
