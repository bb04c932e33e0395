"""Opening a run never runs code that the user has not named in the call."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from torch import nn
from training_runs import small
from typer.testing import CliRunner

from slimbayes.cli.app import app
from slimbayes.evaluation.loading import load_subject
from slimbayes.training import Run, fit
from slimbayes.training.predicting import predict_file

CALLED = Path("called")


def own(width=16):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """Return a run whose stored configuration has been given a network that is a command."""
    monkeypatch.chdir(tmp_path)
    run = fit(small(epochs=1), "run", quiet=True)
    path = run.folder / "config.yaml"
    content = yaml.safe_load(path.read_text())
    content["net"] = {"name": "os:system", "command": "touch called"}
    path.write_text(yaml.safe_dump(content))
    np.save("x.npy", np.zeros((2, 1, 8, 8), np.float32))
    return run.folder


@pytest.mark.parametrize(
    "words",
    [("predict", "run", "x.npy"), ("evaluate", "run"), ("report", "run", "--input", "x.npy")],
    ids=lambda words: words[0],
)
def test_a_stored_command_is_not_run(evil, words):
    result = CliRunner().invoke(app, [*words])
    assert not CALLED.exists()
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (2, True)
    told = " ".join(result.stderr.split())
    assert "config.yaml asks for a network that is not one of slimbayes: os:system" in told
    assert "--trust os:system" in told


def test_nor_from_python(evil):
    for call in (
        lambda: Run.open(evil).model(),
        lambda: load_subject(evil),
        lambda: predict_file(Run.open(evil, trust="os:getcwd"), "x.npy"),
        lambda: Run.open(evil, trust=["os", "posix"]).network(),  # os does not define system itself
    ):
        with pytest.raises(ValueError, match="os:system"):
            call()
    with pytest.raises(ValueError, match="another configuration"):
        fit(small(epochs=2), evil, resume=True, quiet=True)
    assert not CALLED.exists()


def test_what_the_user_names_or_builds_is_used(tmp_path):
    run = fit(small(net={"name": "test_trust:own", "width": 8}, epochs=1), tmp_path, quiet=True)
    for opened in (
        run,  # fit was given the name
        Run.open(tmp_path, trust="test_trust:own"),
        Run.open(tmp_path, trust=["other", "test_trust"]),
        Run.open(tmp_path, net=own(8)),
    ):
        assert opened.model().members == 4
    with pytest.raises(ValueError, match="--trust test_trust:own"):
        Run.open(tmp_path).model()


def test_a_configuration_of_somebody_elses_folder_is_not_the_users_own(evil):
    """Though the file is given, as to continue a run, or to evaluate a saved model."""
    stored, saved = evil / "config.yaml", str(evil / "checkpoints" / "epoch-00001")
    grid = Path("run/grid.yaml")
    grid.write_text(yaml.safe_dump({"base": yaml.safe_load(stored.read_text()), "methods": ["rank1"]}))
    for words in (
        ["train", str(stored), "epochs=2", "--out", "run", "--resume"],
        ["train", str(grid), "--out", "cells"],
        ["evaluate", saved, "--config", str(stored)],
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2, result.output
        assert "--trust os:system" in " ".join(result.stderr.split())
    assert not CALLED.exists()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Let modules be found as the installed command finds them: not in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    return list(sys.path)


@pytest.mark.usefixtures("evil")
def test_modules_in_the_working_directory_are_not_imported(tmp_path, installed):
    """Packages that are not installed, and that torch and others look for, could lie there beside the run."""
    fit(small(net={"name": "mlp", "hidden": [4]}, epochs=1), ".", quiet=True)
    for words in ("predict", ".", "x.npy"), ("evaluate", ".", "--corruptions", "none"), ("predict", "run", "x.npy"):
        CliRunner().invoke(app, [*words])
        assert sys.path == installed


def test_a_network_of_ones_own_is_found_in_the_working_directory(installed):
    Path("own_network.py").write_text("from test_trust import own\n")
    config = small(net={"name": "own_network:own", "width": 4}, epochs=1)
    assert fit(config, "run", quiet=True).result["epochs"] == 1
    assert sys.path == [*installed, os.getcwd()]


@pytest.mark.parametrize("name", ["../../evil", "/etc", "..", ".", "", "epoch-00001/../x", None, 3])
def test_the_index_names_folders_beside_it_only(tmp_path, name):
    run = fit(small(epochs=1), tmp_path / "run", quiet=True)
    index = run.folder / "checkpoints" / "index.json"
    index.write_text(json.dumps({"last": "epoch-00001", "best": name, "epoch": 1, "nll": None}))
    with pytest.raises(ValueError, match=r"index\.json names .* as the best checkpoint, which is no folder beside it"):
        run.model()


def test_a_link_out_of_the_run_is_not_followed(tmp_path):
    run = fit(small(epochs=1), tmp_path / "run", quiet=True)
    checkpoint = run.checkpoints.path()
    os.rename(checkpoint, tmp_path / "elsewhere")
    checkpoint.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="index.json names 'epoch-00001'"):
        run.model()
