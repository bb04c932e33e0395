"""What commands share: where they write, how they show progress, lists of numbers."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

__all__ = ["Trust", "check_out", "numbers", "progress_bar"]

#: The option of commands that open runs.
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE[:NAME]",
        help="Code of your own that the run may call for its network; can be given several times.",
        show_default=False,
    ),
]


def check_out(out: Path, example: str) -> None:
    """Raise if results cannot be written there, before any time is spent on them."""
    if out.is_dir():
        raise IsADirectoryError(f"--out {out} is a folder; give a file, such as {out / example}")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(f"{out.parent} is not writable")


def progress_bar(doing: str, unit: str) -> Callable[[int, int], None]:
    """Return a progress callback: a bar on a terminal, silence elsewhere."""
    bar = tqdm(file=sys.stderr, disable=not sys.stderr.isatty(), desc=doing, unit=unit, leave=False)

    def report(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)
        bar.refresh()
        if done >= total:
            bar.close()

    return report


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers of an option such as ``1,4,25``, each once, ascending."""
    try:
        return tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError as error:
        raise ValueError(f"Expected {option} to be numbers separated by commas, but got {text!r}.") from error
