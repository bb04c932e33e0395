"""A progress bar on a terminal, where tqdm is installed."""

import sys
from collections.abc import Callable
from typing import Any


class Bar:
    """A progress bar on a terminal, where tqdm is installed; elsewhere nothing.

    Args:
        total: Steps; None if not known.
        doing: What stands before it.
        unit: Of the steps.
        quiet: Show nothing.

    Attributes:
        step: Counts a step; None where there is no bar.

    Example:
        >>> with Bar(3, "counting", "step", quiet=True) as bar:
        ...     print(bar.step)
        None
    """

    def __init__(self, total: int | None, doing: str, unit: str, quiet: bool) -> None:
        self.step: Callable[[], object] | None = None
        self.bar: Any = None
        if not quiet and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self.bar = tqdm(total=total, desc=doing, unit=unit, file=sys.stderr)
            self.step = self.bar.update

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()
