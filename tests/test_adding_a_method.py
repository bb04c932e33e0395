"""docs/adding-a-method.md, as it is done inside slimbayes: one file and one line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import slimbayes

ROOT = Path(__file__).parent.parent
USED = """
import torch, slimbayes as sb
from slimbayes.evaluation.subject import title_of

assert sb.__file__.startswith({folder!r})
net = sb.nets.MLP(8, [16], 3)
model = sb.last_layer(net, members=2)
model.save_pretrained("stored")
assert sb.load("stored", net).method == "last_layer"
method = {{"name": "last_layer", "members": 2}}
run = sb.training.fit({{"data": "iris", "net": "mlp", "method": method, "epochs": 1}}, "run", quiet=True)
assert title_of(run.model()) == "last layer, 2 members"
"""


def test_one_file_and_one_line(tmp_path):
    source = tmp_path / "slimbayes"
    shutil.copytree(Path(slimbayes.__file__).parent, source, ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs" / "adding-a-method.md").read_text()
    first = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
    (source / "methods" / "last_layer.py").write_text(first)
    registry = source / "methods" / "registry.py"
    registry.write_text(registry.read_text().replace('    "laplace",\n', '    "laplace",\n    "last_layer",\n', 1))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = USED.format(folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
