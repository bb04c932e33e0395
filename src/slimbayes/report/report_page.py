"""The page of a report: what it shows, in order, and writing it with its figures and tables as files."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from slimbayes._files import replacing
from slimbayes.evaluation.record import Evaluation
from slimbayes.report._gallery import galleries
from slimbayes.report._render import Markup, render
from slimbayes.report._score_tables import main_tables
from slimbayes.report._svg import save, themed_svg
from slimbayes.report._tabular import Table, write_table
from slimbayes.report._wording import listing
from slimbayes.report.comparison import Comparison, whose
from slimbayes.report.figures import drawings
from slimbayes.report.figures._style import Drawing
from slimbayes.report.findings import cautions, few_seeds, findings

__all__ = ["context", "write_report"]


def write_report(
    evaluations: Sequence[Evaluation],
    out: str | os.PathLike[str],
    figures: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Path:
    """Write a page that holds everything it shows, and return its path.

    Args:
        evaluations: Of runs on one data set; those of the same title are the seeds of one method.
        out: The file to write, such as ``report.html``.
        figures: A folder for the figures as SVG and PDF and the tables as CSV, LaTeX and Markdown.
        title: The heading; by default what is compared.
    """
    comparison = Comparison(evaluations)
    tables, drawn = main_tables(comparison), drawings(comparison)
    page = render(
        "report.html.j2",
        **context(comparison, tables, [(drawing, Markup(themed_svg(drawing))) for drawing in drawn], title),
    )
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as (temporary,):
        temporary.write_text(page, encoding="utf-8")
    if figures is not None:
        folder = Path(figures)
        folder.mkdir(parents=True, exist_ok=True)
        for drawing in drawn:
            save(drawing, folder, ("svg", "pdf"))
        for table in tables.values():
            write_table(table, folder)
    return path


# ---------------------------------------------------------------------- what the page shows


def context(
    comparison: Comparison, tables: dict[str, Table], drawings: Iterable[tuple[Drawing, str]], title: str | None
) -> dict[str, Any]:
    """Return what the template needs.

    Args:
        comparison: The evaluations.
        tables: By key.
        drawings: Figures, each with its SVG.
        title: The heading; by default what is compared.
    """
    return {
        "heading": title or _heading(comparison),
        "compared": listing(comparison.titles, 12),
        "comparing": len(comparison.titles) > 1,
        "data": comparison.evaluations[0].content["data"],
        "facts": _facts(comparison),
        "about": _about(comparison),
        "cautions": cautions(comparison),
        "findings": findings(comparison),
        "few_seeds": few_seeds(comparison),
        "tables": tables,
        "drawings": list(drawings),
        "galleries": galleries(comparison),
    }


def _heading(comparison: Comparison) -> str:
    data = _data(comparison)
    titles = comparison.titles
    return f"{titles[0]} on {data}" if len(titles) == 1 else f"{len(titles)} methods on {data}"


def _data(comparison: Comparison) -> str:
    """Return the name of the data; for a name that many data share, such as table, that of the file or the set."""
    contents = [one.content for one in comparison.evaluations]
    given = (whose(content, key) for key in ("path", "set") for content in contents)
    return next(filter(None, given), contents[0]["data"])


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return what the comparison rests on."""
    first = comparison.evaluations[0]
    task = first.content["task"]
    seeds = sorted({len(group) for group in comparison.groups.values()})
    conditions = {(name, severity) for one in comparison.evaluations for name, severity, _ in one.corrupted()}
    types = {name for name, _ in conditions}
    unknown = dict.fromkeys(name for one in comparison.evaluations for name in one.result()["ood"])
    facts = [
        ("Data", _data(comparison)),
        ("Task", _task(task)),
        ("Test examples", _counts(one.result()["clean"]["examples"] for one in comparison.evaluations)),
        ("Methods", str(len(comparison.titles))),
        ("Seeds each", _span(seeds)),
        ("Draws of each member", _span(sorted({one.samples[-1] for one in comparison.evaluations}))),
    ]
    if conditions:
        severities = len({severity for _, severity in conditions})
        counts = f"{len(types)} type{'s' * (len(types) > 1)} × {severities} severit{'ies' if severities > 1 else 'y'}"
        facts.append(("Corruptions", counts))
    if unknown:
        facts.append(("Unknown inputs", listing(list(unknown))))
    return facts


def _task(task: dict[str, Any]) -> str:
    kind, outputs = task["likelihood"], task["outputs"]
    if kind == "bernoulli" and outputs > 1:
        return f"{outputs} labels, yes or no"
    return "regression" if kind == "gaussian" else f"{max(2, outputs)} classes"


def _about(comparison: Comparison) -> list[tuple[str, str]]:
    """Return where the numbers come from: each different value once."""
    records = [one.content.get("provenance") or {} for one in comparison.evaluations]
    seconds = sum(one.content.get("seconds") or 0 for one in comparison.evaluations)
    versions = (
        ", ".join(f"{name} {number}" for name, number in (own.get("versions") or {}).items()) for own in records
    )
    facts = [
        ("Methods", listing(comparison.titles, 20)),
        ("Runs", listing([one.content["name"] for one in comparison.evaluations], 30)),
        ("Commit", _each(own.get("commit") for own in records)),
        ("Versions", _each(versions)),
        ("Hardware", _each(_hardware(own.get("hardware") or {}) for own in records)),
        ("Evaluated", _span(sorted({own["time"][:10] for own in records if own.get("time")}))),
        ("Time taken", f"{seconds:.0f} s in all" if seconds else ""),
        ("Settings", _each(_settings(one.content.get("settings") or {}) for one in comparison.evaluations)),
    ]
    return [(name, text) for name, text in facts if text]


def _hardware(own: dict[str, Any]) -> str:
    cores = f"{own['cores']} cores" if own.get("cores") else None
    return ", ".join(str(part) for part in (own.get("gpu"), own.get("processor") or own.get("machine"), cores) if part)


def _settings(own: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)

    return ", ".join(f"{name} {text(value)}" for name, value in own.items() if value not in (None, []))


def _each(values: Iterable[str | None]) -> str:
    return "; ".join(dict.fromkeys(value for value in values if value))


def _counts(values: Iterable[int]) -> str:
    return _span([f"{value:,}".replace(",", "\u202f") for value in sorted(set(values))])


def _span(values: list[Any]) -> str:
    """Return the first and the last of sorted values."""
    if not values:
        return ""
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
