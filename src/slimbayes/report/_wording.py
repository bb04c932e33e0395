"""Numbers, names and comparisons in words, for sentences, tables and text alternatives."""

import math
from collections.abc import Mapping, Sequence

#: Shown where there is no number.
NONE = "–"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many significant digits, or a dash.

    Example:
        >>> number(0.123456), number(1234.5), number(None), number(1e-7), number(2)
        ('0.123', '1234', '–', '1e-07', '2')
    """
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """Return a share in per cent.

    Example:
        >>> percent(0.9234), percent(None)
        ('92.3%', '–')
    """
    return NONE if value is None or not math.isfinite(value) else f"{100 * value:.1f}%"


def extremes(values: Mapping[str, float | None], what: str, higher: bool | None = False, share: bool = False) -> str:
    """Return a sentence on the best and the worst of several titles.

    Args:
        values: By title; those without a number are left out.
        what: What they are, such as ``"NLL"``.
        higher: Whether more is better; None if neither is.
        share: Whether to show them in per cent.

    Example:
        >>> extremes({"rank-1": 0.2, "plain": 0.5}, "NLL")
        'NLL is best for rank-1 (0.2) and worst for plain (0.5).'
        >>> extremes({"rank-1": 0.2}, "NLL")
        'NLL of rank-1: 0.2.'
    """
    known = {title: value for title, value in values.items() if value is not None and math.isfinite(value)}
    show = percent if share else number
    if not known:
        return f"There is no {what}."
    what = what[0].upper() + what[1:]
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    if len(known) == 1:
        return f"{what} of {low}: {show(known[low])}."
    if known[low] == known[high]:
        return f"{what} is {show(known[low])} for all {len(known)}."
    words = ("best", "worst") if higher is not None else ("lowest", "highest")
    first, last = (high, low) if higher else (low, high)
    return f"{what} is {words[0]} for {first} ({show(known[first])}) and {words[1]} for {last} ({show(known[last])})."


def methods(count: int) -> str:
    """Return how many methods.

    Example:
        >>> methods(1), methods(3)
        ('1 method', '3 methods')
    """
    return f"{count} method{'' if count == 1 else 's'}"


def listing(names: Sequence[str], limit: int = 6) -> str:
    """Return names in a sentence.

    Args:
        names: At least one.
        limit: Of more names than this, the rest are counted.

    Example:
        >>> listing(["a"]), listing(["a", "b", "c"]), listing("abcdefgh", 3)
        ('a', 'a, b and c', 'a, b, c and 5 more')
    """
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
