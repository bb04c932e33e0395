"""The experiment scripts run, resume, and their documents show what is stored."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def low_rank_mnist(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    import low_rank_mnist

    return low_rank_mnist


def write_idx(path, array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + array.tobytes())


@pytest.fixture
def digits(tmp_path):
    """Return a folder with a few dozen digits in MNIST's own format: bright where the label says."""
    folder, random = tmp_path / "mnist", np.random.default_rng(0)
    folder.mkdir()
    for name, count in (("train", 600), ("t10k", 60)):
        labels = random.integers(0, 10, count, dtype=np.uint8)
        images = random.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        images[np.arange(count), labels, :] = 255
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels)
    return tmp_path


def test_a_small_run_is_stored_and_not_repeated(low_rank_mnist, digits, capsys):
    out = digits / "results"
    arguments = ["--data", str(digits), "--out", str(out), "--seeds", "1", "--workers", "1", "--smoke"]
    low_rank_mnist.main(arguments)
    runs = sorted((out / "runs").iterdir())
    assert [path.stem for path in runs] == [
        "gradients-1-tied-0",
        "gradients-2-tied-0",
        "gradients-3-tied-0",
        "gradients-mean_field-0",
        "structure-mean_field-0",
    ]
    stored = json.loads(runs[-1].read_text())
    assert stored["parameters"] == 956_820
    assert sum(stored["spectra"]["dense 3"]["sigma"]) == pytest.approx(1)  # all ten singular values
    assert set(stored["test"]) == {"mean-field", "rank 1", "rank 2", "rank 3"}
    before = [path.stat().st_mtime_ns for path in runs]
    runs[0].unlink()
    low_rank_mnist.main(arguments)
    assert [path.stat().st_mtime_ns for path in runs[1:]] == before[1:]
    assert runs[0].exists()
    summary = json.loads((out / "summary.json").read_text())
    assert low_rank_mnist.tables(summary) in capsys.readouterr().out
    assert (out / "spectra-and-snr.svg").stat().st_size > 10_000


def test_the_document_shows_the_stored_summary_and_claims_what_holds(low_rank_mnist):
    folder = ROOT / "experiments" / "results" / "low-rank-mnist"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["commit"]
    assert not summary["commit"].endswith("dirty")
    assert low_rank_mnist.tables(summary) in (ROOT / "docs" / "low-rank-mnist.md").read_text()
    structure, gradients = summary["table"]["structure"], summary["table"]["gradients"]
    for share in structure["share_of_first_two"].values():
        assert share["sigma"]["mean"] > 0.9
        assert share["mean"]["mean"] < 0.5
    exact, tied = (structure["test"][name]["accuracy"]["mean"] for name in ("mean-field", "rank 2"))
    assert tied == pytest.approx(exact, abs=0.002)
    of_models = {method: row["snr_of_model"]["mean"] for method, row in gradients.items()}
    assert [round(of_models[f"{k}-tied"] / of_models["mean_field"]) for k in (1, 2, 3)] == [106, 125, 123]
    for layer in ("dense 1", "dense 2"):
        for kind in ("layer", "median"):
            ratios = {method: row["snr"][layer][kind]["mean"] for method, row in gradients.items()}
            assert all(ratios[f"{k}-tied"] > 10 * ratios["mean_field"] for k in (1, 2, 3))


def test_the_document_says_how_fast_corruptions_were():
    stored = json.loads((ROOT / "experiments" / "results" / "corruption-speed.json").read_text())
    rates = stored["images_per_second"]
    slowest = min(rates, key=rates.get)
    page = (ROOT / "docs" / "corruptions.md").read_text()
    assert f"{stored['common']:,.0f} images a second over the 15 common types" in page
    assert f"{rates[slowest]:,.0f} of the slowest\n(`{slowest}`)" in page
    assert "dirty" not in stored["commit"]
