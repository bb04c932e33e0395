"""A configuration as YAML with comments: every key with its explanation and its default."""

import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from slimbayes.training._option_docs import Option, options_of
from slimbayes.training.config import Named, TrainConfig
from slimbayes.training.parsing import as_line, parse_config, section_of
from slimbayes.training.schema import FIRST_LINE

__all__ = ["commented_yaml"]

WIDTH = 110
HOW = (
    "Lines that begin with # and no blank are keys that are not set, with their defaults: remove the # to set them. "
    "slimbayes train CONFIG.yaml trains this."
)


def commented_yaml(content: Mapping[str, Any], about: str = "") -> str:
    """Return YAML that is read as the configuration ``content``, with a comment for every key that there is.

    Args:
        content: Keys and values of a configuration.
        about: What the first lines say of it.

    Example:
        >>> text = commented_yaml({"data": "digits", "net": {"name": "mlp", "hidden": [50]}})
        >>> for line in text.splitlines()[4:8]:
        ...     print(line)
        # What to train on: a set that `slimbayes data list` shows; further keys are its own options.
        data:
          # A set that `slimbayes data list` shows.
          name: digits
    """
    parse_config(content)
    lines = [FIRST_LINE]
    for text in (about, HOW):
        lines += _comment(text, "")
    for key, field in TrainConfig.model_fields.items():
        section = section_of(field.annotation)
        lines += ["", *_comment(_explained(field, key in content and section is None), "")]
        if section is None:
            lines.append(_key(key, content.get(key, _default(field)), "", key in content))
        else:
            given = content.get(key) or {}
            given = {"name": given} if isinstance(given, str) else given
            lines += [f"{key}:", *_section(key, section, given)]
    return "\n".join(lines) + "\n"


def _section(key: str, model: type[BaseModel], given: Mapping[str, Any]) -> Iterator[str]:
    fields = model.model_fields
    if not fields.keys() & given.keys():  # there must be a key
        first = next(name for name, field in fields.items() if _default(field) is not None)
        given = {first: _default(fields[first]), **given}
    for name, field in fields.items():
        yield from _comment(_explained(field, name in given), "  ")
        yield _key(name, given.get(name, _default(field)), "  ", name in given)
    if issubclass(model, Named):
        options = options_of(key, given["name"])
        others = given.keys() - fields.keys() - {option.name for option in options}  # of a network of one's own
        for option in [*options, *(Option(name, None, "An argument of your own.") for name in sorted(others))]:
            yield from _comment(_described(option, option.name in given), "  ")
            yield _key(option.name, given.get(option.name, option.default), "  ", option.name in given)


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _key(key: str, value: Any, indent: str, is_set: bool) -> str:
    """Return the line of a key; of one that is not set, such that it would be if its # were removed."""
    return f"{indent}{'' if is_set else '#'}{as_line(key, _plain(value))}"


def _plain(value: Any) -> Any:
    """Return JSON values: lists for tuples, texts for what is neither."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


def _explained(field: FieldInfo, is_set: bool) -> str:
    text = " ".join((field.description or "").split()).replace("``", "`")
    if not is_set or field.is_required():
        return text
    return f"{text} {_default_in_words(_default(field))}"


def _described(option: Option, is_set: bool) -> str:
    if not is_set or option.default is inspect.Parameter.empty:
        return option.text
    return f"{option.text} {_default_in_words(option.default)}".strip()


def _default_in_words(value: Any) -> str:
    return "Default: none" if value is None else as_line("Default", _plain(value))
