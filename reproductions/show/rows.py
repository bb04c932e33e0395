"""Our numbers beside a paper's: one row for each method, two columns for each score."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from reproductions.show.columns import Column, column
from reproductions.show.estimates import Estimate, estimate, row_title
from slimbayes._text_table import as_markdown

__all__ = ["Paper", "compared", "of_paper", "scores_table"]


def _with_words(value: Any) -> Any:
    """Let ranks be rows: YAML takes 1 for a number."""
    return {str(key): inner for key, inner in value.items()} if isinstance(value, dict) else value


#: A paper's numbers by row, in the order of the columns: text is shown as it is, None as nothing.
Paper = Annotated[dict[str, list[str | float | None]], BeforeValidator(_with_words)]


def scores_table(
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    columns: Sequence[str],
    part: str,
    paper: Paper,
    row_heading: str = "method",
    titles: Mapping[str, str] | None = None,
) -> str:
    """Return a Markdown table of scores and, below it, what each ± means.

    Args:
        rows: Stored runs of each row, one for each seed.
        columns: Names of columns.
        part: The part of a run that has the scores, such as ``test``.
        paper: The paper's numbers; rows that only the paper has come last.
        row_heading: Above the rows' names.
        titles: Other names of columns, by name.

    Example:
        >>> runs = [{"test": {"nll": {"value": value}}} for value in (0.1, 0.2, 0.3)]
        >>> print(scores_table({"mean_field": runs}, ["nll"], "test", {"mean_field": ["0.10 ± 0.003"]}))
        | method | seeds | NLL ↓ | paper |
        |---|---|---|---|
        | mean-field | 3 | 0.200 ± 0.058 | 0.10 ± 0.003 |
        <BLANKLINE>
        Mean ± standard error over seeds.
    """
    known = _columns(columns, titles)
    found = {
        row: [estimate(one.score(run, part) for run in runs) for one in known] for row, runs in rows.items() if runs
    }
    for position, name in enumerate(columns):
        if name == "parameters_percent":
            _relative_to_first(found, position)
    shown = [(one, cell) for cells in found.values() for one, cell in zip(known, cells, strict=True) if cell]
    note = _note(shown, "validation" if part == "validation" else "test")
    counts = {row: len(rows[row]) for row in found}
    return f"{compared(found, known, paper, row_heading, counts)}\n\n{note}".strip()


def compared(
    found: Mapping[str, Sequence[Estimate | None]],
    columns: Sequence[Column],
    paper: Paper,
    row_heading: str,
    seeds: Mapping[str, int],
) -> str:
    """Return a Markdown table: estimates by row, each with the paper's number beside it where the paper has any."""
    with_paper = _with_numbers(len(columns), paper)
    heading = [row_heading, "seeds"]
    for one, also in zip(columns, with_paper, strict=True):
        heading += [one.title, "paper"] if also else [one.title]
    table = [heading]
    for row in [*found, *(row for row in paper if row not in found)]:
        words = [row_title(row), str(seeds.get(row, ""))]
        for position, (one, also) in enumerate(zip(columns, with_paper, strict=True)):
            words.append(one.words(found[row][position]) if row in found else "–")
            if also:
                words.append(one.printed(_at(paper.get(row, []), position)))
        table.append(words)
    return as_markdown(table)


def of_paper(
    columns: Sequence[str], paper: Paper, row_heading: str = "method", titles: Mapping[str, str] | None = None
) -> str:
    """Return the paper's numbers alone, nothing if there are none."""
    if not paper:
        return ""
    given = [position for position, also in enumerate(_with_numbers(len(columns), paper)) if also]
    known = _columns(columns, titles)
    table = [[row_heading, *(f"{known[position].title}, paper" for position in given)]]
    for row, numbers in paper.items():
        table.append([row_title(row), *(known[position].printed(_at(numbers, position)) for position in given)])
    return as_markdown(table)


def _relative_to_first(found: dict[str, list[Estimate | None]], position: int) -> None:
    first = next(iter(found.values()))[position] if found else None
    for cells in found.values():
        cell = cells[position]
        if first and cell:
            cells[position] = Estimate(cell.value / first.value, None, cell.seeds)


def _note(cells: Sequence[tuple[Column, Estimate]], examples: str) -> str:
    over_seeds = any(cell.seeds > 1 for _, cell in cells)
    over_examples = any(cell.seeds == 1 and cell.error is not None for _, cell in cells)
    notes = ["Mean ± standard error over seeds."] if over_seeds else []
    if over_examples:
        notes.append(f"{'Where there is' if over_seeds else 'There is'} one seed: ± is over {examples} examples.")
    if over_seeds:
        sems = _sems(cells)
        if sems:
            notes.append(f"Over {examples} examples a run's standard error is about {', '.join(sems)}.")
    return " ".join(notes)


def _sems(cells: Sequence[tuple[Column, Estimate]]) -> list[str]:
    """Return the mean standard error over examples for each column that has one."""
    words: dict[str, list[float]] = {}
    percents = set()
    for one, cell in cells:
        if cell.sem is not None and cell.seeds > 1:
            name = one.title.partition(" ")[0]
            words.setdefault(name, []).append(cell.sem)
            if one.percent:
                percents.add(name)
    return [
        f"{100 * sum(sems) / len(sems):.2f} ({name}, %)"
        if name in percents
        else f"{sum(sems) / len(sems):.2g} ({name})"
        for name, sems in words.items()
    ]


def _columns(names: Sequence[str], titles: Mapping[str, str] | None) -> list[Column]:
    return [column(name)._replace(title=(titles or {}).get(name, column(name).title)) for name in names]


def _at(numbers: Sequence[str | float | None], position: int) -> str | float | None:
    return numbers[position] if position < len(numbers) else None


def _with_numbers(columns: int, paper: Paper) -> list[bool]:
    return [any(_at(numbers, position) not in (None, "") for numbers in paper.values()) for position in range(columns)]
