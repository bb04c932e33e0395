"""Mean standard deviations over training, against means of materialised ones."""

import json

import matplotlib as mpl
import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.analysis import PosteriorDrift
from slimbayes.layers.scale import TiedScale

mpl.use("Agg")


class Net(nn.Module):
    """Layers of every shape, a padding token, and two layers that share their weight."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4, padding_idx=2)
        self.conv = nn.Conv1d(4, 5, 3)
        self.up = nn.ConvTranspose1d(5, 4, 3)
        self.lstm = nn.LSTM(4, 3)
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight


NAMES = ["embed", "conv", "up", "lstm.weight_ih_l0", "lstm.weight_hh_l0", "first"]


def scramble(model):
    """Give every standard deviation another size, as training would."""
    with torch.no_grad():
        for part in model.stochastic():
            for parameter in part.parameters():
                parameter.add_(torch.randn_like(parameter))


def materialised_means(model):
    posteriors = {name: getattr(model.net, name).weight_posterior for name in ("embed", "conv", "up", "first")}
    for name in ("weight_ih_l0", "weight_hh_l0"):
        posteriors[f"lstm.{name}"] = model.net.lstm.posteriors[name]
    means = {}
    for name, posterior in posteriors.items():
        scale = posterior.scale.detach().numpy()
        means[name] = np.delete(scale, 2, axis=0).mean() if name == "embed" else scale.mean()
    return means


@pytest.mark.parametrize(
    ("convert", "options"),
    [
        (sb.mean_field, {}),
        (sb.mean_field, {"max_std": 0.2}),
        (sb.k_tied, {"k": 1}),
        (sb.k_tied, {"k": 3, "max_std": 0.2}),
    ],
)
def test_means_are_those_of_materialised_standard_deviations(convert, options):
    model = convert(Net().double(), **options)
    drift, expected = PosteriorDrift(model), {name: [] for name in NAMES}
    for step in (0, 10, 25):
        drift.update(step)
        for name, mean in materialised_means(model).items():
            expected[name].append(mean)
        scramble(model)
    np.testing.assert_array_equal(drift.steps, [0, 10, 25])
    assert list(drift.scales) == NAMES
    for name, scales in drift.scales.items():
        np.testing.assert_allclose(scales, expected[name], rtol=1e-10)


def test_k_tied_standard_deviations_are_never_made(monkeypatch):
    drift = PosteriorDrift(sb.k_tied(nn.Linear(6, 5), k=2, init_std=0.04, init_jitter=0.0))
    monkeypatch.setattr(TiedScale, "values", lambda self: pytest.fail("sigma was materialised"))
    drift.update(0)
    assert drift.scales["weight"][0] == pytest.approx(0.04, rel=1e-5)


@pytest.mark.parametrize("rank", [1, 2])
def test_factors_of_a_rank1_model(rank):
    model = sb.rank1(nn.Linear(6, 5).double(), members=3, rank=rank)
    drift = PosteriorDrift(model)
    scramble(model)
    drift.update(1)
    assert list(drift.scales) == ["input_factor", "output_factor"]
    rho = model.net.output_factor.rho.detach().numpy()
    assert drift.scales["output_factor"][0] == pytest.approx((np.log1p(np.exp(rho)) + 1e-7).mean(), rel=1e-10)


def test_half_precision():
    model = sb.k_tied(nn.Linear(6, 5), k=2).to(torch.bfloat16)
    drift = PosteriorDrift(model)
    drift.update(0)
    spread = model.net.weight_posterior.spread
    expected = (spread.u.double() @ spread.v.double().T).mean().item()
    assert drift.scales["weight"][0] == pytest.approx(expected, rel=1e-5)


def test_a_resumed_run_continues():
    model = sb.mean_field(nn.Linear(4, 3))
    whole, first = PosteriorDrift(model), PosteriorDrift(model)
    for step in (0, 5):
        whole.update(step)
        first.update(step)
        scramble(model)
    state = json.loads(json.dumps(first.state_dict()))
    resumed = PosteriorDrift(model)
    resumed.load_state_dict(state)
    for drift in (whole, resumed):
        drift.update(9)
    assert whole.state_dict() == resumed.state_dict()
    assert state["steps"] == [0, 5]  # a copy: what comes later leaves it alone
    np.testing.assert_array_equal(whole.scales["weight"], resumed.scales["weight"])


def test_gradients_and_randomness_are_left_alone():
    model = sb.mean_field(nn.Linear(4, 3))
    drift, state = PosteriorDrift(model), torch.get_rng_state()
    drift.update(0)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_figure():
    model = sb.mean_field(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
    drift = PosteriorDrift(model)
    for step in (0, 10, 20):
        drift.update(step)
        scramble(model)
    ax = drift.plot(annealed_steps=15)
    (shade,) = ax.patches
    assert shade.get_extents().transformed(ax.transData.inverted()).intervalx == pytest.approx([0, 15])
    for line, name in zip(ax.lines, ("0", "1"), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.stack([drift.steps, drift.scales[name]], axis=1))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["annealing", "0", "1"]


def test_own_axes():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    drift = PosteriorDrift(sb.mean_field(nn.Linear(4, 3)))
    drift.update(0)
    assert drift.plot(ax) is ax
    assert not ax.patches
    assert len(ax.lines) == 1


@pytest.mark.parametrize("step", [-1, 1.5, True])
def test_wrong_step(step):
    with pytest.raises(ValueError, match=rf"`step`.*{step}"):
        PosteriorDrift(sb.mean_field(nn.Linear(4, 3))).update(step)


@pytest.mark.parametrize("step", [3, 5])
def test_steps_must_rise(step):
    drift = PosteriorDrift(sb.mean_field(nn.Linear(4, 3)))
    drift.update(5)
    with pytest.raises(ValueError, match=rf"`step`.*above the last one, 5, but got {step}.*load_state_dict"):
        drift.update(step)
    np.testing.assert_array_equal(drift.steps, [5])


def test_wrong_annealed_steps():
    drift = PosteriorDrift(sb.mean_field(nn.Linear(4, 3)))
    with pytest.raises(ValueError, match=r"`annealed_steps`.*0"):
        drift.plot(annealed_steps=0)


def test_a_record_of_another_model():
    other = PosteriorDrift(sb.mean_field(nn.Sequential(nn.Linear(4, 3)))).state_dict()
    with pytest.raises(ValueError, match=r"`state`.*\['0', 'weight'\]"):
        PosteriorDrift(sb.mean_field(nn.Linear(4, 3))).load_state_dict(other)


def test_points_have_no_spread():
    with pytest.raises(ValueError, match=r"`model`.*batch_ensemble model has none.*sb.mean_field"):
        PosteriorDrift(sb.batch_ensemble(nn.Linear(4, 3)))
