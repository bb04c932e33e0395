"""Names that are imported when they are first used, so that the command line need not wait for torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``.

    Args:
        package: Its name.
        modules: For each public name its module below the package; ``""`` for a name that is a module itself.

    Example:
        >>> lazily("os", {"path": "", "join": "path"})("join")("a", "b")
        'a/b'
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        return getattr(import_module(f"{package}.{module}"), name) if module else import_module(f"{package}.{name}")

    return get
