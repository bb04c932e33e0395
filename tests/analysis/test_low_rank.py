"""Standard deviations of low rank, against NumPy's singular value decomposition."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.analysis import explained_variance, low_rank
from slimbayes.analysis.low_rank import truncated_svd

LAYERS = {
    "linear": lambda: nn.Linear(9, 6),
    "conv": lambda: nn.Conv2d(3, 5, 2),
    "transposed": lambda: nn.ConvTranspose2d(3, 5, 2),
    "embedding": lambda: nn.Embedding(11, 5),
}


def mean_field(layer, **options):
    return sb.mean_field(layer.double(), init_jitter=0.3, **options)


def sigma(model):
    return model.net.weight_posterior.scale.detach()


def numpy_approximation(matrix, k):
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return left[:, :k] @ np.diag(values[:k]) @ right[:k]


def by_output(values, output_dim):
    """Return the matrix with a row for each output."""
    return np.moveaxis(values.numpy(), output_dim, 0).reshape(values.shape[output_dim], -1)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("layer", LAYERS)
def test_sigma_is_the_truncated_svd(layer, k):
    model = mean_field(LAYERS[layer]())
    before = by_output(sigma(model), model.net.weight_posterior.output_dim)
    after = by_output(sigma(low_rank(model, k)), model.net.weight_posterior.output_dim)
    np.testing.assert_allclose(after, np.maximum(numpy_approximation(before, k), 1e-7), rtol=1e-10, atol=1e-15)
    residual = np.linalg.norm(after - before)
    expected = math.sqrt((np.linalg.svd(before, compute_uv=False)[k:] ** 2).sum())
    assert residual == pytest.approx(expected, rel=1e-9)  # Eckart and Young; nothing was clamped here


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("k", [6, 100])
def test_full_rank_changes_nothing(layer, k):
    model = mean_field(LAYERS[layer]())
    torch.testing.assert_close(sigma(low_rank(model, k)), sigma(model), rtol=1e-12, atol=0)


@pytest.mark.parametrize("floor", [1e-7, 1e-3])
def test_negative_entries_become_the_floor(floor):
    model = mean_field(nn.Linear(30, 20))
    with torch.no_grad():
        model.net.weight_posterior.spread.log_scale.normal_(-3, 2)
    expected = numpy_approximation(sigma(model).numpy(), 2)
    assert expected.min() < 0
    approximated = low_rank(model, 2, floor)
    np.testing.assert_allclose(sigma(approximated).numpy(), np.maximum(expected, floor), rtol=1e-10)
    posterior = approximated.net.weight_posterior
    prior = torch.distributions.Normal(*torch.tensor([0.0, posterior.prior_std], dtype=torch.float64))
    divergence = torch.distributions.kl_divergence(posterior.distribution, prior).sum()
    assert posterior.kl().item() == pytest.approx(divergence.item(), rel=1e-10)


def test_the_model_is_not_touched_and_all_else_is_kept():
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    model = sb.mean_field(net, init_jitter=0.3)
    model.likelihood = sb.Categorical()
    before = copy.deepcopy(model.state_dict())
    approximated = low_rank(model, 1)
    after = approximated.state_dict()
    assert before.keys() == after.keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        changed = name in ("net.0.weight_posterior.spread.log_scale", "net.3.weight_posterior.spread.log_scale")
        assert torch.equal(after[name], before[name]) is not changed
        assert after[name].data_ptr() != value.data_ptr()
    assert approximated.method == "mean_field"
    assert approximated.predict(torch.randn(7, 2, 4, 4), samples=5, seed=0).probs.shape == (7, 3)
    assert approximated.kl().isfinite()
    for shares in explained_variance(approximated).values():
        assert shares.scale[0] == pytest.approx(1, abs=1e-10)


def test_draws_follow_the_approximation():
    model = mean_field(nn.Linear(4, 3, bias=False), init_std=0.5)
    approximated = low_rank(model, 1)
    draws = approximated.draw(20_000)["weight_posterior"]
    torch.testing.assert_close(draws.std(0), sigma(approximated), rtol=4 / math.sqrt(2 * 20_000), atol=0)


def test_a_padding_row_has_no_say():
    torch.manual_seed(3)
    model = mean_field(nn.Embedding(7, 4, padding_idx=2))
    with torch.no_grad():
        model.net.weight_posterior.spread.log_scale[2] = torch.tensor([3.0, -3.0, 2.0, 0.0])
    others = [0, 1, 3, 4, 5, 6]
    expected = numpy_approximation(sigma(model)[others].numpy(), 1)
    approximated = low_rank(model, 1)
    np.testing.assert_allclose(sigma(approximated)[others].numpy(), expected, rtol=1e-10)
    assert (sigma(approximated)[2] == 0).all()


def test_tied_weights_are_approximated_once():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    approximated = low_rank(sb.mean_field(net.double(), init_jitter=0.3), 1)
    assert approximated.net[0].weight_posterior is approximated.net[1].weight_posterior
    assert torch.linalg.matrix_rank(approximated.net[0].weight_posterior.scale) == 1


def test_untied_layers_of_a_k_tied_model():
    model = sb.k_tied(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 4)).double(), k=2, untied="1", init_jitter=0.3)
    approximated = low_rank(model, 1)
    assert torch.equal(approximated.net[0].weight_posterior.scale, model.net[0].weight_posterior.scale)
    assert torch.linalg.matrix_rank(approximated.net[1].weight_posterior.scale) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_precision_is_kept(dtype):
    matrix = torch.rand(6, 4).to(dtype)
    assert truncated_svd(matrix, 2).dtype == dtype
    expected = numpy_approximation(matrix.double().numpy(), 2)
    np.testing.assert_allclose(
        truncated_svd(matrix, 2).double().numpy(), expected, rtol=torch.finfo(dtype).eps, atol=1e-12
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, r"`k`.*at least 1.*0"),
        ({"k": 1.5}, r"`k`.*1.5"),
        ({"k": 1, "floor": 0.0}, r"`floor`.*above 0.*0.0"),
        ({"k": 1, "floor": -1.0}, r"`floor`.*-1.0"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        low_rank(sb.mean_field(nn.Linear(3, 2)), **options)


@pytest.mark.parametrize("convert", [sb.rank1, sb.k_tied, sb.batch_ensemble])
def test_models_without_free_standard_deviations(convert):
    model = convert(nn.Linear(3, 2))
    with pytest.raises(ValueError, match=rf"`model`.*{model.method} model.*sb.mean_field"):
        low_rank(model, 1)
