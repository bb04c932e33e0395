"""``slimbayes train``, ``init`` and ``tune`` with nothing but a table."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from command_line import invoke
from sklearn.datasets import load_diabetes, load_wine

from houses import messy_csv
from slimbayes.training import Run

#: What other commands, and YAML, are warned of as ever.
commas = pytest.mark.filterwarnings("ignore:.*have decimal commas")
SHORT = ["--epochs", 2, "net.hidden=[8]", "--quiet"]


@pytest.fixture
def houses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return messy_csv(tmp_path)


def from_sklearn(load, folder):
    """Write one of scikit-learn's tables."""
    data = load()
    path = folder / f"{load.__name__[5:]}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "target"])
        writer.writerows([*row, target] for row, target in zip(data.data.tolist(), data.target.tolist(), strict=True))
    return path


@commas
def test_from_a_table_to_a_report_and_to_predictions(houses, tmp_path):
    outcome = invoke("train", houses, "--target", "price", "--epochs", 3, "net.hidden=[8]")
    assert outcome.exit_code == 0, outcome.output
    told = {line.split()[0]: line for line in outcome.stderr.splitlines() if line}
    assert "200 rows, regression of price (guessed)" in outcome.stderr
    assert "left out: identifier" in told["id"]
    assert "date" in told["sold"]
    assert "decimal commas" in told["size"]
    assert "category" in told["town"]
    assert " 30 " in told["town"]
    assert "UserWarning" not in outcome.stderr
    folder = tmp_path / "runs" / "houses-mlp-rank1-seed0"
    assert f"Report: {folder.relative_to(tmp_path)}/report.html" in outcome.stdout
    assert "<html" in (folder / "report.html").read_text()
    predicted = invoke("predict", folder, houses, "--out", "predictions.csv")
    assert predicted.exit_code == 0, predicted.output
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 201


def test_the_page_shows_what_is_printed(houses):
    outcome = invoke("init", "houses.csv", "--target", "price")
    page = (Path(__file__).parent.parent.parent / "docs" / "tables.md").read_text()
    assert outcome.exit_code == 0
    assert f"```\n{outcome.stderr}```" in page


def test_a_run_of_a_table_goes_on(houses):
    words = ["train", houses, "--target", "price", *SHORT, "--no-report"]
    assert invoke(*words).exit_code == 0
    again = invoke(*words)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    words[words.index("--epochs") + 1] = 3
    longer = invoke(*words, "--resume", "--json")
    assert longer.exit_code == 0, longer.output
    assert json.loads(longer.stdout)["epochs"] == 3
    assert not Path("runs/houses-mlp-rank1-seed0/report.html").exists()


@commas
def test_init_writes_what_train_trains(houses, tmp_path):
    options = ["--target", "price", "--ignore", "sold", "--method", "mc_dropout", "--epochs", 2, "--seed", 3]
    direct = invoke("train", houses, *options, "--out", "direct", "--no-report", "--quiet")
    assert direct.exit_code == 0, direct.output
    printed = invoke("init", houses, *options)
    assert printed.exit_code == 0, printed.output
    written = invoke("init", houses, *options, "--out", "config.yaml")
    assert (tmp_path / "config.yaml").read_text() == printed.stdout
    assert "slimbayes train config.yaml" in written.stderr
    assert json.loads((tmp_path / "slimbayes.schema.json").read_text())["title"] == "slimbayes"
    outcome = invoke("train", "config.yaml", "--out", "written", "--quiet")
    assert outcome.exit_code == 0, outcome.output
    for part in ("validation", "test"):
        assert Run("direct").result[part] == Run("written").result[part]
    assert Run("direct").config == Run("written").config
    assert invoke("init", houses, *options, "--out", "config.yaml").exit_code == 2


def test_init_without_a_table_is_a_starting_point(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = invoke("init", "method=k_tied", "epochs=1")
    assert outcome.exit_code == 0, outcome.output
    Path("config.yaml").write_text(outcome.stdout)
    assert yaml.safe_load(outcome.stdout)["method"] == {"name": "k_tied"}
    assert invoke("train", "config.yaml", "--quiet").exit_code == 0
    schema = invoke("init", "--schema")
    assert json.loads(schema.stdout)["$defs"]["TrainConfig"]


@pytest.mark.parametrize(
    ("load", "options", "task"),
    [
        (load_wine, [], "classes"),
        (load_diabetes, [], "regression"),
        (load_diabetes, ["--task", "counts"], "counts"),
    ],
)
def test_real_tables(load, options, task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = from_sklearn(load, tmp_path)
    outcome = invoke("train", path, "--target", "target", *options, "--epochs", 2, "net.hidden=[8]", "--out", "run")
    assert outcome.exit_code == 0, outcome.output
    assert f"{task} of target ({'given' if options else 'guessed'})" in outcome.stderr
    assert Run("run").result["test"]["nll"] > 0
    reported = Path("run/report.html").is_file()
    assert reported or (task == "counts" and "no report was written" in outcome.stderr)  # counts have no evaluation


def test_time_is_limited(houses):
    outcome = invoke("train", houses, "--target", "price", "--max-seconds", 0.01, "--out", "run", "-q", "--no-report")
    assert outcome.exit_code == 0, outcome.output
    run = Run("run")
    assert run.result["epochs"] == 1 < run.config.epochs


WRONG = {
    "no target": ([], ["--target price", "id, sold, size"]),
    "target": (["--target", "pricce"], ["'pricce'", "'price'"]),
    "column": (["--target", "price", "--ignore", "siz"], ["`ignore`", "'siz'", "'size'"]),
    "numeric": (["--target", "price", "--numeric", "town"], ["'town'", "'Bath'"]),
    "method": (["--target", "price", "--method", "rank2"], ["'rank2'", "'rank1'"]),
    "key": (["--target", "price", "epoch=3"], ["epoch", "'epochs'"]),
    "task": (["--target", "town", "--task", "regression"], ["'town'", "'classes'"]),
}


@pytest.mark.parametrize("command", ["train", "init"])
@pytest.mark.parametrize("name", WRONG)
def test_what_a_user_can_put_right_is_one_message(name, command, houses):
    arguments, words = WRONG[name]
    outcome = invoke(command, houses, *arguments, "--quiet")
    assert outcome.exit_code == 2
    assert "Traceback" not in outcome.stderr
    assert all(word in outcome.stderr for word in words), outcome.stderr


def test_options_of_tables_are_refused_for_yaml(houses):
    Path("config.yaml").write_text("data: digits\nnet: mlp\n")
    outcome = invoke("train", "config.yaml", "--target", "price")
    assert outcome.exit_code == 2
    assert "--target" in outcome.stderr
    missing = invoke("train", "nowhere.csv", "--target", "price")
    assert missing.exit_code == 2
    assert "nowhere.csv" in missing.stderr


@commas
def test_tune_shows_its_trials_and_writes_the_best(houses):
    outcome = invoke("tune", houses, "--target", "price", "--trials", 2, "--epochs", 1, "net.hidden=[8]", "-o", "tuned")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.splitlines()[0].startswith("trial  state")
    assert "validation examples alone" in outcome.stdout
    assert "trial 2/2 finished after epoch 1" in outcome.stderr
    again = invoke(
        "tune", houses, "--target", "price", "--trials", 2, "--epochs", 1, "net.hidden=[8]", "-o", "tuned", "--json"
    )
    assert [row["state"] for row in json.loads(again.stdout)["trials"]] == ["finished"] * 2
    assert invoke("train", "tuned/best.yaml", "--quiet", "--out", "best").exit_code == 0


@pytest.mark.slow
def test_a_killed_command_goes_on(houses):
    """SIGKILL in the second trial; the same command ends with the trials of a call that was let be."""
    words = ["tune", houses, "--target", "price", "--trials", 3, "--epochs", 12, "net.hidden=[8]"]
    assert invoke(*words, "-o", "whole", "-q").exit_code == 0
    command = [sys.executable, "-m", "slimbayes", *map(str, words), "-o", "killed"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    begun = Path("killed/trials/0001/metrics.jsonl")
    while process.poll() is None and not (begun.is_file() and begun.read_text().count("\n") > 3):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert Run("killed/trials/0001").result is None
    outcome = invoke(*words, "-o", "killed", "--json", "-q")
    assert outcome.exit_code == 0, outcome.output
    whole = invoke(*words, "-o", "whole", "--json", "-q")
    assert json.loads(outcome.stdout)["trials"] == json.loads(whole.stdout)["trials"]
