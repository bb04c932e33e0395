"""Tables of any length are predicted some rows at a time: the same results and errors, in bounded memory."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import slimbayes.cli.predict as command
from slimbayes.cli.app import app
from slimbayes.data import _table_file
from slimbayes.data._table_file import open_table_file, read_table_file
from slimbayes.training import fit, predicting
from slimbayes.training.predicting import predict_file

ROWS = 100


def columns(rows: int = ROWS) -> dict:
    rng = np.random.default_rng(0)
    size, age = rng.normal(size=rows), rng.integers(0, 90, rows).astype(float)
    return {
        "size": pa.array(size.round(3)),
        "age": pa.array(age, mask=rng.random(rows) < 0.2),
        "town": pa.array(rng.choice(["Bath", "York", ""], rows)),
        "since": pa.array([f"20{year:02}-01-31" for year in rng.integers(0, 30, rows)]),
        "kind": pa.array(np.where(size > 0, "=big", "small")),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    pyarrow.csv.write_csv(pa.table(columns()), folder / "train.csv")
    data = {"name": "table", "path": str(folder / "train.csv"), "target": "kind"}
    return fit({"data": data, "net": {"name": "mlp", "hidden": [8]}, "epochs": 1}, folder / "run", quiet=True)


def small(monkeypatch, rows: int = 2048) -> None:
    """Read a few lines at a time, predict for a few rows, and write some rows at a time."""
    monkeypatch.setattr(_table_file, "_BLOCK", 100)
    monkeypatch.setattr(_table_file, "_ROWS", 9)
    monkeypatch.setattr(predicting, "BLOCK", rows)
    monkeypatch.setattr(command, "ROW_GROUP", 20)


def lines(separator: str = ",", comma: int = ROWS, since: str = "{}") -> list[str]:
    """Lines of a CSV file whose sizes are whole before row ``comma`` and have decimal commas from there on."""
    named = {name: values.to_pylist() for name, values in columns().items()}
    found = [separator.join(named)]
    for row in range(ROWS):
        size, age, town, day, kind = (values[row] for values in named.values())
        size = str(size).replace(".", ",") if row >= comma else round(size) if comma < ROWS else size
        town = "Ely" if row == 95 else town
        found.append(separator.join(["" if x is None else str(x) for x in (size, age, town, since.format(day), kind)]))
    return found


def invoke(run, path, out):
    where = ["--out", str(out)] if out else []
    return CliRunner().invoke(app, ["predict", str(run.folder), str(path), *where])


def write(path, content: list[str]) -> None:
    path.write_text("\n".join(content) + "\n")


@pytest.mark.filterwarnings("ignore:.*decimal commas")
@pytest.mark.parametrize("suffix", ["csv", "parquet", "json", "npz"])
@pytest.mark.parametrize("source", ["csv", "semicolons", "late commas", "gzip", "parquet", "row groups", "one row"])
def test_blocks_change_nothing(tmp_path, run, monkeypatch, source, suffix):
    path = tmp_path / ("new.parquet" if source in ("parquet", "row groups") else "new.csv")
    write(path, lines(";" if source in ("semicolons", "late commas") else ",", 90 if source == "late commas" else ROWS))
    if source == "gzip":
        path = tmp_path / "new.csv.gz"
        path.write_bytes(gzip.compress((tmp_path / "new.csv").read_bytes()))
    elif source == "one row":
        write(path, lines()[:2])
    elif source in ("parquet", "row groups"):
        table = pa.table(columns()).append_column("other", pa.array(range(ROWS)))
        table = table.set_column(2, "town", table.column("town").dictionary_encode())
        pq.write_table(table, path, row_group_size=7 if source == "row groups" else None)
    out = tmp_path / f"out.{suffix}"
    assert invoke(run, path, out).exit_code == 0
    whole, expected = out.read_bytes(), predict_file(run, path)
    small(monkeypatch)
    assert invoke(run, path, out).exit_code == 0
    if suffix == "parquet":
        # The names' numbers of digits differ between groups of rows, and nothing else.
        assert pq.read_table(out).equals(pq.read_table(pa.BufferReader(whole)))
        assert source == "one row" or pq.ParquetFile(out).num_row_groups == 1
    else:
        assert out.read_bytes() == whole
    small(monkeypatch, 7)
    found = predict_file(run, path)
    assert list(found) == list(expected)
    for name, values in expected.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)
        else:
            assert found[name].tolist() == values.tolist()
    assert invoke(run, path, out).exit_code == 0
    if suffix == "parquet" and source != "one row":
        assert pq.ParquetFile(out).num_row_groups == 5  # of 21 rows, three blocks
        assert pq.read_table(out)["name"].to_pylist() == expected["name"].tolist()


def test_commas_that_show_late_are_read_as_in_a_whole_file(tmp_path, run, monkeypatch):
    path = tmp_path / "new.csv"
    write(path, lines(";", 90))
    small(monkeypatch, 7)
    with pytest.warns(UserWarning, match="the numbers of 'size' have decimal commas") as caught:
        features = [block.inputs[0] for block in run.preparation.open(path).blocks(7)]
    assert len(caught) == 1
    scale = run.preparation.columns[0]
    sizes = np.array(columns()["size"])
    expected = np.where(np.arange(ROWS) < 90, sizes.round(), sizes)
    found = np.concatenate(features)[:, 0] * scale.std + scale.mean
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_rows_of_blocks_are_counted_from_the_files_first(tmp_path, run, monkeypatch):
    path = tmp_path / "new.csv"
    write(path, lines())
    small(monkeypatch)
    seen = {}
    list(predicting.predict_blocks(run, path, progress=seen.setdefault))
    assert list(seen) == [ROWS]
    monkeypatch.setattr(predicting, "BLOCK", 30)
    blocks = list(predicting.predict_blocks(run, path, progress=seen.setdefault))
    assert seen == {30: ROWS, 60: ROWS, 90: ROWS, 100: ROWS}
    assert [block["name"][0] for block in blocks] == ["0", "30", "60", "90"]


#: What is done to the lines, and what the error says.
BAD = {
    "a word": (lambda c: [*c, "tall,3,Bath,2001-01-31,small"], ["'size'", "in row 100, counted from 0", "'tall'"]),
    "infinity": (lambda c: [*c, "inf,3,Bath,2001-01-31,small"], ["'size' has 'inf' in row 100, counted from 0"]),
    "a date": (lambda c: [*c, "1,3,Bath,yesterday,small"], ["'since'", "in row 100, counted from 0", "'yesterday'"]),
    "a time zone": (
        lambda c: [*c, "1,3,Bath,2001-01-31T12:00:00Z,small"],
        ["'since' has dates with and without a time zone", "row"],
    ),
    "too many fields": (lambda c: [*c, "1,3,Bath,2001-01-31,small,6"], ["Expected 5 columns, got 6"]),
    "thousands": (lambda c: [*c, '"1,234",3,Bath,2001-01-31,small'], ["column 'size'", "'1,234'", "decimal point"]),
    "no column": (lambda c: [line.partition(",")[2] for line in c], ["lacks the column 'size'", "nearest"]),
    "no rows": (lambda c: c[:1], ["holds no examples"]),
}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json", None])
@pytest.mark.parametrize("name", BAD)
def test_errors_name_the_row_and_leave_nothing(tmp_path, run, monkeypatch, name, suffix):
    change, words = BAD[name]
    path = tmp_path / "new.csv"
    write(path, change(lines()))
    small(monkeypatch, 10)
    outcome = invoke(run, path, tmp_path / f"out.{suffix}" if suffix else None)
    told = " ".join(outcome.stderr.split())
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert f"slimbayes predict: {path}" in told
    assert [word for word in words if word not in told] == [], told
    assert os.listdir(tmp_path) == ["new.csv"]


def test_an_empty_file_and_one_that_is_not_utf_8(tmp_path, run, monkeypatch):
    small(monkeypatch, 10)
    path = tmp_path / "new.csv"
    path.write_bytes(b"\n\n")
    assert "new.csv cannot be read as CSV: it is empty" in invoke(run, path, None).stderr
    path.write_bytes("\n".join(lines()).encode() + "\n1,2,é".encode("latin-1"))
    assert f"line {ROWS + 2} is not UTF-8 text (byte 0xe9)" in invoke(run, path, None).stderr
    pq.write_table(pa.table(columns()).slice(0, 0), tmp_path / "new.parquet")
    assert "new.parquet holds no examples" in invoke(run, tmp_path / "new.parquet", None).stderr


def test_a_bad_value_of_a_late_row_group_of_parquet(tmp_path, run, monkeypatch):
    small(monkeypatch, 10)
    table = pa.table(columns())
    sizes = [*table["size"].to_pylist()[:-1], float("inf")]
    pq.write_table(table.set_column(0, "size", pa.array(sizes)), tmp_path / "new.parquet", row_group_size=8)
    outcome = invoke(run, tmp_path / "new.parquet", tmp_path / "out.csv")
    assert "'size' has inf in row 99, counted from 0" in " ".join(outcome.stderr.split())
    assert os.listdir(tmp_path) == ["new.parquet"]


def test_what_an_earlier_run_has_written_stays(tmp_path, run, monkeypatch):
    small(monkeypatch, 10)
    write(tmp_path / "new.csv", [*lines(), "inf,3,Bath,2001-01-31,small"])
    (tmp_path / "out.csv").write_text("older")
    assert invoke(run, tmp_path / "new.csv", tmp_path / "out.csv").exit_code == 2
    assert (tmp_path / "out.csv").read_text() == "older"
    assert sorted(os.listdir(tmp_path)) == ["new.csv", "out.csv"]


def test_a_class_that_looks_like_a_formula_is_quoted_in_every_block(tmp_path, run, monkeypatch):
    small(monkeypatch, 10)
    write(tmp_path / "new.csv", lines())
    assert invoke(run, tmp_path / "new.csv", tmp_path / "out.csv").exit_code == 0
    labels = [line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert len(labels) == ROWS
    assert set(labels) <= {"'=big", "small"}


def test_a_row_longer_than_a_block_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(_table_file, "_BLOCK", 64)
    (tmp_path / "my.csv").write_text(f'a,b\n1,x\n2,"{"y" * 1000}"\n3,z\n')
    table = read_table_file(tmp_path / "my.csv")
    assert [len(text) for text in table.columns["b"].to_pylist()] == [1, 1000, 1]


@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_blocks_of_rows(tmp_path, monkeypatch, size):
    small(monkeypatch)
    write(tmp_path / "my.csv", ["a,b", *(f"{row},{row * row}" for row in range(10))])
    reader = open_table_file(tmp_path / "my.csv")
    blocks = list(reader.blocks(size, ["b"]))
    assert (reader.rows, reader.names) == (10, ["a", "b"])
    assert [len(block.rows) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert np.concatenate([block.rows for block in blocks]).tolist() == list(range(10))
    assert {name for block in blocks for name in block.columns} == {"b"}
    assert [int(x) for block in blocks for x in block.columns["b"].to_pylist()] == [row * row for row in range(10)]


PROGRAM = """
import json, resource, sys
from slimbayes.cli.app import app
from slimbayes.data._table_file import pyarrow
from slimbayes.training import predicting
from slimbayes.training.run import Run

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

pyarrow()
Run.open(sys.argv[1]).model("best")
before = peak()
app(["predict", *sys.argv[1:]], standalone_mode=False)
print(json.dumps(peak() - before))
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_of_half_a_million_rows(tmp_path, suffix):
    rng, rows = np.random.default_rng(0), 500_000
    table = {f"x{number}": rng.normal(size=rows) for number in range(8)}
    table |= {"town": rng.choice(["Bath", "York", ""], rows), "y": np.where(table["x0"] > 0, "yes", "no")}
    table = pa.table(table)
    pyarrow.csv.write_csv(table.slice(0, 1000), tmp_path / "train.csv")
    if suffix == "csv":
        pyarrow.csv.write_csv(table, tmp_path / "new.csv")
    else:
        pq.write_table(table, tmp_path / "new.parquet")
    data = {"name": "table", "path": str(tmp_path / "train.csv"), "target": "y"}
    run = fit({"data": data, "net": {"name": "mlp", "hidden": [16]}, "epochs": 1}, tmp_path / "run", quiet=True)
    out = tmp_path / f"out.{suffix}"
    arguments = map(str, [sys.executable, "-c", PROGRAM, run.folder, tmp_path / f"new.{suffix}", "--out", out])
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(arguments), env=one_thread, capture_output=True, text=True, check=True)
    # Measured: 77 to 86 MiB for CSV, 103 to 112 MiB for Parquet. Before tables were streamed: 660 and 310 MiB.
    assert json.loads(done.stdout) < 150
    written = pyarrow.csv.read_csv(out) if suffix == "csv" else pq.read_table(out)
    assert written.num_rows == rows
