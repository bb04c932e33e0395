"""Argument checks that name the argument, the value and the remedy."""

import difflib
import math
from collections.abc import Iterable
from typing import Any


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> None:
    """Raise unless ``value`` is one of ``choices``, and name the nearest one."""
    options = list(choices)
    if value in options:
        return
    near = difflib.get_close_matches(str(value), options, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(map(repr, options))
    raise ValueError(f"Expected argument `{argument}` to be one of {listed}, but got {value!r}.{hint}")


def check_count(argument: str, value: Any, minimum: int = 1, remedy: str = "") -> None:
    """Raise unless ``value`` is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(
            f"Expected argument `{argument}` to be an integer of at least {minimum}, but got {value!r}."
            + (f" {remedy}" if remedy else "")
        )


def check_number(argument: str, value: Any, low: float = -math.inf, high: float = math.inf, remedy: str = "") -> None:
    """Raise unless ``value`` is a finite number strictly between ``low`` and ``high``."""
    number = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
    if not number or not low < value < high:
        raise ValueError(
            f"Expected argument `{argument}` to be a number between {low:g} and {high:g}, but got {value!r}."
            + (f" {remedy}" if remedy else "")
        )
