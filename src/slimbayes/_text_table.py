"""Tables of words, for people: aligned columns or Markdown."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of words in columns of equal width.

    Example:
        >>> print(aligned([["case", "ratio"], ["plain", "1.0"]]))
        case   ratio
        plain  1.0
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of words as a Markdown table whose first row is the heading; bars inside words are escaped.

    Example:
        >>> print(as_markdown([["case", "ratio"], ["plain", "1.0"]]))
        | case | ratio |
        |---|---|
        | plain | 1.0 |
    """
    lines = ["| " + " | ".join(word.replace("|", "\\|") for word in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def of_draws(draws: int) -> str:
    """Return how many draws something is of, in words.

    Example:
        >>> of_draws(1), of_draws(8)
        ('1 draw', '8 draws')
    """
    return f"{draws} draw{'s' * (draws > 1)}"
