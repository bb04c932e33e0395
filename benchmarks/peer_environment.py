"""The peers' own environment: made once, with the versions of `requirements.txt` and of the tests."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["enter", "is_inside", "make"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PINS = (ROOT / "constraints.txt", HERE / "requirements.txt")


def enter(folder: Path, module: str) -> None:
    """Run this process's module again in the environment, which is made first if it is missing or outdated."""
    make(folder)
    python = str(_python(folder))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    sys.exit(subprocess.run([python, "-m", module, *sys.argv[1:]], env=environment).returncode)


def is_inside(folder: Path) -> bool:
    """Return whether this interpreter is the environment's."""
    return Path(sys.prefix).resolve() == folder.resolve()


def make(folder: Path) -> None:
    """Make the environment unless its stamp says that these very pins are installed."""
    stamp = folder / "installed"
    pins = hashlib.sha256(b"".join(path.read_bytes() for path in PINS)).hexdigest()
    if stamp.exists() and stamp.read_text() == pins:
        return
    print(f"Making the peers' environment in {folder}; this takes a few minutes.", file=sys.stderr)
    if not _python(folder).exists():
        _run(sys.executable, "-m", "venv", str(folder))
    constraints, requirements = map(str, PINS)
    _install(folder, "-c", constraints, "-e", f"{ROOT}[train]")
    before = _torch(folder)
    # Without dependencies: torch-uncertainty asks for an older rich than ours, and none may bring another torch.
    _install(folder, "--no-deps", "-r", requirements)
    if (after := _torch(folder)) != before or f"torch=={after.partition('+')[0]}" not in PINS[0].read_text():
        raise SystemExit(f"Expected torch to stay {before} as constraints.txt pins it, but it is {after}.")
    stamp.write_text(pins)


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _install(folder: Path, *words: str) -> None:
    _run(str(_python(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)


def _torch(folder: Path) -> str:
    code = "from importlib.metadata import version; print(version('torch'))"
    return subprocess.run([_python(folder), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _run(*words: str) -> None:
    if code := subprocess.run(words).returncode:
        raise SystemExit(f"This command failed with exit code {code}: {' '.join(words)}")
