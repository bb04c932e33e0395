"""``python -m benchmarks growth`` and ``python -m benchmarks service``."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.growth import AXES, Axis, Point
from benchmarks.networks import NETWORKS, BenchNetwork, dense_net


@pytest.fixture(autouse=True)
def _tiny(monkeypatch, tmp_path):
    """An axis and a network that cost little."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(AXES, "tiny", Axis("tiny", "tiny width", "width", (4, 8, 16), Point(rows=8)))
    monkeypatch.setitem(NETWORKS, "tiny", BenchNetwork("tiny", "tiny MLP", lambda: dense_net(4), (4,), 64))


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_growth(tmp_path):
    outcome = invoke("growth", "--cases", "tiny", "--networks", "tiny", "--rounds", 1, "--figure", tmp_path / "figures")
    assert outcome.exit_code == 0, outcome.output
    assert "tiny width" in outcome.stdout
    assert "tiny MLP" in outcome.stdout
    stored = json.loads((tmp_path / "runs" / "bench-growth.json").read_text())
    assert (list(stored["axes"]), list(stored["splitting"])) == (["tiny"], ["tiny"])
    assert "<svg" in (tmp_path / "figures" / "growth.svg").read_text()


def test_service(tmp_path):
    out = tmp_path / "service.json"
    outcome = invoke("service", "--cases", "eager", "--networks", "tiny", "--rounds", 2, "--out", out, "--json")
    assert outcome.exit_code == 0, outcome.output
    stored = json.loads(out.read_text())
    assert json.loads(outcome.stdout) == stored
    assert {one["requests"] for one in stored["results"]["tiny"]["32"]} == {2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["growth", "--cases", "widht"], "'width'"),
        (["service", "--cases", "onyx"], "'onnx'"),
        (["growth", "--gpu"], "--gpu"),
        (["service", "--figure", "x"], "--figure"),
        (["grouth"], "'growth'"),
    ],
)
def test_what_is_wrong_is_said(arguments, words):
    outcome = invoke(*arguments)
    assert outcome.exit_code == 2
    assert words in outcome.stderr


def test_the_list_has_both():
    assert {"growth:", "service:"} <= {line.split()[0] for line in invoke("--list").stdout.splitlines() if line.strip()}
