"""Tables as CSV, LaTeX and Markdown."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from slimbayes._files import replacing
from slimbayes._text_table import as_markdown
from slimbayes.report.table import Cell, Table

__all__ = ["as_csv", "as_latex", "markdown", "write_table"]

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        "–": "--",
        "−": "$-$",
        "±": r"$\pm$",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "\u202f": r"\,",
        "\n": " ",
        **{character: f"\\{character}" for character in "&%$#_"},
    }
)
_ARROWS = {True: " ↑", False: " ↓", None: ""}


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write a table in every format and return the files."""
    paths = []
    for suffix, convert in ((".csv", as_csv), (".tex", as_latex), (".md", markdown)):
        paths.append(folder / f"{table.key}{suffix}")
        with replacing(paths[-1]) as (temporary,):
            temporary.write_text(convert(table), encoding="utf-8", newline="")
    return paths


def as_csv(table: Table) -> str:
    """Return all digits, scores as fractions; standard errors and the ends of intervals have columns of their own."""
    suffixes = [_suffixes([row[i] for row in table.rows]) for i in range(len(table.heads))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head.key + suffix for head, own in zip(table.heads, suffixes, strict=True) for suffix in own)
    for row in table.rows:
        writer.writerow(_part(cell, suffix) for cell, own in zip(row, suffixes, strict=True) for suffix in own)
    return text.getvalue()


def _suffixes(cells: Sequence[Cell]) -> tuple[str, ...]:
    if any(cell.ends for cell in cells):
        return "_low", "_high"
    return ("", "_se") if any(cell.error is not None for cell in cells) else ("",)


def _part(cell: Cell, suffix: str) -> float | str | None:
    low, high = cell.ends or (None, None)
    value = cell.text if cell.label else cell.value
    return {"": value, "_se": cell.error, "_low": low, "_high": high}[suffix]


def as_latex(table: Table) -> str:
    r"""Return a ``tabular`` with the rules of booktabs, the best in ``\textbf``."""
    kinds = "".join("l" if all(row[i].label for row in table.rows) else "r" for i in range(len(table.heads)))
    heads = (head.title + (f" ({head.unit})" if head.unit else "") + _ARROWS[head.higher] for head in table.heads)
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        " & ".join(head.translate(_LATEX) for head in heads) + r" \\",
        r"\midrule",
        *(_latex_row(row) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[Cell]) -> str:
    text = " & ".join(map(_latex_cell, cells))
    # At its end the row before would take a bracket or a star for its own.
    return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"


def _latex_cell(cell: Cell) -> str:
    text = cell.text.translate(_LATEX)
    bold = rf"\textbf{{{text}}}" if cell.best else text
    return f"{bold} {cell.spread.translate(_LATEX)}".strip()


def markdown(table: Table) -> str:
    """Return a Markdown table with its caption, the best in bold."""
    heads = [head.title + (f" ({head.unit})" if head.unit else "") + _ARROWS[head.higher] for head in table.heads]
    rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    return f"{as_markdown([heads, *rows])}\n\n{table.caption}\n"


def _markdown_cell(cell: Cell) -> str:
    text = cell.text.replace("\n", " ")
    for mark in "\\`*_<>[]":
        text = text.replace(mark, "\\" + mark)
    return f"{f'**{text}**' if cell.best else text} {cell.spread}".strip()
