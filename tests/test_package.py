"""What is installed, and what importing it costs."""

import ast
import importlib
import os
import runpy
import subprocess
import sys
import tomllib
from importlib import metadata, resources
from pathlib import Path

import pytest

import slimbayes as sb
from slimbayes import cli
from slimbayes.methods.registry import method_names

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "slimbayes"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_core_dependencies():
    names = {requirement.split(">")[0] for requirement in PROJECT["dependencies"]}
    assert names == {"torch", "numpy", "safetensors"}
    extras = {"train", "sklearn", "report", "transformers", "tune", "cluster", "all", "dev"}
    assert set(PROJECT["optional-dependencies"]) == extras


def test_importing_the_package_imports_no_extra():
    code = "import sys, slimbayes as sb; sb.rank1, sb.ELBO, sb.data, sb.nets; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sklearn", "matplotlib", "typer", "transformers", "scipy", "pydantic", "accelerate"} & set(loaded)


@pytest.mark.parametrize("missing", ["typer", "tqdm"])
def test_the_command_names_the_extra_that_it_lacks(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    for name in [name for name in sys.modules if name.startswith("slimbayes.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["slimbayes", "demo", "--methods", "plain", "--epochs", "1"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert f'needs {missing}: pip install "slimbayes[train]"' in str(stopped.value)


@pytest.mark.parametrize("package", ["slimbayes", "slimbayes.data", "slimbayes.evaluation", "slimbayes.metrics"])
def test_names_for_type_checkers_and_names_at_run_time_are_the_same(package):
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.name: statement.module.removeprefix(package).removeprefix(".")
        for statement in block.body
        for alias in statement.names
    }
    assert declared == module._PLACES
    for name in declared:
        assert getattr(module, name) is not None


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="slimbayes.*rank2"):
        sb.rank2  # noqa: B018
    assert {"rank1", "training", "__version__"} <= set(dir(sb))


def test_the_package_is_typed_and_licensed():
    assert resources.files("slimbayes").joinpath("py.typed").is_file()
    assert metadata.metadata("slimbayes")["License-Expression"] == "Apache-2.0"
    assert metadata.version("slimbayes") == sb.__version__


def test_only_the_registry_tells_methods_apart_by_name():
    names = set(method_names())
    wrong = []
    for path in (
        path for folder in (SOURCE, ROOT / "benchmarks", ROOT / "reproductions") for path in folder.rglob("*.py")
    ):
        if path == SOURCE / "methods" / "registry.py" or ".venv" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            words = {
                one.value
                for operand in compared(node)
                for one in (operand, *getattr(operand, "elts", ()))
                if isinstance(one, ast.Constant)
            }
            if names & words:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    assert not wrong


def compared(node):
    """Return what a piece of code compares: the sides of ==, != or in, the patterns of a match."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    return [node.value] if isinstance(node, ast.MatchValue) else []


def test_what_a_wheel_is_asked_without_torch():
    """``make dist`` asks it of each wheel, on every Python."""
    asked = runpy.run_path(str(ROOT / "tools" / "check_wheel.py"))["WITHOUT_TORCH"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    run = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == f"imported {sb.__version__}\n"


def test_constraints_pin_every_direct_dependency():
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    for extra in ("train", "sklearn", "report", "tune"):
        wanted += PROJECT["optional-dependencies"][extra]
    names = {requirement.split(">")[0].split("[")[0].lower() for requirement in wanted} - {"slimbayes"}
    assert names <= pinned
