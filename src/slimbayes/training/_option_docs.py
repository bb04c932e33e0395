"""The further keys of `data`, `net` and `method`, by the signatures and docstrings of what they are given to."""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from slimbayes.data.registry import SETS, loader_of
from slimbayes.methods.registry import get_method, trained_methods
from slimbayes.training.networks import NETWORKS, SIZES


class Option(NamedTuple):
    """A further key.

    Attributes:
        name: The key.
        default: Its value if it is not given; ``inspect.Parameter.empty`` if it must be.
        text: The first sentence of its explanation.
    """

    name: str
    default: Any
    text: str


SHARE = Option("share", None, "Be as narrow as one of so many networks that together have the parameters of this one.")


def names_of(section: str) -> list[str]:
    """Return the names that a section may have; a network may also be ``package.module:function``.

    Example:
        >>> names_of("net")[:2]
        ['mlp', 'lenet']
    """
    return {"data": list(SETS), "net": list(NETWORKS), "method": trained_methods()}[section]


def options_of(section: str, name: str) -> list[Option]:
    """Return the further keys of a section with this name.

    Example:
        >>> [option.name for option in options_of("net", "mlp")]
        ['hidden', 'share']
        >>> options_of("method", "mc_dropout")[0].default
        0.1
    """
    if section == "data":
        return _described(loader_of(name))[1:]  # the first is the folder
    if section == "method":
        return _described(get_method(name).make)[1:]  # the first is the network
    if ":" in name:  # one's own
        return []
    return [option for option in _described(NETWORKS[name][1]) if option.name not in SIZES] + [SHARE]


def _described(function: Callable[..., Any]) -> list[Option]:
    texts = _arguments(inspect.getdoc(function) or "")
    parameters = inspect.signature(function).parameters
    return [Option(name, one.default, texts.get(name, "")) for name, one in parameters.items()]


def _arguments(doc: str) -> dict[str, str]:
    r"""Return the first sentences of the arguments in a Google docstring.

    Example:
        >>> _arguments("Do it.\n\nArgs:\n    a: One, e.g. 1.5. Two.\n    b: Three\n        four.\n")
        {'a': 'One, e.g. 1.5.', 'b': 'Three four.'}
    """
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", doc, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^ {4}(\w+): (.*?)(?=^ {4}\w+: |\Z)", section[1] if section else "", re.M | re.S)
    return {name: _first_sentence(" ".join(text.replace("``", "`").split())) for name, text in entries}


def _first_sentence(text: str) -> str:
    found = re.match(r".*?(?<!e\.g)(?<!i\.e)\.(?= [A-Z`\"(]|$)", text)
    return found[0] if found else text
