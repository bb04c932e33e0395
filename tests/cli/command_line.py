"""How the tests of commands call them."""

from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from slimbayes.cli.app import app


def invoke(*arguments: Any) -> Result:
    """Run slimbayes with these words."""
    return CliRunner().invoke(app, [*map(str, arguments)])


def config_in(folder: Path, text: str, monkeypatch: Any) -> Path:
    """Go to a folder and write a configuration there."""
    monkeypatch.chdir(folder)
    path = folder / "config.yaml"
    path.write_text(text)
    return path
