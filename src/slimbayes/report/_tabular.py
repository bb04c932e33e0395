"""A table that is shown in a page and written as CSV, LaTeX or Markdown."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from slimbayes._files import csv_cell, replacing
from slimbayes._text_table import as_markdown

#: Shown where there is no number.
MISSING = "–"


@dataclass(frozen=True)
class Head:
    """A column.

    Attributes:
        title: What it is called.
        key: A short name, for files.
        help: One sentence, or "".
        higher: Whether more is better; None if neither is.
        unit: "%" or "".
    """

    title: str
    key: str
    help: str = ""
    higher: bool | None = None
    unit: str = ""


@dataclass(frozen=True)
class Cell:
    """A word or a number.

    Attributes:
        text: What is shown.
        value: The number that is shown; None for a word, and for what is missing.
        spread: What follows the number, such as ``"± 0.01"``.
        error: The number in the spread.
        ends: Of an interval.
        best: Whether no other number of its column is better.
        label: Whether it is a word, not a number.
    """

    text: str
    value: float | None = None
    spread: str = ""
    error: float | None = None
    ends: tuple[float, float] | None = None
    best: bool = False
    label: bool = False

    @property
    def missing(self) -> bool:
        """Whether a number would be here if it were known."""
        return self.value is None and not self.label and self.text == MISSING


@dataclass(frozen=True)
class Table:
    """Rows under headings.

    Attributes:
        key: A short name, for files and addresses.
        title: What it is called.
        caption: How to read it.
        heads: The columns; the first names the rows.
        rows: As many cells each as there are columns.
    """

    key: str
    title: str
    caption: str
    heads: Sequence[Head]
    rows: list[list[Cell]] = field(default_factory=list)


def word(text: str) -> Cell:
    """Return a cell with a word."""
    return Cell(text, label=True)


def number_cell(
    value: float | None, decimals: int | None, unit: str = "", error: float | None = None, best: bool = False
) -> Cell:
    """Return a cell with a number, and with its standard error where there is one.

    Example:
        >>> cell = number_cell(0.9612, 1, "%", error=0.0023)
        >>> cell.text, cell.spread
        ('96.1', '± 0.2')
    """
    if value is None:
        return Cell(MISSING)
    scale = 100 if unit == "%" else 1
    spread = "" if error is None else f"± {shown(scale * error, decimals)}"
    return Cell(shown(scale * value, decimals), value, spread, error, best=best)


def shown(value: float, decimals: int | None) -> str:
    """Return a number with that many decimals; None writes it with a power of ten."""
    text = f"{value:.2e}" if decimals is None else f"{value:.{decimals}f}"
    return text.replace("-", "−", 1) if text.startswith("-") else text


def decimals_for(
    values: Iterable[float | None], unit: str = "", errors: Iterable[float | None] = (), apart: Iterable[float] = ()
) -> int | None:
    """Return the decimals that show three digits of a column's typical number, one of its typical error if possible.

    Args:
        values: The column's numbers.
        unit: "%" if they are shown in per cent.
        errors: Their standard errors; they add at most one decimal.
        apart: Numbers that should not look the same unless they are; without errors they add at most one decimal.

    Returns:
        None if that takes too many.

    Example:
        >>> decimals_for([0.0182, 0.0311]), decimals_for([45.2]), decimals_for([0.961], "%"), decimals_for([1e-9])
        (4, 1, 1, None)
    """
    scale, apart = 100 if unit == "%" else 1, set(apart)
    sizes = [abs(scale * value) for value in values if value]
    if not sizes:
        return 3
    digits = 2 - math.floor(math.log10(median(sizes)))
    spreads = [scale * error for error in errors if error]
    if spreads:
        digits = max(digits, min(digits + 1, -math.floor(math.log10(median(spreads)))))
    elif len({round(scale * value, digits) for value in apart}) < len(set(apart)):
        digits += 1
    return None if digits > 6 or digits < -6 else max(0, digits)


# ---------------------------------------------------------------------- as files


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
    value = csv_cell(cell.text) if cell.label else cell.value
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
    # The end of the row before, two backslashes, would take a bracket or a star for its own argument.
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
