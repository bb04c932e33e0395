"""From YAML and ``key=value`` words to a configuration; a wrong key names the nearest right one."""

import difflib
import os
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from slimbayes.training.config import TrainConfig

__all__ = [
    "as_config",
    "as_line",
    "as_yaml",
    "load_config",
    "parse_config",
    "read_yaml",
    "section_of",
    "with_overrides",
]

ModelT = TypeVar("ModelT", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes 1e-3 for a word; here it is a number. A key that is given twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = {"<<"}  # may stand there several times: each takes over another mapping
        for key, _ in node.value:
            name = getattr(key, "value", None)
            if isinstance(name, str) and name != "<<" and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} is given twice", key.start_mark)
            seen.add(name if isinstance(name, str) else "<<")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file."""
    try:
        content = yaml.load(path.read_text(), _Loader)
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deep to be read. Give a configuration in YAML.") from error
    except (yaml.YAMLError, ValueError) as error:  # of dates such as 2026-13-45, a ValueError
        raise ValueError(f"{path} is not YAML: {_one_line(error)}. Correct the file.") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"There is no file {path}. Give a configuration in YAML.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} should hold keys and values, such as `data: digits`, but holds {content!r}.")
    return content


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def with_overrides(content: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return ``content`` with words such as ``optimiser.lr=0.1`` applied.

    Example:
        >>> with_overrides({"method": "rank1", "epochs": 3}, ["method.members=2", "optimiser.lr=1e-2"])
        {'method': {'name': 'rank1', 'members': 2}, 'epochs': 3, 'optimiser': {'lr': 0.01}}
    """
    result: dict[str, Any] = dict(content)
    for word in overrides:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ValueError(f"Expected {word!r} to be key=value, such as optimiser.lr=0.01.")
        try:
            value = yaml.load(text, _Loader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ValueError(f"The value of {word!r} is not YAML: {_one_line(error)}.") from error
        _set(result, key.split("."), value)
    return result


def _set(content: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for step in path[:-1]:
        inner = content.get(step)
        if inner is not None and not isinstance(inner, (str, Mapping)):
            raise ValueError(f"{'.'.join(path)}: `{step}` is {inner!r} and has no keys of its own.")
        content[step] = {"name": inner} if isinstance(inner, str) else dict(inner or {})
        content = content[step]
    content[path[-1]] = value


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> TrainConfig:
    """Read a configuration.

    Args:
        path: A YAML file.
        overrides: Words such as ``optimiser.lr=0.1``.
    """
    return parse_config(with_overrides(read_yaml(Path(path)), overrides))


def as_config(config: TrainConfig | Mapping[str, Any] | str | os.PathLike[str]) -> TrainConfig:
    """Return a configuration that is given as such, by its keys and values, or as a YAML file."""
    if isinstance(config, (str, os.PathLike)):
        return load_config(Path(config))
    return config if isinstance(config, TrainConfig) else parse_config(config)


def parse_config(content: Mapping[str, Any], model: type[ModelT] = TrainConfig) -> ModelT:  # type: ignore[assignment]
    """Check a configuration; every fault is named with its key and, if a key is unknown, the nearest known one.

    Example:
        >>> parse_config({"data": "digits", "net": "mlp", "optimizer": {"lr": 0.1}})
        Traceback (most recent call last):
            ...
        ValueError: The configuration has a fault:
          optimizer: there is no such key. Did you mean 'optimiser'?
    """
    try:
        return model.model_validate(dict(content))
    except ValidationError as error:
        faults = [_explain(model, fault) for fault in error.errors()]
        number = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise ValueError("\n  ".join([f"The configuration has {number}:", *faults])) from None


def _explain(model: type[BaseModel], fault: Mapping[str, Any]) -> str:
    path = [str(step) for step in fault["loc"]]
    key = ".".join(path) or "the whole"
    if fault["type"] == "extra_forbidden":
        known = list(_section(model, path[:-1]).model_fields)
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"The keys are {', '.join(known)}."
        return f"{key}: there is no such key. {hint}"
    if fault["type"] == "missing":
        return f"{key}: it is missing."
    message = fault["msg"].removeprefix("Value error, ")
    given = "" if isinstance(fault["input"], dict) else f", but got {fault['input']!r}"
    return f"{key}: {message[0].lower()}{message[1:]}{given}."


def _section(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel]:
    for step in path:
        if step in model.model_fields:
            model = section_of(model.model_fields[step].annotation) or model
    return model


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the class of a key's section; None if the key has none."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    return next(filter(None, map(section_of, typing.get_args(annotation))), None)


def as_yaml(content: Mapping[str, Any]) -> str:
    """Return YAML in the order of ``content``."""
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)


def as_line(key: str, value: Any) -> str:
    """Return a key and its value as one line of YAML.

    Example:
        >>> as_line("hidden", [100, 100])
        'hidden: [100, 100]'
    """
    text = yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, default_flow_style=True, width=1_000_000)
    return text.strip()[1:-1]  # without the braces of the mapping
