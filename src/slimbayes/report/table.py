"""A table that is shown in a page and written as CSV, LaTeX or Markdown."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

__all__ = ["MISSING", "Cell", "Head", "Table", "decimals_for", "number_cell", "shown", "word"]

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
        value: The number behind it; None of a word, and of what is missing.
        spread: What follows the number, such as ``"± 0.01"``.
        error: The number behind the spread.
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
    """Return a number with so many decimals; in powers of ten without a number of them."""
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
