"""Speed has a room of its own: one place asks for it, and without it everything works."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import slimbayes

SOURCE = Path(slimbayes.__file__).parent
STEPS = """
import torch, slimbayes as sb
assert sb.__file__.startswith({folder!r})
x, y = torch.randn(64, 1, 8), torch.randint(3, (64,))
for make in (sb.rank1, sb.batch_ensemble, sb.mean_field, sb.k_tied, sb.mc_dropout, sb.swag):
    convolution = torch.nn.Conv1d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten()
    net = torch.nn.Sequential(*convolution, torch.nn.Linear(24, 600), torch.nn.ReLU(), torch.nn.Linear(600, 3))
    options = {{"estimator": "local"}} if make in (sb.mean_field, sb.k_tied) else {{}}
    model = make(net, **options)
    elbo = sb.ELBO(model, num_data=64)
    optimiser = torch.optim.Adam(model.param_groups(lr=1e-3))
    elbo(model(x), y).backward()
    optimiser.step()
    model.save_pretrained("stored")
    again = sb.load("stored", net)
    assert torch.equal(again.predict(x, samples=0).probs, model.predict(x, samples=0).probs)
"""


def test_with_the_folder_deleted_everything_works(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "slimbayes", ignore=shutil.ignore_patterns("_fast", "__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = STEPS.format(folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)


def test_one_place_asks_for_it():
    asking = set()
    for path in SOURCE.rglob("*.py"):
        if "_fast" in path.relative_to(SOURCE).parts:
            continue
        if any(names_fast(node) for node in ast.walk(ast.parse(path.read_text()))):
            asking.add(path.relative_to(SOURCE).as_posix())
    assert asking == {"layers/base.py"}


def names_fast(node):
    """Tell whether a piece of code imports the folder, or has its name in a string of its own."""
    names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{name}" for name in names]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        names = [node.value]
    return any(re.fullmatch(r"slimbayes\._fast[\w.]*", name) for name in names)


def test_tests_and_laboratory_do_without_it_too():
    root = Path(__file__).parent.parent
    for path in (path for folder in ("tests", "benchmarks", "reproductions") for path in (root / folder).rglob("*.py")):
        if path.is_relative_to(root / "tests" / "_fast") or ".venv" in path.parts:
            continue
        tree = ast.parse(path.read_text())
        tried = {id(node) for block in ast.walk(tree) if isinstance(block, ast.Try) for node in ast.walk(block)}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and names_fast(node):
                assert id(node) in tried, f"{path} imports slimbayes._fast, which may be deleted"
