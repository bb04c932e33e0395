"""The command ``slimbayes train``, and what all commands share."""

import json
import subprocess
import sys

import pytest
import yaml
from command_line import config_in, invoke

CONFIG = """
data: digits
net: {name: mlp, hidden: [16]}
method: {name: rank1, members: 2}
epochs: 2
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    return config_in(tmp_path, CONFIG, monkeypatch)


def test_from_a_file_to_scores_and_on(config, tmp_path):
    outcome = invoke("train", config, "optimiser.lr=1e-2")
    assert outcome.exit_code == 0, outcome.output
    folder = tmp_path / "runs" / "digits-mlp-rank1-seed0"
    result = json.loads((folder / "result.json").read_text())
    assert f"test: nll {result['test']['nll']:.4f}, accuracy {result['test']['accuracy']:.4f}" in outcome.stdout
    assert next(line for line in outcome.stdout.splitlines() if line.startswith("test: ")).endswith(" (8 draws)")
    assert yaml.safe_load((folder / "config.yaml").read_text())["optimiser"]["lr"] == 0.01
    epochs = [line for line in outcome.stderr.splitlines() if line.startswith("epoch ")]
    assert [line.split()[1] for line in epochs] == ["1/2", "2/2"]
    again = invoke("train", config, "optimiser.lr=1e-2")
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    longer = invoke("train", config, "optimiser.lr=1e-2", "epochs=3", "--resume", "--json", "--quiet")
    assert longer.exit_code == 0, longer.output
    assert json.loads(longer.stdout)["epochs"] == 3
    assert longer.stderr == ""


def test_the_effective_configuration(config):
    outcome = invoke("train", config, "method=k_tied", "batch_size=7", "--print-config", "--data-dir", "/some where")
    assert outcome.exit_code == 0
    shown = yaml.safe_load(outcome.stdout)
    assert shown["method"] == {"name": "k_tied"}
    assert (shown["batch_size"], shown["epochs"], shown["schedule"]["name"]) == (7, 2, "constant")
    assert shown["data"]["folder"] == "/some where"
    as_json = invoke("train", config, "batch_size=7", "--print-config", "--json")
    assert json.loads(as_json.stdout)["batch_size"] == 7


def test_a_grid(config, tmp_path):
    grid = tmp_path / "grid.yaml"
    grid.write_text("base: config.yaml\nmethods: [deterministic, rank1]\n")
    shown = invoke("train", grid, "epochs=1", "--print-config")
    assert shown.exit_code == 0, shown.output
    assert {name: cell["epochs"] for name, cell in yaml.safe_load(shown.stdout).items()} == {
        "deterministic-seed0": 1,
        "rank1-seed0": 1,
    }
    assert not (tmp_path / "runs").exists()
    outcome = invoke("train", grid, "epochs=1", "--json", "--quiet", "--workers", 1)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stderr == ""
    assert [cell["status"] for cell in json.loads(outcome.stdout)["cells"]] == ["finished"] * 2
    assert (tmp_path / "runs" / "grid" / "results.csv").is_file()
    failing = invoke("train", grid, "epochs=1", "net=lenet", "data=iris", "--out", "other", "--workers", 1)
    assert failing.exit_code == 1
    assert "Use mlp" in failing.stdout
    refused = invoke("train", grid, "net.hiden=[3]", "--out", "third")
    assert refused.exit_code == 2
    assert "'hidden'" in refused.stderr
    assert not (tmp_path / "third").exists()


WRONG = {
    "below a number": (["epochs.x=1"], ["epochs.x", "`epochs` is 2"]),
    "key": (["epoch=3"], ["epoch", "'epochs'"]),
    "method option": (["method.membres=3"], ["membres", "'members'"]),
    "data option": (["data.validaton=3"], ["validaton"]),
    "data set": (["data=mnst"], ["mnst", "'mnist'"]),
    "missing data": (["data=cifar10", "--data-dir", "nowhere"], ["nowhere", "slimbayes data get cifar10"]),
    "network option": (["net.hidden=5"], ["{'hidden': 5}", "'mlp'"]),
    "likelihood option": (["likelihood.nois=1"], ["nois"]),
    "precision": (["precision=fp16", "device=cpu"], ["`precision`", "'fp16'", "bf16"]),
    "grids only": (["--on", "ray"], ["--on", "`base`"]),
    "word": (["epochs"], ["'epochs'", "key=value"]),
}


@pytest.mark.parametrize("word", ["net.hiden=[3]", "method.membres=3"])
def test_a_wrong_key_is_named_before_data_are_looked_for(word, config):
    outcome = invoke("train", config, "data=cifar10", "--data-dir", "nowhere", word)
    assert outcome.exit_code == 2
    assert "Did you mean" in outcome.stderr
    assert "nowhere" not in outcome.stderr


@pytest.mark.parametrize("name", WRONG)
def test_what_a_user_can_put_right_is_one_message_and_exit_code_2(name, config):
    arguments, words = WRONG[name]
    outcome = invoke("train", config, *arguments)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    for word in words:
        assert word in outcome.stderr


def test_a_loss_that_is_not_finite_is_exit_code_3(config):
    outcome = invoke("train", config, "optimiser.name=sgd", "optimiser.lr=1e30")
    assert outcome.exit_code == 3
    assert "not finite at step" in outcome.stderr


@pytest.mark.parametrize(
    "command",
    [["demo"], ["init"], ["train"], ["tune"], ["predict"], ["data", "list"], ["data", "get"], ["data", "where"]],
)
def test_help_teaches_with_an_example(command):
    outcome = invoke(*command, "--help")
    assert outcome.exit_code == 0
    assert "xample" in outcome.stdout


def test_the_commands_are_ready_before_anything_heavy_is_imported():
    code = "import sys, slimbayes.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "pydantic", "accelerate", "pyarrow", "pooch", "sklearn", "matplotlib"} & set(loaded)


def test_the_package_is_a_program():
    outcome = subprocess.run([sys.executable, "-m", "slimbayes", "--help"], capture_output=True, text=True)
    assert outcome.returncode == 0
    assert "Exit codes" in outcome.stdout
    assert "install-completion" in outcome.stdout


def test_a_network_of_ones_own_is_found_in_the_working_directory(config, tmp_path):
    """By the installed command too, whose own folder is where Python would look."""
    build = "nn.Sequential(nn.Flatten(), nn.Linear(64, task.outputs))"
    (tmp_path / "at_hand.py").write_text(f"from torch import nn\n\ndef build(task):\n    return {build}\n")
    # Like a console script: the first entry of the path is its folder, not the working directory.
    script = tmp_path / "bin" / "slimbayes"
    script.parent.mkdir()
    script.write_text("from slimbayes.cli import main\nmain()\n")
    words = ["train", config, "net=at_hand:build", "epochs=1", "--out", "own"]
    outcome = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    assert (tmp_path / "own" / "result.json").is_file()


def test_an_interruption_says_how_to_go_on(config, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("slimbayes.training.fit", interrupted)
    outcome = invoke("train", config)
    assert outcome.exit_code not in (0, 2, 3)
    assert "--resume" in outcome.stderr
