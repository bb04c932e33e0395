"""Preparations are found again from what a run stores."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import slimbayes.data
from slimbayes.data.preparation import _MODULES, PREPARATIONS, Arrays, get_preparation


def test_every_kind_is_found_without_importing_its_loader_first():
    for path in Path(slimbayes.data.__file__).parent.glob("*.py"):
        import_module(f"slimbayes.data.{path.stem}" if path.stem != "__init__" else "slimbayes.data")
    known = {
        kind: cls.__module__.rpartition(".")[2] for kind, cls in PREPARATIONS.items() if "slimbayes" in cls.__module__
    }
    assert known == {**_MODULES, "arrays": "preparation"}


def test_a_stored_preparation_in_a_new_process():
    spec = {"kind": "images", "mean": [0.5], "std": [0.5], "size": [1, 1], "zoom": 1.0}
    code = f"from slimbayes.data.preparation import get_preparation; print(get_preparation({spec}).spec() == {spec})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"


def test_unknown_kinds_are_named():
    with pytest.raises(ValueError, match=r"`kind`.*'arrys'.*Did you mean 'arrays'"):
        get_preparation({"kind": "arrys"})


X, Z = np.arange(6.0).reshape(3, 2), np.arange(3)
FILES = {
    "npy": (lambda path: np.save(path, X), [X]),
    "one array of any name": (lambda path: np.savez(path, inputs=X), [X]),
    "x among others": (lambda path: np.savez(path, a=Z, x=X, y=Z), [X]),
    "big-endian": (lambda path: np.savez(path, x=X.astype(">f8")), [X]),
    "several": (lambda path: np.savez(path, x1=Z, x0=X, y=Z), [X, Z]),
}


@pytest.mark.parametrize("name", FILES)
def test_arrays(name, tmp_path):
    write, expected = FILES[name]
    path = tmp_path / ("a.npy" if name == "npy" else "a.npz")
    write(path)
    inputs, names = Arrays().read(path)
    assert names == ["0", "1", "2"]
    assert len(inputs) == len(expected)
    for found, array in zip(inputs, expected, strict=True):
        np.testing.assert_array_equal(found, array)
    assert inputs[0].dtype == torch.float32


def test_broken_arrays_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", x0=X, x1=np.arange(4))
    np.save(tmp_path / "b.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a\.npz.*one row for each example"):
        Arrays().read(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"b\.npy.*plain arrays.*Python objects"):
        Arrays().read(tmp_path / "b.npy")
    np.save(tmp_path / "d.npy", np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match=r"d\.npy.*not finite"):
        Arrays().read(tmp_path / "d.npy")
    np.save(tmp_path / "e.npy", np.array(["a"]))
    with pytest.raises(ValueError, match=r"e\.npy.*should hold numbers.*<U1"):
        Arrays().read(tmp_path / "e.npy")
    (tmp_path / "f.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(ValueError, match=r"f\.npz"):
        Arrays().read(tmp_path / "f.npz")
    with pytest.raises(FileNotFoundError, match=r"g\.npz"):
        Arrays().read(tmp_path / "g.npz")
    with pytest.raises(ValueError, match=r"c\.csv.*arrays"):
        Arrays().read(tmp_path / "c.csv")


@pytest.mark.parametrize("names", [("a", "b"), ("y", "images"), ("x0", "x2"), ("x", "x0"), ("x_test", "y_test")])
def test_arrays_that_could_be_either_are_refused(names, tmp_path):
    np.savez(tmp_path / "a.npz", **dict.fromkeys(names, X))
    with pytest.raises(ValueError, match=rf"a\.npz.*called x, or x0, x1.*but holds {', '.join(names)}"):
        Arrays().read(tmp_path / "a.npz")
