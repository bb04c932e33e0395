"""Grids: which cells there are, what is run and what is not, and the table of results."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import torch
import yaml

from slimbayes._files import write_json
from slimbayes.training import Run, fit
from slimbayes.training._cells import cells_of
from slimbayes.training._grid_file import read_grid
from slimbayes.training._grid_table import GridTable
from slimbayes.training.grid import is_grid, run_grid
from slimbayes.training.lock import FolderInUse, alone_in

BASE = {"data": "digits", "net": {"name": "mlp", "hidden": [8]}, "method": "deterministic", "epochs": 2}
LONG = {"base": {**BASE, "epochs": 90, "batch_size": 16}, "methods": ["deterministic", "batch_ensemble"]}
PARTS = ("validation", "test")
CALL = "import sys; from slimbayes.training.grid import run_grid; run_grid(sys.argv[1], sys.argv[2], workers=2)"


def cells(grid, *words):
    return cells_of(read_grid({"base": BASE, **grid}, words))


def weights(folder, which="last"):
    return (Run(folder).checkpoints.path(which) / "model.safetensors").read_bytes()


# ---------------------------------------------------------------------- which cells there are


def test_cells_are_those_of_a_hand_written_list(tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))
    (tmp_path / "grid.yaml").write_text(
        """
        base: base.yaml
        methods: {k_tied: , wide: {name: rank1, members: 8}, plain: deterministic}
        seeds: [3, 5]
        overrides: {slow: {optimiser.lr: 1e-4, net.hidden: [4, 4]}, sgd: {optimiser: {name: sgd}}}
        """
    )

    def told(name, config):
        method, optimiser, hidden = config.method, config.optimiser, config.net.options["hidden"]
        return name, method.name, method.options, optimiser.name, optimiser.lr, hidden, config.seed, config.epochs

    assert [told(cell.name, cell.config) for cell in cells_of(read_grid(tmp_path / "grid.yaml"))] == [
        ("k_tied-slow-seed3", "k_tied", {}, "adam", 1e-4, [4, 4], 3, 2),
        ("k_tied-slow-seed5", "k_tied", {}, "adam", 1e-4, [4, 4], 5, 2),
        ("k_tied-sgd-seed3", "k_tied", {}, "sgd", 1e-3, [8], 3, 2),
        ("k_tied-sgd-seed5", "k_tied", {}, "sgd", 1e-3, [8], 5, 2),
        ("wide-slow-seed3", "rank1", {"members": 8}, "adam", 1e-4, [4, 4], 3, 2),
        ("wide-slow-seed5", "rank1", {"members": 8}, "adam", 1e-4, [4, 4], 5, 2),
        ("wide-sgd-seed3", "rank1", {"members": 8}, "sgd", 1e-3, [8], 3, 2),
        ("wide-sgd-seed5", "rank1", {"members": 8}, "sgd", 1e-3, [8], 5, 2),
        ("plain-slow-seed3", "deterministic", {}, "adam", 1e-4, [4, 4], 3, 2),
        ("plain-slow-seed5", "deterministic", {}, "adam", 1e-4, [4, 4], 5, 2),
        ("plain-sgd-seed3", "deterministic", {}, "sgd", 1e-3, [8], 3, 2),
        ("plain-sgd-seed5", "deterministic", {}, "sgd", 1e-3, [8], 5, 2),
    ]


@pytest.mark.parametrize(
    ("grid", "words", "names"),
    [
        ({}, [], ["deterministic-seed0"]),
        ({"base": {**BASE, "seed": 7}}, [], ["deterministic-seed7"]),
        ({"methods": ["rank1"], "seeds": 2}, [], ["rank1-seed0", "rank1-seed1"]),
        ({"seeds": 1}, ["seeds=[4]", "base.epochs=1"], ["deterministic-seed4"]),
        ({"overrides": {"a": {}}}, ["method=k_tied"], ["k_tied-a-seed0"]),
    ],
)
def test_what_is_not_said_comes_from_the_base(grid, words, names):
    assert [cell.name for cell in cells(grid, *words)] == names


def test_words_reach_every_cell():
    assert {cell.config.epochs for cell in cells({"methods": ["rank1", "k_tied"]}, "epochs=9")} == {9}


def test_a_grid_is_told_by_its_base():
    assert is_grid({"base": BASE})
    assert not is_grid(BASE)


@pytest.mark.parametrize(
    ("grid", "words", "faults"),
    [
        ({"seed": 3}, [], ["seed: there is no such key. Did you mean 'seeds'?"]),
        ({"seeds": [1, 1]}, [], ["seeds: give each seed once"]),
        ({"seeds": 0}, [], ["seeds:"]),
        ({"methods": []}, [], ["methods:"]),
        ({"methods": ["rank1", "rank1"]}, [], ["give each name once"]),
        ({"methods": {"a/b": "rank1"}}, [], ["the title 'a/b' becomes part of a folder's name"]),
        ({"overrides": {"a": {"seed": 1}}}, [], ["'a' sets `seed`, which goes under `seeds`"]),
        ({"methods": ["rank_1"]}, [], ["rank_1-seed0", "Did you mean 'rank1'?"]),
        (
            {"methods": {"a": "rank1", "a-b": "rank1"}, "overrides": {"b-c": {}, "c": {}}},
            [],
            ["a-b-c-seed0: two cells"],
        ),
        ({"seeds": 2}, ["seed=1"], ["'seed=1' would change nothing: the grid has its own `seeds`"]),
        (
            {"seeds": 2, "overrides": {"a": {"optimiser.l": 1}, "b": {"epochs": 0}}},
            [],
            ["deterministic-a-seed0 and 1 more", "Did you mean 'lr'?", "deterministic-b-seed0 and 1 more", "epochs:"],
        ),
    ],
)
def test_faults_are_told_before_anything_runs(tmp_path, grid, words, faults):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        run_grid({"base": BASE, **grid}, tmp_path / "out", overrides=words)
    assert all(fault in str(error.value) for fault in faults), str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("argument", "value"), [("on", "rey"), ("workers", 0)])
def test_arguments_are_checked(tmp_path, argument, value):
    with pytest.raises(ValueError, match=f"`{argument}`"):
        run_grid({"base": BASE}, tmp_path / "out", **{argument: value})


def test_missing_ray_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "slimbayes\[cluster\]"'):
        run_grid({"base": BASE}, tmp_path / "out", on="ray")


# ---------------------------------------------------------------------- the table


def test_table_has_numpys_means_and_standard_errors(tmp_path):
    rng = np.random.default_rng(0)
    grid = cells({"methods": ["rank1", "k_tied"], "seeds": 4})
    table = GridTable(tmp_path, grid)
    scores = {}
    for cell in grid[:-3]:  # k_tied has one seed only
        scores[cell.name] = {part: dict(zip(["nll", "accuracy", "ece"], rng.random(3), strict=True)) for part in PARTS}
        (tmp_path / cell.name).mkdir()
        write_json(tmp_path / cell.name / "result.json", {**scores[cell.name], "seconds": 1.5})
        table.set_finished(cell.name)
    table.set_failed("k_tied-seed3", "ValueError: no")
    table.write()
    rank1, k_tied = json.loads((tmp_path / "results.json").read_text())["means"]
    for part in PARTS:
        for key in ("nll", "accuracy", "ece"):
            values = np.array([scores[f"rank1-seed{seed}"][part][key] for seed in range(4)])
            error = values.std(ddof=1) / np.sqrt(4)
            assert rank1[part][key] == pytest.approx({"mean": values.mean(), "error": error})
            assert k_tied[part][key] == {"mean": scores["k_tied-seed0"][part][key], "error": None}
            assert f"{values.mean():.4f} ± {error:.4f}" in str(table)
            assert f"{values.mean():.4f} ± {error:.4f}" in (tmp_path / "results.md").read_text()
    assert "1 of 4" in str(table)
    assert f"k_tied-seed3 failed: ValueError: no (log: {tmp_path}/k_tied-seed3/log.txt)" in str(table)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["finished"] * 5 + ["unfinished"] * 2 + ["failed"]
    assert float(rows[2]["test_ece"]) == scores["rank1-seed2"]["test"]["ece"]
    assert rows[7]["error"] == "ValueError: no"


def test_a_message_in_the_csv_is_no_formula(tmp_path):
    table = GridTable(tmp_path, cells({"methods": ["rank1"]}))
    table.set_failed("rank1-seed0", "=cmd|' /C calc'!A0")
    table.write()
    with (tmp_path / "results.csv").open() as file:
        assert next(csv.DictReader(file))["error"] == "'=cmd|' /C calc'!A0"


@pytest.mark.parametrize("finished", [1, 2])
def test_cells_of_other_data_are_not_put_into_one_table(tmp_path, finished):
    """Neither those of an earlier call, nor those that began after the file had changed."""

    def write(rows):
        (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{row % 7},{row / 8}\n" for row in range(rows)))

    data = {"name": "table", "path": str(tmp_path / "t.csv"), "target": "y"}
    base = {"data": data, "net": {"name": "mlp", "hidden": [2]}, "epochs": 1}
    grid = {"base": base, "methods": ["deterministic"], "seeds": finished}
    write(50)
    assert not run_grid(grid, tmp_path / "out", quiet=True).failed
    write(80)
    with pytest.raises(ValueError, match="Nothing was run.*\n.*deterministic-seed0: .*train had 35 rows, now 56"):
        run_grid({**grid, "seeds": 2}, tmp_path / "out", quiet=True)
    table = GridTable(tmp_path / "out", cells({**grid, "seeds": 2}))
    fit({**base, "method": "deterministic", "seed": 1}, tmp_path / "out" / "other", quiet=True)
    shutil.rmtree(tmp_path / "out" / "deterministic-seed1", ignore_errors=True)
    (tmp_path / "out" / "other").rename(tmp_path / "out" / "deterministic-seed1")
    for name in table.rows:
        table.set_finished(name)
    (failed,) = table.failed
    assert failed["folder"] == "deterministic-seed1"
    assert "trained on other data than deterministic-seed0: train had 35 rows, now 56" in failed["error"]
    assert table.means()[0]["finished"] == 1


# ---------------------------------------------------------------------- what is run


@pytest.fixture(scope="module")
def own_net(tmp_path_factory):
    """A module of one's own, whose network cannot be built until a file is there."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "net_of_ones_own.py").write_text(
        "from pathlib import Path\n"
        "from slimbayes.nets import MLP\n"
        "def build():\n"
        "    if not Path(__file__).with_name('ready').exists():\n"
        "        raise RuntimeError('no network\\nyet')\n"
        "    return MLP(64, [4], 10)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


GRID = {"base": BASE, "overrides": {"good": {}, "bad": {"net": "net_of_ones_own:build"}}}


@pytest.fixture(scope="module")
def ran(own_net, tmp_path_factory):
    """A grid of which one cell fails; its folder, its table and the calls of its callback."""
    out, calls = tmp_path_factory.mktemp("grid") / "out", []
    table = run_grid(GRID, out, workers=2, progress=lambda *count: calls.append(count))
    return out, table, calls


def test_a_failed_cell_does_not_stop_the_others(ran):
    out, table, calls = ran
    good, bad = (table.rows[f"deterministic-{which}-seed0"] for which in ("good", "bad"))
    assert (good["status"], bad["status"]) == ("finished", "failed")
    assert [row["folder"] for row in table.failed] == ["deterministic-bad-seed0"]
    assert bad["error"] == "RuntimeError: no network yet"
    assert "Traceback" in (out / bad["log"]).read_text()
    assert json.loads((out / "results.json").read_text()) == table.as_json()
    assert calls == [(0, 2), (1, 2), (2, 2)]


def test_a_cell_is_what_fit_gives(ran, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = fit(BASE, tmp_path / "run", quiet=True)
    finally:
        torch.set_num_threads(threads)
    cell = Run(ran[0] / "deterministic-good-seed0")
    assert weights(cell.folder) == weights(run.folder)
    assert {part: cell.result[part] for part in PARTS} == {part: run.result[part] for part in PARTS}
    assert "epoch 2/2" in (cell.folder / "log.txt").read_text()


@pytest.mark.parametrize("word", ["optimiser.lr=0.5", "epochs=3", "overrides.good={net.hidden: [9]}"])
def test_stored_cells_that_differ_from_the_grid_are_an_error(ran, word):
    out = ran[0]
    before = {path: path.stat().st_mtime_ns for path in sorted(out.rglob("*"))}
    with pytest.raises(ValueError, match=r"Nothing was run.*\n  deterministic-good-seed0: The run in .* was started"):
        run_grid(GRID, out, overrides=[word])
    assert {path: path.stat().st_mtime_ns for path in sorted(out.rglob("*"))} == before


def test_one_call_at_a_time_in_a_folder(tmp_path):
    """Another one might give a cell another configuration, and this one would put its scores into the table."""
    with alone_in(tmp_path), pytest.raises(FolderInUse, match=rf"{tmp_path} is in use.*process {os.getpid()} on "):
        run_grid({"base": BASE}, tmp_path, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_finished_cells_are_not_run_again(ran, own_net, tmp_path, capfd):
    out = shutil.copytree(ran[0], tmp_path / "out", copy_function=shutil.copy2)
    finished = out / "deterministic-good-seed0"
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in finished.rglob("*") if path.is_file()}
    (own_net / "ready").touch()
    table = run_grid(GRID, out, workers=2)
    assert [row["status"] for row in table.rows.values()] == ["finished", "finished"]
    assert {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in finished.rglob("*") if path.is_file()
    } == before
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "1 of 2 cells are finished already"
    assert lines[1].startswith("2/2 deterministic-bad-seed0 finished")


# ---------------------------------------------------------------------- interruptions


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted")
    assert not run_grid(LONG, out, workers=2, quiet=True).failed
    return out


def alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_grid_and_a_second_call_completes_it(uninterrupted, tmp_path, number):
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(LONG))
    out = tmp_path / "out"
    first = out / "deterministic-seed0"
    # Whatever runs in the background of a shell ignores SIGINT, and so would its children.
    parent = subprocess.Popen(
        [sys.executable, "-c", CALL, tmp_path / "grid.yaml", out],
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for(lambda: (first / "checkpoints/index.json").exists() or parent.poll() is not None)
    cells = psutil.Process(parent.pid).children()
    children = psutil.Process(parent.pid).children(recursive=True)  # a cell may just be asking git for its commit
    os.kill(parent.pid, number)
    parent.communicate(timeout=300)
    assert len(cells) == 2
    wait_for(lambda: not any(map(alive, children)))
    assert not (first / "result.json").exists()  # it was stopped, it did not come to its end
    table = run_grid(LONG, out, workers=2, quiet=True)
    assert [row["status"] for row in table.rows.values()] == ["finished", "finished"]
    for name in table.rows:
        assert weights(out / name) == weights(uninterrupted / name)
        assert weights(out / name, "best") == weights(uninterrupted / name, "best")
