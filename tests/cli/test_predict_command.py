"""The command ``slimbayes predict``."""

import csv
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from slimbayes.cli.predict import predict
from slimbayes.training import fit
from slimbayes.training.predicting import predict_blocks, predict_file

app = typer.Typer()
app.command()(predict)
PROGRAM = "import typer; from slimbayes.cli.predict import predict; typer.run(predict)"


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def train(folder, data, net="mlp"):
    return fit({"data": data, "net": net, "epochs": 1}, folder, quiet=True)


@pytest.fixture(scope="module")
def wine(tmp_path_factory):
    return train(tmp_path_factory.mktemp("wine") / "run", "wine")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    from sklearn.datasets import load_wine

    path = tmp_path_factory.mktemp("inputs") / "x.npz"
    np.savez(path, x=load_wine().data[::9])
    return path


def read(path):
    """Read a file back by means of other libraries, as columns of Python values."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pydict()
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name].tolist() for name in arrays.files}
    if path.suffix == ".json":
        return columns_of(json.loads(path.read_text()))
    return columns_of(list(csv.DictReader(io.StringIO(path.read_text()))))


def columns_of(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def check(found, expected):
    assert list(found) == list(expected)
    for name, values in expected.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(np.array(found[name], float), values, rtol=1e-11)
        else:
            assert found[name] == values.tolist()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json", "npz"])
def test_files(tmp_path, wine, inputs, suffix):
    out = tmp_path / "new" / f"out.{suffix}"
    outcome = invoke(wine.folder, inputs, "--out", out)
    assert outcome.exit_code == 0
    assert outcome.stdout == ""
    assert outcome.stderr == f"Predictions of 20 examples, each of 8 draws: {out}\n"
    assert os.listdir(out.parent) == [out.name]
    check(read(out), predict_file(wine, inputs))


def test_without_a_file_csv_is_printed_and_nothing_else(wine, inputs):
    outcome = invoke(wine.folder, inputs)
    assert outcome.exit_code == 0
    assert outcome.stderr == ""
    assert outcome.stdout.splitlines()[0].startswith("name,label,confidence,p_class_0,p_class_1,p_class_2,entropy,")
    check(columns_of(list(csv.DictReader(io.StringIO(outcome.stdout)))), predict_file(wine, inputs))


@pytest.mark.parametrize("with_file", [False, True])
def test_json_is_printed(tmp_path, wine, inputs, with_file):
    out = tmp_path / "out.csv"
    outcome = invoke(wine.folder, inputs, "--json", *(["--out", out] if with_file else []))
    assert outcome.exit_code == 0
    assert out.exists() == with_file
    check(columns_of(json.loads(outcome.stdout)), predict_file(wine, inputs))


def test_options_reach_the_prediction(wine, inputs, monkeypatch):
    given = {}

    def note(run, path, *, progress, drawn, **options):
        given.update(options, folder=run.folder, path=path)
        return predict_blocks(run, path, **options)

    monkeypatch.setattr("slimbayes.training.predicting.predict_blocks", note)
    options = {"samples": 2, "batch_size": 3, "seed": 5, "which": "last", "level": 0.5}
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    outcome = invoke(wine.folder, inputs, "--json", *words)
    assert outcome.exit_code == 0
    monkeypatch.undo()
    assert given == {**options, "folder": wine.folder, "path": inputs}
    check(columns_of(json.loads(outcome.stdout)), predict_file(wine, inputs, **options))


def test_level_of_a_regression(tmp_path):
    from sklearn.datasets import load_diabetes

    run = train(tmp_path / "run", "diabetes")
    np.save(tmp_path / "x.npy", load_diabetes(scaled=False).data[:9])
    wide, narrow = (
        columns_of(json.loads(invoke(run.folder, tmp_path / "x.npy", "--json", "--level", level).stdout))
        for level in (0.9, 0.5)
    )
    assert wide["mean"] == narrow["mean"]
    assert all(
        low < inner < outer for low, inner, outer in zip(wide["low"], narrow["low"], narrow["high"], strict=True)
    )
    assert all(inner < outer for inner, outer in zip(narrow["high"], wide["high"], strict=True))


def test_a_table_by_a_process_of_its_own(tmp_path):
    """Nothing but the run's folder and a CSV file; no progress bar, as there is no terminal."""
    rows = "".join(f"{age},{'ABC'[age % 3]},{'yes' if age > 40 else 'no'}\n" for age in range(20, 60))
    (tmp_path / "people.csv").write_text("age,letter,retired\n" + rows)
    run = train(tmp_path / "run", {"name": "table", "path": str(tmp_path / "people.csv"), "target": "retired"})
    (tmp_path / "new.csv").write_text("letter,age\nA,25\nB,\n,55\n")
    command = [sys.executable, "-c", PROGRAM, run.folder, tmp_path / "new.csv"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert (finished.returncode, finished.stderr) == (0, "")
    found = columns_of(list(csv.DictReader(io.StringIO(finished.stdout))))
    check(found, predict_file(run, tmp_path / "new.csv"))
    assert set(found["label"]) <= {"no", "yes"}


def test_an_unfinished_run_is_told(tmp_path, inputs):
    run = train(tmp_path / "run", "wine")
    (run.folder / "result.json").unlink()
    outcome = invoke(run.folder, inputs)
    assert outcome.exit_code == 0
    assert outcome.stderr == f"slimbayes predict: the run in {run.folder} is not finished.\n"
    (run.folder / "checkpoints" / "index.json").unlink()
    outcome = invoke(run.folder, inputs)
    assert outcome.exit_code == 2
    assert "no epoch has been completed yet" in outcome.stderr


ERRORS = {
    "no run": (["{tmp}", "{inputs}"], "There is no run in {tmp}"),
    "no inputs": (["{run}", "{tmp}/none.npz"], "There is no file or folder {tmp}/none.npz"),
    "wrong inputs": (["{run}", "{tmp}/x.png"], "x.png to be an .npy or .npz file"),
    "wrong suffix": (["{run}", "{inputs}", "--out", "{tmp}/out.xlsx"], "'.csv', '.parquet', '.json', '.npz'"),
    "no suffix": (["{run}", "{inputs}", "--out", "{tmp}/out"], "suffix of --out"),
    "a folder": (["{run}", "{inputs}", "--out", "{tmp}/a.csv"], "is a folder"),
    "level": (["{run}", "{inputs}", "--level", "90"], "`level`"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_one_line(tmp_path, wine, inputs, case):
    (tmp_path / "x.png").write_bytes(b"")
    (tmp_path / "a.csv").mkdir()
    places = {"tmp": tmp_path, "run": wine.folder, "inputs": inputs}
    arguments, message = ERRORS[case]
    outcome = invoke(*(argument.format(**places) for argument in arguments))
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("slimbayes predict: ")
    assert outcome.stderr.count("\n") == 1
    assert message.format(**places) in outcome.stderr
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "x.png"]


def test_a_failed_write_keeps_the_older_file(tmp_path, wine, inputs, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    out = tmp_path / "out.csv"
    out.write_text("older")
    monkeypatch.setattr(os, "replace", full)
    outcome = invoke(wine.folder, inputs, "--out", out)
    assert outcome.exit_code == 2
    assert "no space left" in outcome.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.csv", "older")]


def test_names_that_csv_must_quote(tmp_path):
    kinds = ['"old, ""very"""', "né"]
    rows = "".join(f"{age},{kinds[age % 2]}\n" for age in range(20, 60))
    (tmp_path / "people.csv").write_text("age,kind\n" + rows, encoding="utf-8")
    run = train(tmp_path / "run", {"name": "table", "path": str(tmp_path / "people.csv"), "target": "kind"})
    for suffix in ("csv", "json", "npz", "parquet"):
        out = tmp_path / f"out.{suffix}"
        assert invoke(run.folder, tmp_path / "people.csv", "--out", out).exit_code == 0
        found = read(out)
        check(found, predict_file(run, tmp_path / "people.csv"))
        assert set(found["label"]) <= {'old, "very"', "né"}
        assert {'p_old, "very"', "p_né"} <= set(found)


def test_help_teaches_with_examples_and_needs_no_torch():
    outcome = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert outcome.exit_code == 0
    for word in (
        "slimbayes predict runs/houses new.csv --out prices.csv --level 0.95",
        "mutual_information",
        "--which",
    ):
        assert word in outcome.stdout
    program = "import sys; import slimbayes.cli.predict; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
