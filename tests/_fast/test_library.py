"""The compiled kernels: found, and refused where they are not the ones that were installed."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from compiled_kernels import needs_kernels
from slimbayes._fast import library
from slimbayes._fast.library import kernel, status


@pytest.fixture
def copied(monkeypatch, tmp_path):
    """A copy of the folder with the library, to be changed."""
    folder = tmp_path / "native"
    shutil.copytree(library.FOLDER, folder)
    monkeypatch.setattr(library, "FOLDER", folder)
    monkeypatch.setattr(library, "source_hash", lambda source_hash=library.source_hash: source_hash(folder))
    monkeypatch.setattr(library, "_library", library._library.__wrapped__)
    return folder


def test_with_a_compiler_on_the_path_the_kernels_are_used():
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    assert status() == "used"


@needs_kernels
def test_a_copy_is_as_good(copied):
    assert library.status() == "used"


@needs_kernels
@pytest.mark.parametrize("missing", [library.LIBRARY, library.HASHES])
def test_a_folder_without_a_library(copied, missing):
    (copied / missing).unlink()
    assert library.status().startswith("not there")
    assert library.kernel("scale", torch.float32) is None


@needs_kernels
def test_another_library_is_not_loaded(copied, monkeypatch):
    with (copied / library.LIBRARY).open("ab") as file:
        file.write(b"more")
    monkeypatch.setattr(library.ctypes, "CDLL", lambda path: pytest.fail("it was loaded"))
    assert "is not the file that was installed" in library.status()
    assert library.kernel("scale", torch.float32) is None


@needs_kernels
def test_a_library_of_other_sources(copied):
    with (copied / "rows.inc").open("a") as file:
        file.write("/* changed */")
    assert "was compiled from other sources" in library.status()
    assert library.kernel("scale", torch.float32) is None


@needs_kernels
def test_a_library_that_cannot_be_loaded(copied):
    (copied / library.LIBRARY).write_text("not a library")
    hashes = json.loads((copied / library.HASHES).read_text())
    hashes["library"] = library.hashlib.sha256(b"not a library").hexdigest()
    (copied / library.HASHES).write_text(json.dumps(hashes))
    assert "cannot be loaded" in library.status()
    assert library.kernel("scale", torch.float32) is None


@needs_kernels
def test_kernels_of_three_types_and_no_other():
    for name in ("scale", "scale_back"):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            assert kernel(name, dtype) is not None
        for dtype in (torch.float16, torch.int64):
            assert kernel(name, dtype) is None
    assert kernel("other", torch.float32) is None


STEP = """
import torch, slimbayes as sb
from slimbayes.layers import base
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(2, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32, 3))
model = sb.rank1(net, members=2, noise="shared")
x, y = torch.randn(6, 2, 4, 4), torch.arange(6) % 3
sb.ELBO(model, 10)(model(x), y).backward()
print(base._fast is None, *(p.grad.norm().item() for p in model.parameters() if p.grad is not None))
"""


def test_the_switch_of_a_process():
    found = []
    for setting in ("0", "1"):
        environment = {**os.environ, "SLIMBAYES_NO_FAST": setting}
        run = subprocess.run([sys.executable, "-c", STEP], env=environment, capture_output=True, text=True, check=True)
        off, *norms = run.stdout.split()
        assert off == str(setting == "1")
        found.append(torch.tensor([float(norm) for norm in norms]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)
