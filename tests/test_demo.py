"""The demo, its data and its table."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import slimbayes as sb
from reproductions import demo_choice as choosing
from slimbayes import demo
from slimbayes.cli.app import app
from slimbayes.data.digits import CORRUPTIONS, corrupt, load_digits
from slimbayes.demo import METHODS, run, table
from slimbayes.evaluation.settings import Settings
from slimbayes.methods.registry import method_names

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="session")
def results():
    return run(["plain", "rank1"], seeds=2, epochs=1)


def test_options_are_those_that_validation_chose():
    choice = json.loads((ROOT / "reproductions" / "results" / "demo-choice.json").read_text())
    assert {name: options for name, (_, options) in METHODS.items()} == {
        name: best["options"] for name, best in choice["best"].items()
    }
    for name, best in choice["best"].items():
        trials = [trial["nll"] for trial in choice["trials"] if name in trial["settings"]["methods"]]
        assert best["nll"] == min(trials)


def test_the_choice_can_be_killed_and_taken_up_again(tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "GRID", {"mc_dropout": {"rate": [0.05, 0.1]}})
    scored, runs = choosing.run, []

    def killed_at_the_second(methods, *arguments):
        runs.append(arguments[-1])
        if len(runs) == 2:
            raise KeyboardInterrupt
        return scored(methods, *arguments)

    monkeypatch.setattr(choosing, "run", killed_at_the_second)
    out = tmp_path / "choice.json"
    with pytest.raises(KeyboardInterrupt):
        choosing.choose(out, seeds=1, epochs=1)
    assert len(json.loads(out.read_text())["trials"]) == 1
    choosing.choose(out, seeds=1, epochs=1)
    assert [one["mc_dropout"]["rate"] for one in runs] == [0.05, 0.1, 0.1]
    assert len(json.loads(out.read_text())["trials"]) == 2


def test_digits_are_dealt_out_without_overlap():
    digits = load_digits()
    parts = [digits.train, digits.validation, digits.test]
    assert [len(images) for images, _ in parts] == [1000, 297, 500]
    images = torch.cat([images for images, _ in parts]).flatten(1)
    assert len(images.unique(dim=0)) == 1797  # no two digits of the set are the same
    assert torch.cat([labels for _, labels in parts]).bincount().tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_corruptions_grow_with_severity_and_repeat(kind):
    images = load_digits().test[0]
    distances = [(corrupt(images, kind, s) - images).square().mean().item() for s in range(1, 6)]
    assert distances == sorted(distances)
    assert distances[0] > 0
    assert torch.equal(corrupt(images, kind, 3), corrupt(images, kind, 3))
    assert corrupt(images, kind, 5).min() >= 0
    assert corrupt(images, kind, 5).max() <= 1


def test_results_say_where_they_come_from(results):
    assert results["settings"] == {
        "methods": {"plain": METHODS["plain"][1], "rank1": METHODS["rank1"][1]},
        "members": 4,
        "draws": 16,
        "seeds": 2,
        "epochs": 1,
        "part": "test",
        "severities": [1, 2, 3, 4, 5],
        "workers": 1,
    }
    assert results["versions"]["torch"] == torch.__version__
    assert results["hardware"]["cores"] >= 1
    assert [(r["method"], r["seed"]) for r in results["results"]] == [
        ("plain", 0),
        ("plain", 1),
        ("rank1", 0),
        ("rank1", 1),
    ]


def test_a_run_can_be_repeated(results):
    again = run(["rank1", "plain"], seeds=1, epochs=1, workers=2)["results"]  # also in other processes
    for ours, theirs in zip(again, (results["results"][2], results["results"][0]), strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs(method, monkeypatch):
    # The other corruptions take long, and the same.
    monkeypatch.setattr(demo, "Settings", partial(Settings, corruptions=("noise",), severities=(1, 5)))
    (outcome,) = run([method], seeds=1, epochs=4)["results"]
    assert outcome["clean"]["accuracy"] > 0.15  # more than a guess
    assert outcome["title"] in table({"settings": {"seeds": 1, "part": "test"}, "results": [outcome]})


def test_every_method_starts_from_the_trained_network():
    """Without training, conversion leaves the network's outputs as they are, but for members of an ensemble."""
    net, (images, _) = demo.trained_network(0), load_digits().test
    for method in METHODS:
        options = {name: value for name, value in METHODS[method][1].items() if name != "init_spread"}
        model, _ = demo.make(method, options, net)
        at_start = model.eval()(images[:50], samples=0)
        apart = (at_start - net(images[:50])).abs().max().item()
        if method == "deep_ensemble":
            assert apart > 1
        elif method not in ("batch_ensemble", "sgmcmc_factors"):  # their members start around it
            assert apart < 1e-4, method


def test_a_temperature_changes_no_label_and_lowers_the_loss_on_validation_digits():
    digits = load_digits()
    net = demo.trained_network(0)
    scaled = demo.finish("temperature", sb.ELBO(sb.deterministic(net), 1), digits.train, {}, seed=0).member(0)
    images, labels = digits.validation
    loss = nn.functional.cross_entropy
    assert torch.equal(scaled(images).argmax(1), net(images).argmax(1))
    assert loss(scaled(images), labels) < loss(net(images), labels)


def test_methods_are_those_of_the_library_and_all_have_a_grid():
    stored = set(method_names()) - {"deterministic"} | {"plain", "temperature", "rank1_cauchy", "sgmcmc_factors"}
    assert set(METHODS) == set(choosing.GRID) == stored
    for name in METHODS:
        assert name in CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "500"}).stdout


def test_the_table_has_means_and_standard_errors_over_seeds(results):
    rows = table(results).splitlines()
    for method, row in zip(("plain", "rank1"), rows[1:3], strict=True):
        runs = [one for one in results["results"] if one["method"] == method]
        for part, name in (("clean", "nll"), ("corrupted", "accuracy"), ("foreign", "auroc")):
            a, b = (one[part][name] for one in runs)
            assert f"{(a + b) / 2:.3f} ± {abs(a - b) / 2:.3f}" in row
    assert table(results, markdown=True).count("\n") == 3


def test_command_line(tmp_path):
    out = tmp_path / "new" / "demo.json"
    arguments = ["demo", "--methods", "plain", "--seeds", "1", "--epochs", "1", "--workers", "1", "--out", str(out)]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0
    assert "the trained network" in outcome.stdout
    assert json.loads(out.read_text())["results"][0]["stored_numbers"] == 38_282
    report = tmp_path / "new" / "demo" / "report.html"
    assert outcome.stderr.splitlines()[-1] == f"Report: {report}"
    assert "the trained network" in report.read_text()
    printed = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(printed.stdout)["settings"]["epochs"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--severities", "6"], ["severities", "6"]),
        (["--severities", "x"], ["--severities", "'x'"]),
        (["--epochs", "2"], ["`epochs`", "at least 3", "2", "swag, subspace"]),
        (["--methods", "rank2"], ["`methods`", "'rank2'", "'rank1'"]),
        (["--out", "/proc/none/demo.json"], ["/proc/none"]),
        (["--out", "/tmp"], ["--out /tmp is a folder", "/tmp/demo.json"]),
    ],
)
def test_errors_are_said_before_training(arguments, words):
    outcome = CliRunner().invoke(app, ["demo", *arguments])
    assert outcome.exit_code == 2
    assert all(word in outcome.stderr for word in words)


def test_help_teaches():
    text = CliRunner().invoke(app, ["demo", "--help"]).stdout
    assert "Example" in text
    assert "--seeds" in text
