"""The ``slimbayes`` command."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say which extra it needs."""
    try:
        from slimbayes.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "tqdm"):
            raise
        sys.exit(f'The command line needs {error.name}: pip install "slimbayes[train]"')
    app()
