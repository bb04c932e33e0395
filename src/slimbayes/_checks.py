"""Argument checks that name the argument, the value and the remedy."""

import difflib
import inspect
import math
import numbers
from collections.abc import Callable, Iterable
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


#: The square of a number over a smaller scale is no number of single precision.
SMALLEST_SCALE = 1e-15


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


def check_keywords(method: Callable[..., Any], known: list[str], given: Iterable[str]) -> None:
    """Raise for keyword arguments that are neither a model's nor its network's, or nearly the model's.

    Args:
        method: What they were given to.
        known: Names of the network's arguments, one of them with two stars if it takes any.
        given: Names of the arguments that the method does not have.
    """
    any_name = any(name.startswith("**") for name in known)
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, [*inspect.signature(method).parameters][1:], 1, 0.8)
        if near or not any_name:
            meant = f"Did you mean {near[0]!r}?" if near else f"The network's are {', '.join(known) or 'none'}."
            raise TypeError(f"Neither the model's {method.__name__} nor the network has an argument {name!r}. {meant}")
