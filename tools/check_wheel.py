"""Build the wheels and the sdist, and try the wheels in empty environments: ``make dist``.

Every wheel is installed with its core dependencies only, and the README's hello world is run. torch comes from
constraints.txt, because any other version may fetch gigabytes of CUDA libraries. With ``--no-torch`` nothing but
slimbayes is installed: the check is then that it imports, compiles on this Python, and that its kernels can be loaded.

    python tools/check_wheel.py                                    # this Python
    python tools/check_wheel.py python3.12 python3.13 --no-torch   # others
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
#: What belongs to a clone and not to a wheel.
NOT_INSTALLED = re.compile(r"(^|/)(bench|benchmarks|experiments|reproductions|tests|examples)/")
#: Run where there is no torch.
WITHOUT_TORCH = """
import compileall, ctypes, pathlib, slimbayes
folder = pathlib.Path(slimbayes.__file__).parent
assert compileall.compile_dir(folder, quiet=1)
for library in folder.rglob("kernels*.so"):
    ctypes.CDLL(str(library)).scale_float
print("imported", slimbayes.__version__)
"""
#: Run after hello world: the draws are first, the probabilities sum to one.
AFTER_HELLO = """
assert model(x).shape == (4, 512, 3) and torch.allclose(p.probs.sum(-1), torch.ones(512), atol=1e-5)
assert (p.label == y).float().mean() > 0.85
print("hello world: accuracy", round((p.label == y).float().mean().item(), 3), "torch", torch.__version__)
"""


def run(*command: object, **environment: str) -> None:
    """Run a command, or stop."""
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, cwd=tempfile.gettempdir(), env=os.environ | environment)


def build() -> list[Path]:
    """Make the compiled wheel (where there is a compiler), the pure wheel and the sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        python = new_environment(sys.executable, Path(folder))
        run(python, "-m", "pip", "install", "--quiet", "hatchling>=1.24")
        for pure in ("0", "1"):
            code = f"import os; os.chdir({str(ROOT)!r}); from hatchling.build import *; build_wheel({str(DIST)!r})"
            run(python, "-c", code, SLIMBAYES_PURE=pure)
        run(
            python,
            "-c",
            f"import os; os.chdir({str(ROOT)!r}); from hatchling.build import *; build_sdist({str(DIST)!r})",
        )
    return sorted(DIST.glob("*.whl"))


def new_environment(python: str, folder: Path) -> Path:
    """Make an empty virtual environment and return its Python."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def complaints(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel's name and contents."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    found = [f"{wheel.name} holds {name}" for name in names if NOT_INSTALLED.search(name)]
    pure = wheel.stem.endswith("py3-none-any")
    if "-py3-none-" not in wheel.name:
        found.append(f"{wheel.name} is not for every Python 3")
    if pure == any(name.endswith(".so") for name in names):
        found.append(f"{wheel.name}: its kernels and its name disagree")
    return found


def hello_world() -> str:
    """Return the block of code in the README that needs nothing but the core."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if block.startswith("import torch, slimbayes"))


def try_out(wheel: Path, python: str, with_torch: bool) -> None:
    """Install a wheel in an empty environment and run hello world."""
    with tempfile.TemporaryDirectory() as folder:
        inside = new_environment(python, Path(folder))
        install = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if with_torch:
            run(*install, "-c", ROOT / "constraints.txt", wheel)
            run(inside, "-W", "error", "-c", hello_world() + AFTER_HELLO)
        else:
            run(*install, "--no-deps", wheel)
            run(inside, "-c", WITHOUT_TORCH)


def main() -> None:
    """Build, look inside, install, run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], help="interpreters to try")
    parser.add_argument("--no-torch", action="store_true", help="install slimbayes alone")
    parser.add_argument("--built", action="store_true", help="take the wheels in dist/ instead of building them")
    options = parser.parse_args()
    wheels = sorted(DIST.glob("*.whl")) if options.built else build()
    if not wheels:
        sys.exit("dist/ holds no wheel")
    for wheel in wheels:
        for python in options.pythons:
            try_out(wheel, python, not options.no_torch)
    wrong = [line for wheel in wheels for line in complaints(wheel)]
    print(*(path.name for path in sorted(DIST.iterdir())), sep="\n")
    if wrong:
        sys.exit("\n".join(wrong[:20]))


if __name__ == "__main__":
    main()
