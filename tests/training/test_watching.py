"""What a run sees of its bound, its standard deviations and its gradients, against loops written out."""

import math

import pytest
import torch
from torch.nn import functional as F

import slimbayes as sb
from reproductions.measurements import look_at
from reproductions.study import Look
from slimbayes.data import load_data
from slimbayes.training import fit
from slimbayes.training._variational_scores import variational_scores

CONFIG = {
    "data": {"name": "digits", "train_limit": 400},
    "net": {"name": "mlp", "hidden": [16]},
    "method": {"name": "k_tied", "k": 2},
    "annealing": "none",
    "batch_size": 50,
    "epochs": 3,
    "evaluation": {"every": 3},
    "watch": {"every": 4, "samples": 2, "snr": [12, 24], "window": 6},
}


def watched(run):
    return [(line["step"], line["watch"]) for line in run.metrics if "watch" in line]


def test_lines_come_at_their_steps_and_training_is_left_alone(tmp_path):
    run = fit(CONFIG, tmp_path / "watched", quiet=True)
    plain = fit({**CONFIG, "watch": {}}, tmp_path / "plain", quiet=True)
    lines = watched(run)
    assert [step for step, _ in lines] == [1, 4, 8, 12, 16, 20, 24]
    assert [step for step, seen in lines if "snr" in seen] == [12, 24]
    seconds = [line["seconds"] for line in run.metrics if "watch" in line]
    assert seconds == sorted(seconds)
    for one, other in zip(run.model("last").parameters(), plain.model("last").parameters(), strict=True):
        assert torch.equal(one, other)


def test_interrupted_windows_go_on(tmp_path):
    whole = fit(CONFIG, tmp_path / "whole", quiet=True)
    fit({**CONFIG, "epochs": 1}, tmp_path / "parts", quiet=True)  # ends after step 8, in the first window
    parts = fit(CONFIG, tmp_path / "parts", resume=True, quiet=True)
    assert watched(parts) == watched(whole)


def test_a_closed_window_is_not_stored(tmp_path):
    run = fit(CONFIG, tmp_path, quiet=True)  # the last window ends with the last step
    assert run.checkpoints.state()["watch"] == {}


def test_a_window_goes_on_where_the_model_is():
    model = sb.mean_field(torch.nn.Linear(3, 2))
    snr = sb.analysis.GradientSNR(model)
    model(torch.ones(4, 3)).sum().backward()
    snr.update()
    moved = sb.analysis.GradientSNR(model.to("meta"))
    moved.load_state_dict(snr.state_dict())
    assert {values.device.type for values in moved.state_dict()["means"].values()} == {"meta"}


def test_without_validation_examples_the_standard_deviations_are_watched(tmp_path):
    data = {**CONFIG["data"], "validation": 0}
    run = fit({**CONFIG, "data": data, "watch": {"every": 12}}, tmp_path, quiet=True)
    assert [(step, list(seen)) for step, seen in watched(run)] == [(step, ["scales"]) for step in (1, 12, 24)]
    assert [point["step"] for point in look_at(run.folder, Look(samples=1))["curve"]] == [1, 12, 24]


def test_last_look_is_at_the_last_weights(tmp_path):
    run = fit(CONFIG, tmp_path, quiet=True)
    model, seen = run.model("last"), watched(run)[-1][1]
    assert seen["kl_per_example"] == pytest.approx(model.kl().item() / 400, rel=1e-6)
    assert seen["negative_elbo"] == pytest.approx(seen["expected_nll"] + seen["kl_per_example"])
    scales = sb.analysis.posterior_matrices(model)
    for name, mean in seen["scales"].items():
        assert mean == pytest.approx(scales[name].scale.mean(), rel=1e-5)


def test_scores_against_a_loop_over_draws():
    data = load_data("digits")
    net = sb.nets.MLP(64, [16], 10)
    model = sb.mean_field(net, prior_std=0.3)
    sb.ELBO(model, 100, "categorical")
    scores = variational_scores(model, data.test, data, 100, samples=7, seed=3)
    (images,), targets = data.test.fetch(torch.arange(len(data.test)))
    (x,) = data.preparation(images)
    draws = model(x, samples=7, generator=torch.Generator().manual_seed(3))
    losses = torch.stack([F.cross_entropy(draw, targets, reduction="none") for draw in draws])
    probs = draws.softmax(-1).mean(0)
    n = len(targets)
    expected = {
        "expected_nll": losses.mean(0),
        "nll": F.nll_loss(probs.log(), targets, reduction="none"),
        "accuracy": (probs.argmax(-1) == targets).float(),
        "brier": ((probs - F.one_hot(targets, 10)) ** 2).sum(-1),
    }
    for name, values in expected.items():
        assert scores[name]["value"] == pytest.approx(values.mean().item(), rel=1e-4), name
        assert scores[name]["sem"] == pytest.approx(values.std().item() / math.sqrt(n), rel=1e-4), name
    bound = losses.mean().item() + model.kl().item() / 100
    assert scores["negative_elbo"]["value"] == pytest.approx(bound, rel=1e-5)
    assert scores["ece"]["value"] == pytest.approx(
        sb.metrics.expected_calibration_error(probs, targets).item(), rel=1e-3
    )


def test_yes_or_no_is_scored_as_two_classes():
    targets = torch.tensor([0.0, 1.0, 1.0])
    source = sb.data.Examples((torch.tensor([[0.0], [1.0], [-1.0]]),), targets)
    model = sb.mean_field(torch.nn.Linear(1, 1))
    sb.ELBO(model, 3, "bernoulli")

    class Plain:
        preparation = staticmethod(lambda *inputs: inputs)

    scores = variational_scores(model, source, Plain, 3, samples=0, seed=0)
    yes = model(source.inputs[0], samples=0)[0, :, 0].sigmoid()
    assert scores["brier"]["value"] == pytest.approx((2 * (yes - targets) ** 2).mean().item(), rel=1e-5)
    assert scores["nll"]["value"] == pytest.approx(F.binary_cross_entropy(yes, targets).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("watch", "message"),
    [({"snr": [5]}, "window"), ({"snr": [30, 20]}, "in order"), ({"every": 0}, "every")],
)
def test_wrong_watches_are_refused(watch, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fit({**CONFIG, "watch": watch}, tmp_path, quiet=True)


def test_a_model_without_spread_cannot_be_watched(tmp_path):
    with pytest.raises(ValueError, match="spread"):
        fit({**CONFIG, "method": "deterministic", "watch": {"every": 5}}, tmp_path, quiet=True)
