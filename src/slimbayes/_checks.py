"""Argument checks that name the argument, the value and the remedy."""

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> None:
    """Raise unless ``value`` is one of ``choices``, and name the nearest one."""
    options = list(choices)
    if value in options:
        return
    near = difflib.get_close_matches(str(value), [one for one in options if isinstance(one, str)], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(map(repr, options))
    raise ValueError(f"Expected argument `{argument}` to be one of {listed}, but got {value!r}.{hint}")


def check_count(argument: str, value: Any, minimum: int = 1, remedy: str = "") -> None:
    """Raise unless ``value`` is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < minimum:
        raise ValueError(
            f"Expected argument `{argument}` to be an integer of at least {minimum}, but got {value!r}."
            + (f" {remedy}" if remedy else "")
        )


def check_number(
    argument: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    remedy: str = "",
    or_low: bool = False,
) -> None:
    """Raise unless ``value`` is a finite number between ``low`` and ``high``, neither of them unless ``or_low``."""
    number = not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)
    if not number or not (low < value < high or (or_low and value == low)):
        bound = "at least" if or_low else "above"
        upper = "" if high == math.inf else f" and below {high:g}"
        lower = "" if low == -math.inf else f" {bound} {low:g}"
        raise ValueError(
            f"Expected argument `{argument}` to be a finite number{lower}{upper}, but got {value!r}."
            + (f" {remedy}" if remedy else "")
        )
