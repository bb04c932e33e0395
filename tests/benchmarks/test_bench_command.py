"""The command ``python -m benchmarks``."""

import json
import os
from functools import partial

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import price, suite_run, suites, timing
from benchmarks.__main__ import app
from benchmarks.networks import NETWORKS, BenchNetwork, dense_net
from benchmarks.suites import Case, Suite


@pytest.fixture
def _toy(monkeypatch):
    """A suite that costs nothing."""
    cases = tuple(Case(name, lambda: lambda: None) for name in ("plain", "a", "b"))
    monkeypatch.setitem(suites.SUITES, "toy", Suite("toy", "does nothing", cases, batch=7))


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_the_dense_suite(tmp_path):
    out = tmp_path / "new" / "bench.json"
    outcome = invoke("dense", "--cases", "rank1,batch_ensemble", "--rounds", 1, "--out", out)
    assert outcome.exit_code == 0
    assert [line.split()[0] for line in outcome.stdout.splitlines()[1:4]] == ["plain", "rank1", "batch_ensemble"]
    assert str(out) in outcome.stderr
    stored = json.loads(out.read_text())
    assert stored["settings"]["batch"] == 256
    assert list(stored["results"]) == ["plain", "rank1", "batch_ensemble"]
    assert [path.name for path in out.parent.iterdir()] == ["bench.json"]


@pytest.fixture
def _tiny(monkeypatch):
    """A small network under a name of the table's."""
    tiny = BenchNetwork("mlp_512", "MLP 512", partial(dense_net, 8), (8,), 16)
    monkeypatch.setitem(NETWORKS, "mlp_512", tiny)
    monkeypatch.setattr(timing, "calibrate", lambda step, clock: 1)


@pytest.mark.usefixtures("_tiny")
def test_without_a_suite_the_table_is_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = invoke("--networks", "mlp_512", "--cases", "rank1 per example,rank1 memory", "--rounds", 2)
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines()[0].strip() == "MLP 512"
    assert "rank1, noise per example, train step" in outcome.stdout
    assert "runs/bench.json" in outcome.stderr
    stored = json.loads((tmp_path / "runs" / "bench.json").read_text())
    assert list(stored["results"]["mlp_512"]) == ["plain", "rank1 per example", "plain memory", "rank1 memory"]
    assert stored["results"]["mlp_512"]["rank1 per example"]["target"] == 1.48
    assert stored["runs"]["mlp_512"]["train"]["rounds"] == 2


@pytest.mark.usefixtures("_tiny")
def test_the_table_as_json(tmp_path):
    out = tmp_path / "bench.json"
    outcome = invoke("--networks", "mlp_512", "--cases", "rank1 memory", "--json", "--out", out)
    assert json.loads(outcome.stdout) == json.loads(out.read_text())


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_a_gpu_that_is_not_there_is_said():
    outcome = invoke("--gpu")
    assert outcome.exit_code == 2
    assert "Expected a GPU" in outcome.stderr


@pytest.mark.usefixtures("_toy")
def test_options_reach_the_run_and_json_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = invoke("toy", "--rounds", 3, "--threads", 2, "--cases", "b", "--json")
    assert outcome.exit_code == 0
    printed = json.loads(outcome.stdout)
    assert printed == json.loads((tmp_path / "runs" / "bench-toy.json").read_text())
    chosen = {name: printed["settings"][name] for name in ("rounds", "threads", "cases")}
    assert chosen == {"rounds": 3, "threads": 2, "cases": ["plain", "b"]}


@pytest.mark.usefixtures("_toy")
def test_a_busy_machine_is_warned_of(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    out = tmp_path / "bench.json"
    outcome = invoke("toy", "--rounds", 1, "--out", out)
    assert outcome.exit_code == 0
    assert "load average was 99.00" in outcome.stderr
    assert "load average was 99.00" in json.loads(out.read_text())["warning"]


@pytest.mark.usefixtures("_toy")
def test_a_failed_write_keeps_the_older_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    out = tmp_path / "bench.json"
    out.write_text("older")
    monkeypatch.setattr(os, "replace", full)
    outcome = invoke("toy", "--rounds", 1, "--out", out)
    assert outcome.exit_code == 2
    assert "no space left" in outcome.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("bench.json", "older")]


@pytest.mark.usefixtures("_toy")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    # Open for both and not waiting, so that neither end can hang.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert invoke("toy", "--rounds", 1, "--out", pipe).exit_code == 0
        assert json.loads(os.read(end, 1 << 16))["suite"] == "toy"
        assert not pipe.is_file()
    finally:
        os.close(end)


def test_the_suites_are_listed():
    outcome = invoke("--list")
    assert outcome.exit_code == 0
    for suite in suites.SUITES.values():
        assert f"{suite.name}: {suite.description}" in outcome.stdout
        assert all(case.name in outcome.stdout for case in suite.cases)
    assert all(name in outcome.stdout for name in (*NETWORKS, "lstm_128", "rank1 per example"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--networks", "conv_17"], ["`networks`", "'conv_17'", "Did you mean 'conv_16'"]),
        (["--profile", "some"], ["`profile`", "'some'"]),
        (["--out", "/tmp"], ["--out /tmp is a folder", "/tmp/bench.json"]),
        (["dense", "--networks", "conv_16"], ["--networks", "'dense'"]),
        (["dens"], ["`suite`", "'dens'", "Did you mean 'dense'"]),
        (["dense", "--out", "/proc/none/bench.json"], ["/proc/none"]),
        (["dense", "--out", "/tmp"], ["--out /tmp is a folder", "/tmp/bench-dense.json"]),
    ],
)
def test_errors_are_said_before_measuring(arguments, words, monkeypatch):
    monkeypatch.setattr(suite_run, "measure", lambda *_, **__: pytest.fail("measured"))
    monkeypatch.setattr(price, "NetworkRun", lambda *_, **__: pytest.fail("measured"))
    outcome = invoke(*arguments)
    assert outcome.exit_code == 2
    assert all(word in outcome.stderr for word in words)


def test_an_unknown_case_is_named(tmp_path):
    outcome = invoke("dense", "--cases", "rank1,rank2", "--out", tmp_path / "bench.json")
    assert outcome.exit_code == 2
    assert all(word in outcome.stderr for word in ["`cases`", "'rank2'", "'rank1'"])
    assert not list(tmp_path.iterdir())


def test_help_teaches():
    text = CliRunner().invoke(app, ["bench", "--help"]).stdout
    assert "Example: python -m benchmarks dense" in text
    assert "Example: python -m benchmarks --networks" in text
    assert "Let nothing else run" in text
    assert "--cases" in text
