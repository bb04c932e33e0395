"""An interrupted run that is resumed ends up where an uninterrupted one does, bit by bit."""

import json
import random

import numpy as np
import pytest
import torch
from training_runs import DIGITS, small, weights

from slimbayes.training import Run, fit
from slimbayes.training.checkpoints import Checkpoints, random_state, restore_random_state
from slimbayes.training.loop import Loop


class Interrupted(Exception):  # noqa: N818
    """Stands for whatever ends a run."""


def interrupt_at(monkeypatch, step):
    """Raise within the given step, counted from 1."""
    whole = Loop.step

    def interrupted(self, *args):
        if self.elbo.steps + 1 == step:
            raise Interrupted
        return whole(self, *args)

    monkeypatch.setattr(Loop, "step", interrupted)


def run_until(monkeypatch, config, folder, step):
    with monkeypatch.context() as patch:
        interrupt_at(patch, step)
        with pytest.raises(Interrupted):
            fit(config, folder, resume=True, quiet=True)


def run_interrupted(monkeypatch, config, folder, *steps):
    for step in steps:
        run_until(monkeypatch, config, folder, step)
    return fit(config, folder, resume=True, quiet=True)


def without_speed(lines):
    """Return the lines of metrics.jsonl without what a clock measured."""

    def kept(pairs):
        return {name: value for name, value in pairs.items() if name != "examples_per_second"}

    return json.loads(json.dumps(lines), object_hook=kept)


SGD = {"optimiser": {"name": "sgd", "lr": 0.1, "clip_norm": 1.0}, "schedule": {"name": "cosine", "warmup": 1}}
ADAM = {"optimiser": {"name": "adam", "lr": 0.01}, "schedule": {"name": "step", "at": [1, 2]}}


COLLECT = {"collect": {"start": 0.3, "every": 0.5, "draws": 2}}
SGHMC = {"optimiser": {"name": "sghmc", "lr": 0.01}, **COLLECT}
CYCLES = {"optimiser": {"name": "sgld", "lr": 0.01}, "schedule": {"name": "cyclical", "cycles": 2, "exploration": 0.4}}
RUNS = {
    **{f"{method}, sgd": {"method": method, **SGD} for method in ("rank1", "mean_field", "k_tied", "deterministic")},
    **{f"{method}, adam": {"method": method, **ADAM} for method in ("rank1", "mean_field", "mc_dropout")},
    "deep_ensemble": {"method": {"name": "deep_ensemble", "members": 2}, **SGD},
    "swag": {"method": {"name": "swag", "rank": 2}, **COLLECT},
    "subspace": {"method": {"name": "subspace", "rank": 1, "keep": 3}, **COLLECT},
    "sgmcmc": {"method": {"name": "sgmcmc", "members": 2, "keep": 3}, **SGHMC},
    "sgmcmc over factors": {"method": {"name": "sgmcmc", "members": 2, "keep": 3, "over": "factors"}, **SGHMC},
    "cyclical sgmcmc": {"method": {"name": "sgmcmc", "members": 2, "keep": 3}, **CYCLES},
}


@pytest.mark.parametrize("name", RUNS)
def test_resumed_equals_uninterrupted(tmp_path, monkeypatch, name):
    config = small(**RUNS[name])
    whole = fit(config, tmp_path / "whole", quiet=True)
    # In the middle of epoch 2; in its first step; at the very beginning of epoch 3.
    pieces = run_interrupted(monkeypatch, config, tmp_path / "pieces", 7, 5, 9)
    assert weights(whole.folder, 3) == weights(pieces.folder, 3)
    assert pieces.checkpoints.index() == whole.checkpoints.index()
    assert without_speed(pieces.metrics) == without_speed(whole.metrics)
    assert pieces.result["validation"] == whole.result["validation"]
    assert pieces.result["test"] == whole.result["test"]


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("after", [0, 2])
def test_with_any_number_of_data_workers(tmp_path, monkeypatch, before, after):
    whole = fit(small(), tmp_path / "whole", quiet=True)
    run_until(monkeypatch, small(data={**DIGITS, "workers": before}), tmp_path / "pieces", 6)
    fit(small(data={**DIGITS, "workers": after}), tmp_path / "pieces", resume=True, quiet=True)
    assert weights(whole.folder, 3) == weights(tmp_path / "pieces", 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"accumulate": 2},
        {"precision": "bf16"},
        {"epochs": None, "steps": 10},
        {"net": {"name": "lenet"}},  # channels last
        {"method": {"name": "rank1", "freeze_base": True}},
        {"method": {"name": "k_tied", "estimator": "local"}},
        {"data": {"name": "diabetes", "train_limit": 200}, "method": "mean_field"},  # learned noise
        {"data": "diabetes", "method": "mean_field", "likelihood": {"name": "gaussian"}},
    ],
    ids=["accumulate", "bf16", "steps", "lenet", "freeze_base", "local", "learned noise", "likelihood with options"],
)
def test_other_configurations(tmp_path, monkeypatch, changes):
    config = small(**changes)
    whole = fit(config, tmp_path / "whole", quiet=True)
    pieces = run_interrupted(monkeypatch, config, tmp_path / "pieces", 6)
    assert weights(whole.folder, 3) == weights(pieces.folder, 3)


def test_interrupted_before_the_first_checkpoint(tmp_path, monkeypatch):
    whole = fit(small(), tmp_path / "whole", quiet=True)
    pieces = run_interrupted(monkeypatch, small(), tmp_path / "pieces", 2, 1)
    assert weights(whole.folder, 3) == weights(pieces.folder, 3)
    assert without_speed(pieces.metrics) == without_speed(whole.metrics)


def test_a_run_of_before_that_stored_one_sample_goes_on(tmp_path):
    fit(small(epochs=1, evaluation={"samples": 1}), tmp_path, quiet=True)
    longer = fit(small(epochs=2), tmp_path, resume=True, quiet=True)
    assert longer.result["epochs"] == 2


def test_more_epochs_are_allowed(tmp_path):
    config = small(annealing="none")
    whole = fit(config, tmp_path / "whole", quiet=True)
    fit({**config, "epochs": 1}, tmp_path / "longer", quiet=True)
    longer = fit(config, tmp_path / "longer", resume=True, quiet=True)
    assert weights(whole.folder, 3) == weights(longer.folder, 3)
    assert longer.config.epochs == Run.open(tmp_path / "longer").config.epochs == 3
    assert longer.result["epochs"] == 3


def test_a_longer_run_takes_the_rates_of_the_longer_schedule(tmp_path):
    config = small(schedule="cosine")
    whole = fit(config, tmp_path / "whole", quiet=True)
    fit({**config, "epochs": 1}, tmp_path / "longer", quiet=True)
    longer = fit(config, tmp_path / "longer", resume=True, quiet=True)
    rates, expected = ([line["lr"] for line in run.metrics if "lr" in line] for run in (longer, whole))
    assert rates[4:] == expected[4:]


def test_a_result_does_not_outlive_its_run(tmp_path, monkeypatch):
    """A finished run that is made longer is unfinished again."""
    fit(small(epochs=1), tmp_path, quiet=True)
    run_until(monkeypatch, small(), tmp_path, 6)
    assert Run(tmp_path).result is None


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ({"epochs": 1}, "`epochs` or `steps` to be no less than before.*has done 2 epochs and 6 steps"),
        ({"steps": 5}, "no less than before"),
        ({"epochs": 3}, "ended within an epoch"),
        ({"steps": 7}, "ended within an epoch"),
    ],
)
def test_lengths_that_cannot_be(tmp_path, length, message):
    def config(**length):
        return {key: value for key, value in small(**length).items() if key in length or key != "epochs"}

    fit(config(steps=6), tmp_path, quiet=True)
    kept = weights(tmp_path, 2)
    with pytest.raises(ValueError, match=message):
        fit(config(**length), tmp_path, resume=True, quiet=True)
    assert weights(tmp_path, 2) == kept
    assert fit(config(steps=6), tmp_path, resume=True).result["steps"] == 6


def test_a_finished_run_returns_at_once(tmp_path, monkeypatch):
    before = fit(small(epochs=1), tmp_path, quiet=True)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr("slimbayes.training.engine.Trainer", None)
    again = fit(small(epochs=1), tmp_path, resume=True, quiet=True)
    assert again.result == before.result
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def test_killed_between_the_last_checkpoint_and_the_result(tmp_path):
    before = fit(small(), tmp_path, quiet=True).result
    (tmp_path / "result.json").unlink()
    after = fit(small(), tmp_path, resume=True, quiet=True).result
    assert {**before, "time": None} == {**after, "time": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimiser": {"lr": 0.5}}, r"optimiser\.lr was 0\.001, now 0\.5"),
        ({"method": "mean_field"}, r"method\.name was 'rank1', now 'mean_field'"),
        ({"method": {"name": "rank1", "members": 2}}, r"method\.members was None, now 2"),
        ({"net": {"name": "mlp", "hidden": [17]}}, r"net\.hidden was \[16\], now \[17\]"),
        ({"seed": 1, "batch_size": 32}, "batch_size was 64, now 32; seed was 0, now 1"),
    ],
)
def test_another_configuration_is_refused(tmp_path, changes, message):
    fit(small(epochs=1), tmp_path, quiet=True)
    with pytest.raises(ValueError, match=message):
        fit(small(**{"epochs": 2, **changes}), tmp_path, resume=True, quiet=True)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    fit(small(epochs=1), tmp_path, quiet=True)
    kept = weights(tmp_path, 1)
    with pytest.raises(FileExistsError, match="holds a run already.*--resume"):
        fit(small(), tmp_path, quiet=True)
    assert weights(tmp_path, 1) == kept


def test_resuming_an_empty_folder_starts(tmp_path):
    assert fit(small(epochs=1), tmp_path / "new", resume=True, quiet=True).result["epochs"] == 1


def test_a_line_cut_off_is_dropped(tmp_path, monkeypatch):
    whole = fit(small(), tmp_path / "whole", quiet=True)
    run_until(monkeypatch, small(), tmp_path / "pieces", 7)
    with (tmp_path / "pieces" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "st')
    assert len(Run(tmp_path / "pieces").metrics) == 7
    pieces = fit(small(), tmp_path / "pieces", resume=True, quiet=True)
    assert without_speed(pieces.metrics) == without_speed(whole.metrics)


def test_random_state_of_all_generators(tmp_path):
    def draw():
        return random.random(), random.gauss(0, 1), np.random.standard_normal(), torch.randn(3).tolist()  # noqa: NPY002

    draw()
    torch.save(random_state(), tmp_path / "state.pt")
    expected = draw()
    restore_random_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert draw() == expected


def test_no_checkpoint_yet(tmp_path):
    assert Checkpoints(tmp_path).index() is None
    with pytest.raises(FileNotFoundError, match="no epoch has been completed yet"):
        Checkpoints(tmp_path).path("last")
    with pytest.raises(FileNotFoundError, match="There is no run"):
        Run.open(tmp_path)


def test_a_run_that_failed_before_its_first_checkpoint_can_be_put_right(tmp_path):
    with pytest.raises(ValueError, match="targets"):
        fit(small(likelihood="bernoulli", epochs=1), tmp_path, quiet=True)
    with pytest.raises(FileExistsError, match="resume"):
        fit(small(epochs=1), tmp_path, quiet=True)
    run = fit(small(epochs=1), tmp_path, resume=True, quiet=True)
    assert run.config.likelihood is None
    assert run.result["epochs"] == 1


def test_opening_a_run_leaves_the_generators_alone(tmp_path):
    run = fit(small(epochs=1), tmp_path, quiet=True)
    before = torch.get_rng_state()
    run.model()
    assert torch.equal(torch.get_rng_state(), before)


def test_processor_time_adds_up_over_interruptions(monkeypatch, tmp_path):
    """The clock says 10 seconds for every epoch, in whatever process."""
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr("slimbayes.training.trainer.time.process_time", lambda: float(next(clock)))
    run = run_interrupted(monkeypatch, small(), tmp_path / "run", 6, 10)  # in the second epoch, and in the third
    assert run.result["cpu_seconds"] == 30.0


def test_runs_of_before_do_not_know_their_processor_time(monkeypatch, tmp_path):
    run_until(monkeypatch, small(), tmp_path / "run", 6)
    whole = Checkpoints.state

    def without(self):
        state = whole(self)
        del state["cpu_seconds"]
        return state

    monkeypatch.setattr(Checkpoints, "state", without)
    assert fit(small(), tmp_path / "run", resume=True, quiet=True).result["cpu_seconds"] is None
