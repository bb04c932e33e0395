"""What every figure of a report is: a picture, and the same in words and in numbers."""

from typing import Any, NamedTuple

__all__ = ["Drawing"]


class Drawing(NamedTuple):
    """A figure of a report.

    Attributes:
        key: A short name, unlike those of the report's other figures: file name and prefix of ids.
        title: What the page calls it.
        caption: How to read it: what the axes, bars and bands are.
        alt: What is shown and what it shows, for those who do not see it.
        figure: A ``matplotlib.figure.Figure``.
        table: The numbers behind it, a row of headings first.
    """

    key: str
    title: str
    caption: str
    alt: str
    figure: Any
    table: list[list[str]]
