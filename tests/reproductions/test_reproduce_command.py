"""``python -m reproductions`` as a user calls it."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from reproductions.__main__ import app

ROOT = Path(__file__).parents[2]
STUDY = {
    "title": "Digits",
    "base": {"data": {"name": "digits", "train_limit": 100}, "net": {"name": "mlp", "hidden": [4]}, "epochs": 1},
    "methods": {"mean_field": {}},
    "seeds": 1,
    "look": {"samples": 2},
    "scales": {"small": {"minutes": 0.1}},
}
ITEM = {
    "paper": "beyond",
    "item": "Digits",
    "title": "Digits",
    "claim": "Digits can be read.",
    "studies": ["digits"],
    "show": [{"kind": "table", "study": "digits", "columns": ["nll", "accuracy"]}],
}


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reproductions" / "studies").mkdir(parents=True)
    (tmp_path / "reproductions" / "studies" / "digits.yaml").write_text(yaml.safe_dump(STUDY))
    (tmp_path / "reproductions" / "items").mkdir()
    (tmp_path / "reproductions" / "items" / "beyond_digits.yaml").write_text(yaml.safe_dump(ITEM))
    return lambda *words: CliRunner().invoke(app, [*words])


def test_run_list_and_pages(call, tmp_path):
    assert "beyond_digits" in call("--list").stdout
    done = call("beyond_digits")
    assert done.exit_code == 0, done.output
    stored = tmp_path / "reproductions" / "results" / "digits" / "small" / "mean_field-seed0.json"
    accuracy = json.loads(stored.read_text())["test"]["accuracy"]["value"]
    before = stored.stat().st_mtime_ns
    again = call("beyond_digits")
    assert "0 runs to make" in again.output
    assert stored.stat().st_mtime_ns == before
    (row,) = json.loads(call("--list", "--json").stdout)
    assert row["data"] == ["digits"]
    assert "1 of 1" in row["results"]
    assert call("--results").exit_code == 0
    assert f"{100 * accuracy:.1f}"[:3] in (tmp_path / "docs" / "results" / "beyond_digits.md").read_text()
    assert call("--results").stdout == ""


def test_what_no_study_makes_is_named(call, tmp_path):
    timing = {
        "kind": "timing",
        "file": "bench-x.json",
        "command": "python -m benchmarks x",
        "cases": {"plain": "point"},
    }
    item = {**ITEM, "studies": [], "show": [timing]}
    (tmp_path / "reproductions" / "items" / "beyond_time.yaml").write_text(yaml.safe_dump(item))
    done = call("beyond_time")
    assert done.exit_code == 0
    assert "python -m benchmarks x --out benchmarks/results/bench-x.json" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--list"),
        (("beyond_digit",), "beyond_digits"),
        (("beyond_digits", "--scale", "large"), "paper"),
        (("beyond_digits", "--folder", "nowhere"), "nowhere"),
    ],
)
def test_wrong_words_are_explained(call, words, message):
    done = call(*words)
    assert done.exit_code == 2
    assert message in done.output


def test_every_table_and_figure_is_listed(monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = json.loads(CliRunner().invoke(app, ["--list", "--json"]).stdout)
    names = {row["name"] for row in rows}
    k_tied = {f"k_tied_table_{n}" for n in range(1, 6)} | {f"k_tied_figure_{n}" for n in range(1, 13)}
    rank1 = {f"rank1_table_{n}" for n in range(1, 9)} | {f"rank1_figure_{n}" for n in range(1, 13)}
    assert k_tied | rank1 <= names


def test_the_list_says_which_runs_are_done_and_what_is_to_go(call, tmp_path):
    study = {
        **STUDY,
        "methods": {"mean_field": {}, "k_tied": {"k": 2}},
        "seeds": 3,
        "scales": {"small": {"minutes": 30}},
    }
    (tmp_path / "reproductions" / "studies" / "digits.yaml").write_text(yaml.safe_dump(study))
    assert call("digits", "--quiet", "--only", "mean_field-seed[01]").exit_code == 0
    line = next(line for line in call("--list").stdout.splitlines() if line.startswith("digits "))
    assert line.split() == ["digits", "small", "6", "2", "3.0", "2.0", "k_tied-seed0"]
    assert call("--list").stdout.splitlines()[-1].split() == ["all", "6", "2", "3.0", "2.0"]


def test_only_some_runs_are_made(call, tmp_path):
    study = {**STUDY, "methods": {"mean_field": {}, "k_tied": {"k": 2}}, "seeds": 2}
    (tmp_path / "reproductions" / "studies" / "digits.yaml").write_text(yaml.safe_dump(study))
    done = call("digits", "--quiet", "--only", "k_*-seed1")
    assert done.exit_code == 0, done.output
    assert [path.stem for path in (tmp_path / "reproductions" / "results").glob("*/*/*.json")] == ["k_tied-seed1"]
    wrong = call("digits", "--quiet", "--only", "swag*")
    assert wrong.exit_code != 0
    assert "mean_field-seed0" in wrong.output
