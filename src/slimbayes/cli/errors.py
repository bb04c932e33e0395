"""What a user can put right, said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["errors_of"]


@contextmanager
def errors_of(command: str, program: str = "slimbayes") -> Iterator[None]:
    """Say what a user can put right without a traceback, and exit with 2."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        typer.secho(f"{program} {command}: {error}", fg="red", err=True)
        raise typer.Exit(2) from error
