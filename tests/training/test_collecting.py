"""Methods whose members are whole networks, in the engine: against runs of a single plain network."""

import pytest
import torch
from training_runs import small

import slimbayes as sb
from slimbayes.mcmc import CyclicalRate
from slimbayes.training import fit
from slimbayes.training._collecting import Collector
from slimbayes.training.config import Collect
from slimbayes.training.loop import Loop
from slimbayes.training.trainer import Trainer

SGD = {"name": "sgd", "lr": 0.1, "weight_decay": 0.01, "clip_norm": 0.5}


def trained(folder, epochs=3, **changes):
    return fit(small(epochs=epochs, **changes), folder, quiet=True)


def plain_weights(folder, epochs):
    """Return the weights that the plain network has after so many epochs."""
    run = trained(folder / f"plain-{epochs}", epochs, method="deterministic", optimiser=SGD)
    return torch.cat([p.detach().flatten() for p in run.model("last").net.parameters()])


@pytest.mark.parametrize(
    ("collect", "expected"),
    [
        ({"start": 0.5, "every": 1}, [8, 12]),
        ({"start": 0.0, "every": 1}, [4, 8, 12]),
        ({"start": 0.75, "every": 0.25}, [10, 11, 12]),
        ({"start": 0.9, "every": 5}, [12]),
    ],
)
def test_times_are_counted_back_from_the_end(collect, expected):
    collector = Collector(Collect(**collect), steps=12, steps_per_epoch=4)
    assert [step for step in range(1, 13) if collector.due(step)] == expected


def test_cycles_collect_in_their_sampling_stages():
    cycles = CyclicalRate(steps=20, cycles=2, exploration=0.5)
    collector = Collector(Collect(every=0.5), 20, 4, cycles)
    assert [step for step in range(1, 21) if collector.due(step)] == [6, 8, 10, 16, 18, 20]
    assert collector.begins == 5


def test_a_member_of_an_ensemble_trains_as_if_it_were_alone(tmp_path):
    """The first member starts where the plain network does, and is clipped and decayed by its own gradient."""
    run = trained(tmp_path / "ensemble", method={"name": "deep_ensemble", "members": 3}, optimiser=SGD)
    first = run.model("last").net.networks[0]
    found = torch.cat([p.detach().flatten() for p in first.parameters()])
    torch.testing.assert_close(found, plain_weights(tmp_path, 3), rtol=1e-5, atol=1e-6)


def test_swag_averages_the_weights_of_a_plain_run(tmp_path):
    collect = {"start": 0.1, "every": 1}
    run = trained(tmp_path / "swag", method={"name": "swag", "rank": 2}, optimiser=SGD, collect=collect)
    passed = torch.stack([plain_weights(tmp_path, epochs) for epochs in (1, 2, 3)])
    posterior = run.model("last").net.posterior
    assert posterior.collected == 3
    torch.testing.assert_close(posterior.location()[0], passed.mean(0), rtol=1e-5, atol=1e-6)
    assert run.checkpoints.index().best == run.checkpoints.index().last


def test_the_base_rests_while_factors_are_collected(tmp_path):
    changes = {
        "method": {"name": "sgmcmc", "over": "factors", "members": 2, "keep": 8},
        "optimiser": {"name": "sghmc", "lr": 0.1, "factor_lr": 0.01},
        "collect": {"start": 0.5, "every": 0.25},
        "steps": 8,
    }
    models = [trained(tmp_path / str(steps), None, **{**changes, "steps": steps}).model("last") for steps in (4, 8)]
    # Half of 8 steps train the base; of 4 steps, two.
    bases = [model.net[1].weight for model in models]
    assert not torch.equal(*bases)
    assert models[1].collected == 4
    resting = trained(tmp_path / "rest", None, **{**changes, "collect": {"start": 0.0, "every": 0.25}}).model("last")
    untrained = trained(tmp_path / "none", 1, method="deterministic", optimiser={"name": "sgd", "lr": 1e-30})
    torch.testing.assert_close(resting.net[1].weight, untrained.model("last").net[1].weight)


def test_validation_before_anything_is_collected_scores_the_weights(tmp_path):
    run = trained(tmp_path / "swag", method={"name": "swag"}, optimiser=SGD, collect={"start": 0.4, "every": 1})
    plain = trained(tmp_path / "plain", 1, method="deterministic", optimiser=SGD)
    (first,) = [line["validation"] for line in run.metrics if "validation" in line and line["epoch"] == 1]
    (alone,) = [line["validation"] for line in plain.metrics if "validation" in line]
    assert first == pytest.approx(alone)


@pytest.mark.parametrize("method", ["swag", "subspace"])
def test_a_run_cut_short_must_have_collected_enough(tmp_path, method, monkeypatch):
    """Of ten epochs six have passed without a snapshot: a run of seven has one, not the four of one from the start."""
    changes = {"method": method, "optimiser": SGD, "collect": {"start": 0.6, "every": 1}}
    finish = Trainer._finish_epoch

    def interrupted(self, epoch, means):
        finish(self, epoch, means)
        if epoch == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_finish_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, 10, **changes)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=f"{method} at least 2 times to collect, but got 1"):
        fit(small(epochs=7, **changes), tmp_path, resume=True, quiet=True)
    assert fit(small(epochs=8, **changes), tmp_path, resume=True, quiet=True).model().collected == 2


def test_the_noise_that_members_share_is_clipped_too(tmp_path, monkeypatch):
    """Where it is more than the bound, one SGD step moves it by the rate times the bound."""
    monkeypatch.setattr(Loop, "fit_scale", lambda *_: None)  # at the end of an epoch
    moved = []
    for clip in (1e-3, None):
        optimiser = {"name": "sgd", "lr": 0.1, "momentum": 0, "clip_norm": clip}
        changes = {"data": "diabetes", "method": {"name": "deep_ensemble", "members": 2}, "optimiser": optimiser}
        run = trained(tmp_path / str(clip), None, steps=1, **changes)
        moved.append(abs((run.checkpoints.state()["rho"] - sb.Gaussian().rho).item()))
    assert moved[0] == pytest.approx(1e-4, abs=1e-6)  # rounding at the size of the noise itself
    assert moved[1] > 1e-3


FAULTS = {
    "too few snapshots": ({"method": "swag", "collect": {"start": 0.9}}, ["`collect`", "swag", "2", "1"]),
    "a sampler without chains": ({"optimiser": "sgld"}, ["`optimiser.name`", "'sgld'", "'rank1'"]),
    "chains without a sampler": ({"method": "sgmcmc"}, ["`optimiser.name`", "'adam'", "sghmc"]),
    "two priors": (
        {"method": "sgmcmc", "optimiser": {"name": "sghmc", "weight_decay": 0.1}},
        ["`optimiser.weight_decay`", "0.1", "prior_std"],
    ),
    "a warm-up of cycles": ({"schedule": {"name": "cyclical", "warmup": 1}}, ["schedule", "cyclical", "warm-up"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_does_not_fit_is_named(tmp_path, name):
    changes, words = FAULTS[name]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        trained(tmp_path / "run", **changes)
    for word in words:
        assert word in str(error.value)
