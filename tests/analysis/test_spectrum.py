"""Shares of variance, against matrices whose singular values are known."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from scipy.linalg import hadamard
from torch import nn

import slimbayes as sb
from slimbayes.analysis import explained_variance, plot_explained_variance

mpl.use("Agg")

VALUES = np.array([8.0, 3.0, 2.0, 1.0])
SHARES = VALUES**2 / (VALUES**2).sum()


def known_matrix():
    """Return an 8 x 4 matrix with the singular values 8, 3, 2, 1 and only positive entries."""
    left, right = hadamard(8)[:, :4] / np.sqrt(8), hadamard(4) / 2
    matrix = (left * VALUES) @ right.T
    assert matrix.min() > 0
    return torch.from_numpy(matrix)


def with_known_spectrum(layer):
    """Return a model whose standard deviations have that spectrum, and whose means have a flat one."""
    model = sb.mean_field(layer.double())
    posterior = model.net.weight_posterior
    sigma = known_matrix().T.reshape(4, *posterior.mean.shape[1:])
    with torch.no_grad():
        posterior.spread.log_scale.copy_(sigma.log())
        orthogonal = torch.from_numpy(hadamard(8)[:4] * 1.0)
        posterior.mean.copy_(orthogonal.reshape(posterior.mean.shape))
    return model


@pytest.mark.parametrize("layer", [nn.Linear(8, 4), nn.Conv2d(2, 4, 2), nn.Conv1d(4, 4, 2)])
def test_shares_of_a_known_spectrum(layer):
    shares = explained_variance(with_known_spectrum(layer))["weight"]
    np.testing.assert_allclose(shares.scale, SHARES, rtol=1e-10)
    np.testing.assert_allclose(shares.mean, np.full(4, 0.25), rtol=1e-10)


def test_shares_are_those_of_numpy_in_each_layer():
    model = sb.mean_field(nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3)), init_jitter=0.5)
    shares = explained_variance(model)
    assert list(shares) == ["0", "2"]
    for name in shares:
        layer = model.net[int(name)]
        for kind, tensor in {"mean": layer.weight, "scale": layer.weight_posterior.scale}.items():
            squares = np.linalg.svd(tensor.detach().double().numpy(), compute_uv=False) ** 2
            np.testing.assert_allclose(getattr(shares[name], kind), squares / squares.sum(), rtol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("layer", [nn.Linear(20, 10), nn.Conv2d(3, 10, 3), nn.ConvTranspose2d(3, 10, 3)])
def test_k_tied_posteriors_have_rank_k(layer, k):
    shares = explained_variance(sb.k_tied(layer.double(), k=k, init_jitter=0.5))["weight"]
    assert shares.scale[:k].min() > 1e-4
    assert shares.scale[k:].max() < 1e-28


def test_alike_members_are_explained_by_one_value():
    model = sb.rank1(nn.Linear(6, 5), members=3, init="ones")
    shares = explained_variance(model)
    np.testing.assert_allclose(shares["input_factor"].mean, [1, 0, 0], atol=1e-12)
    assert 0.3 < explained_variance(sb.rank1(nn.Linear(60, 5), init="sign", members=2))["input_factor"].mean[0] < 0.8


def test_points_have_no_variance_to_explain():
    shares = explained_variance(sb.batch_ensemble(nn.Linear(6, 5), members=3))
    np.testing.assert_array_equal(shares["input_factor"].scale, np.zeros(3))


def test_the_figure():
    model = with_known_spectrum(nn.Linear(8, 4))
    axes = plot_explained_variance(model, values=3)
    (line,) = axes[1].lines
    np.testing.assert_allclose(line.get_xydata(), np.stack([[1, 2, 3], SHARES[:3]], axis=1), rtol=1e-10)
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), np.full(3, 0.25), rtol=1e-10)
    assert [text.get_text() for text in axes[1].get_legend().get_texts()] == ["weight"]


def test_own_axes_and_computed_shares():
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 2)
    shares = explained_variance(with_known_spectrum(nn.Linear(8, 4)))
    assert plot_explained_variance({"mine": shares["weight"]}, axes) is axes
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), SHARES, rtol=1e-10)
