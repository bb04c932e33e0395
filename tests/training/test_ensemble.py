"""Ensembles whose members are trained apart: what a member is, what the whole is, and what is trained again."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import yaml
from training_runs import DIGITS, MLP

from slimbayes._seeds import Purpose, mix
from slimbayes.data.registry import load_data
from slimbayes.training import Run, fit, fit_ensemble
from slimbayes.training.batches import blocks
from slimbayes.training.checkpoints import Checkpoints
from slimbayes.training.ensemble import MembersFailed

CONFIG = {"data": DIGITS, "net": MLP, "epochs": 2, "batch_size": 64, "optimiser": {"lr": 0.01}}
CALL = "import sys; from slimbayes.training import fit_ensemble; fit_ensemble(sys.argv[1], sys.argv[2], 3, quiet=True)"


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """As many as a member's process has, or sums may be rounded otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """An ensemble, its members trained one after another."""
    return fit_ensemble(CONFIG, tmp_path_factory.mktemp("three") / "run", 3, quiet=True)


def weights(run):
    return (run.checkpoints.path() / "model.safetensors").read_bytes()


def member(run, index):
    return Run.open(run.folder / "members" / str(index))


def files(folder):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------- what comes out


def test_a_member_is_what_fit_gives_for_its_seed(three, tmp_path):
    for index in (0, 2):
        seed = mix(0, Purpose.MEMBER, index)
        run = fit({**CONFIG, "method": "deterministic", "seed": seed}, tmp_path / str(index), quiet=True)
        assert weights(member(three, index)) == weights(run)
        assert three.result["members"][index]["test"] == run.result["test"]
    assert len({weights(member(three, index)) for index in range(3)}) == 3


def test_the_ensemble_has_the_members_and_their_mixtures_scores(three):
    model = three.model()
    assert (model.method, model.members, model.training) == ("deep_ensemble", 3, False)
    assert three.config.method.options == {"members": 3}
    data = load_data("digits").limited(200, 100)
    ((inputs, targets),) = blocks(data.test, data.preparation, 1000, 0, 1)
    draws = torch.cat([member(three, index).model()(*inputs) for index in range(3)])
    torch.testing.assert_close(model(*inputs), draws)
    probs = draws.double().softmax(-1).mean(0).detach().numpy()
    right = probs[np.arange(100), targets.numpy()]
    assert three.result["test"]["nll"] == pytest.approx(-np.log(right).mean(), rel=1e-5)
    assert three.result["test"]["accuracy"] == pytest.approx((probs.argmax(1) == targets.numpy()).mean())
    assert three.result["parameters"] == 3 * member(three, 0).result["parameters"]
    assert three.result["validation"]["nll"] == three.checkpoints.index().nll


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_learned_noise_is_that_of_the_members_mixture(likelihood, tmp_path):
    config = {"data": "diabetes", "net": MLP, "epochs": 3, "method": {"name": "deep_ensemble", "members": 2}}
    run = fit_ensemble({**config, "likelihood": likelihood, "optimiser": {"lr": 0.1}}, tmp_path, quiet=True)
    data, model = load_data("diabetes"), run.model()
    ((inputs, targets),) = blocks(data.validation, data.preparation, 1000, 0, 1)
    expected = model.likelihood.best_scale(model(*inputs), targets, mixed=True).item()
    assert torch.nn.functional.softplus(model.likelihood.rho).item() == pytest.approx(expected, rel=1e-5)
    stds = [torch.nn.functional.softplus(member(run, k).model().likelihood.rho).item() for k in range(2)]
    assert expected < np.square(stds).mean() ** 0.5


def test_thresholds_of_members_apart_are_refused(tmp_path):
    """Outputs of one member would be read with the thresholds of another."""
    for likelihood in ("ordinal", {"name": "ordinal", "levels": 3}):
        with pytest.raises(ValueError, match=r"other than 'ordinal'.*thresholds.*method=deep_ensemble"):
            fit_ensemble({"data": "iris", "net": MLP, "likelihood": likelihood}, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------- what is trained again


def test_members_are_added_to_a_trained_ensemble(three, tmp_path):
    first = fit_ensemble(CONFIG, tmp_path, 1, quiet=True)
    assert first.model().members == 1
    alone = weights(first)
    before = files(tmp_path / "members/0")
    calls = []
    run = fit_ensemble(CONFIG, tmp_path, 3, progress=lambda *count: calls.append(count), quiet=True)
    assert files(tmp_path / "members/0") == before
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert weights(run) == weights(three)
    assert {key: run.result[key] for key in ("test", "members")} == {
        key: three.result[key] for key in ("test", "members")
    }
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2  # the ensemble of one is gone
    before = files(tmp_path)
    fit_ensemble(CONFIG, tmp_path, 3, quiet=True)
    changed = {path.name for path, what in files(tmp_path).items() if before[path] != what}
    assert changed <= {"results.json", "results.csv", "results.md"}
    assert weights(fit_ensemble(CONFIG, tmp_path, 1, quiet=True)) == alone


def test_interrupted_while_it_is_put_together_the_old_one_stays(three, tmp_path, monkeypatch):
    fit_ensemble(CONFIG, tmp_path, 2, quiet=True)

    def interrupt(self, index):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "_write_index", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit_ensemble(CONFIG, tmp_path, 3, quiet=True)
    assert Run.open(tmp_path).model().members == 2
    assert weights(fit_ensemble(CONFIG, tmp_path, 3, quiet=True)) == weights(three)


@pytest.mark.slow
def test_killed_it_goes_on(tmp_path):
    config = {**CONFIG, "epochs": 20, "data": "digits", "batch_size": 16}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    whole = fit_ensemble(config, tmp_path / "whole", 3, quiet=True)
    process = subprocess.Popen([sys.executable, "-c", CALL, tmp_path / "config.yaml", tmp_path / "out"])
    second = tmp_path / "out/members/1"
    end = time.monotonic() + 120
    while not (second / "checkpoints/index.json").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (second / "result.json").exists()
    before = files(tmp_path / "out/members/0")
    run = fit_ensemble(config, tmp_path / "out", 3, quiet=True)
    assert files(tmp_path / "out/members/0") == before
    assert weights(run) == weights(whole)


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("workers", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_a_member_that_fails_does_not_cost_the_others(tmp_path, monkeypatch, workers):
    bad = mix(0, Purpose.MEMBER, 1)
    (tmp_path / "net_that_fails_once.py").write_text(
        "import torch\nfrom pathlib import Path\nfrom slimbayes.nets import MLP\n"
        "def build():\n"
        f"    if torch.initial_seed() == {bad} and not Path(__file__).with_name('ready').exists():\n"
        "        raise RuntimeError('no network yet')\n"
        "    return MLP(64, [4], 10)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config, out = {**CONFIG, "net": "net_that_fails_once:build"}, tmp_path / "out"
    with pytest.raises(MembersFailed if workers else RuntimeError) as error:
        fit_ensemble(config, out, 2, workers=workers, quiet=True)
    if workers:
        assert "1 of 2 members could not be trained" in str(error.value)
        assert f"1: RuntimeError: no network yet (log: {out}/members/1/log.txt)" in str(error.value)
    assert not Run(out).exists()
    before = files(out / "members/0")
    (tmp_path / "ready").touch()
    assert fit_ensemble(config, out, 2, workers=workers, quiet=True).model().members == 2
    assert files(out / "members/0") == before


@pytest.mark.parametrize(
    ("changes", "arguments", "told"),
    [
        ({"method": "rank1"}, {}, "Use method=deep_ensemble"),
        ({"method": {"name": "deep_ensemble", "member": 3}}, {}, "Did you mean 'members'"),
        (
            {"method": {"name": "deep_ensemble", "train_on": "split"}},
            {},
            "`method.train_on`.*'split'.* slimbayes train",
        ),
        ({"net": "mpl"}, {}, "'mlp'"),
        ({}, {"members": 0}, "`members`"),
        ({}, {"workers": 0}, "`workers`"),
        ({}, {"on": "rey"}, "`on`"),
    ],
)
def test_faults_are_told_before_anything_runs(tmp_path, changes, arguments, told):
    with pytest.raises(ValueError, match=told):
        fit_ensemble({**CONFIG, **changes}, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_another_configuration_for_the_same_folder(three):
    with pytest.raises(ValueError, match=r"Nothing was run.*\n  0: The run in .* was started with another"):
        fit_ensemble({**CONFIG, "optimiser": {"lr": 0.02}}, three.folder, 3, quiet=True)


def test_another_run_in_the_folder(tmp_path):
    fit({**CONFIG, "epochs": 1}, tmp_path, quiet=True)
    with pytest.raises(FileExistsError, match="not trained apart"):
        fit_ensemble(CONFIG, tmp_path, 2, quiet=True)


def test_the_whole_cannot_be_trained_on(three):
    longer = {**CONFIG, "method": {"name": "deep_ensemble", "members": 3}, "epochs": 3}
    with pytest.raises(FileNotFoundError, match="put together from others"):
        fit(longer, three.folder, resume=True, quiet=True)


def test_members_have_processes_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="torchrun"):
        fit_ensemble(CONFIG, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("on", ["local", "ray"])
def test_side_by_side(three, tmp_path, on):
    if on == "ray":
        pytest.importorskip("ray", reason="needs the extra cluster")
    assert weights(fit_ensemble(CONFIG, tmp_path, 3, on=on, workers=2, quiet=True)) == weights(three)
