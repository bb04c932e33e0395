"""A grid of runs as data: methods x overrides x seeds over one configuration.

.. code-block:: yaml

    base: base.yaml               # a configuration: a file, as seen from this one, or its keys and values
    methods:                      # names, such as [deterministic, rank1], or titles with the method's own arguments;
      deterministic:              # by default the base's method. A title is the method's name unless it has another.
      rank1: {members: 4}
      cauchy: {name: rank1, family: cauchy}
    seeds: 3                      # 0, 1, 2; or a list. By default the base's seed.
    overrides:                    # by default none
      slow: {optimiser.lr: 1e-4}
      fast: {optimiser.lr: 1e-2, schedule: cosine}

A file is a grid if it has the key ``base``. Each cell is a run of its own, in the folder
``OUT/<method>[-<override>]-seed<seed>``.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from slimbayes.training.config import Section
from slimbayes.training.parsing import parse_config, read_yaml, with_overrides

#: What a cell gets from `methods` and `seeds`, not from an override.
OWN = {"method": "methods", "method.name": "methods", "seed": "seeds"}


#: Methods as they may be written.
Titled = list[str] | dict[str, str | dict[str, Any] | None]


def _by_title(value: Any) -> Any:
    """Let names stand for methods without arguments."""
    if isinstance(value, list):
        if any(not isinstance(name, str) for name in value) or len(set(value)) < len(value):
            raise ValueError("give each name once; methods with arguments go under titles, `wide: {name: rank1, ...}`")
        return {name: {"name": name} for name in value}
    return {title: _section(title, inner) for title, inner in value.items()} if isinstance(value, dict) else value


def _section(title: str, inner: Any) -> Any:
    if isinstance(inner, str):
        return {"name": inner}
    return {"name": title, **(inner or {})} if isinstance(inner, dict | None) else inner


def _listed(value: Any) -> Any:
    """Let a number stand for the seeds from 0."""
    return list(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value


class Grid(Section):
    """What a grid's file holds."""

    base: dict[str, Any]
    """The configuration that all cells share: its keys and values, or a file."""
    methods: Annotated[dict[str, dict[str, Any]] | None, BeforeValidator(_by_title, Titled)] = Field(None, min_length=1)
    """Names, or titles with sections `method`; by default the base's method."""
    seeds: Annotated[list[Annotated[int, Field(ge=0)]] | None, BeforeValidator(_listed, int | list[int])] = Field(
        None, min_length=1
    )
    """How many, counted from 0, or a list; by default the base's seed."""
    overrides: dict[str, dict[str, Any]] | None = Field(None, min_length=1)
    """Titles with keys such as `optimiser.lr` and their values."""

    @field_validator("methods", "overrides")
    @classmethod
    def _titles(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for title in value or ():
            if not re.fullmatch(r"[A-Za-z0-9][\w.+=-]*", title):
                raise ValueError(f"the title {title!r} becomes part of a folder's name: use letters, digits, _ . + = -")
        return value

    @field_validator("seeds")
    @classmethod
    def _once(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and len(set(value)) < len(value):
            raise ValueError("give each seed once")
        return value

    @field_validator("overrides")
    @classmethod
    def _not_its_own(cls, value: dict[str, dict[str, Any]] | None) -> dict[str, dict[str, Any]] | None:
        for title, keys in (value or {}).items():
            for key in keys:
                if key in OWN:
                    raise ValueError(f"{title!r} sets `{key}`, which goes under `{OWN[key]}`")
        return value


def is_grid(content: Mapping[str, Any]) -> bool:
    """Tell whether what a YAML file holds is a grid rather than one run's configuration.

    Example:
        >>> is_grid({"base": {"data": "digits", "net": "mlp"}, "seeds": 3}), is_grid({"data": "digits", "net": "mlp"})
        (True, False)
    """
    return "base" in content


def read_grid(source: Mapping[str, Any] | str | os.PathLike[str], words: Iterable[str] = ()) -> Grid:
    """Return a grid.

    Args:
        source: A YAML file, or its keys and values; these name files as seen from the working directory.
        words: Changes such as ``seeds=5``, or ``epochs=3`` for the base.

    Example:
        >>> grid = read_grid({"base": {"data": "digits", "net": "mlp"}}, ["seeds=2", "epochs=3"])
        >>> grid.seeds, grid.base
        ([0, 1], {'data': 'digits', 'net': 'mlp', 'epochs': 3})
    """
    words = [word.removeprefix("base.") for word in words]
    of_base = [word for word in words if _root(word) not in Grid.model_fields]
    of_grid = [word for word in words if _root(word) in Grid.model_fields]
    if isinstance(source, Mapping):
        content, folder = with_overrides(source, of_grid), Path()
    else:
        content, folder = with_overrides(read_yaml(Path(source)), of_grid), Path(source).parent
    for word in of_base:
        if content.get(OWN.get(_root(word), "")) is not None:
            raise ValueError(f"{word!r} would change nothing: the grid has its own `{OWN[_root(word)]}`. Change these.")
    if isinstance(content.get("base"), str | os.PathLike):
        content["base"] = read_yaml(folder / content["base"])
    if isinstance(content.get("base"), dict):
        content["base"] = with_overrides(content["base"], of_base)
    return parse_config(content, Grid)


def _root(word: str) -> str:
    return word.partition("=")[0].partition(".")[0]
