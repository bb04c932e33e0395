"""Heat maps, against NumPy's singular value decomposition."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.analysis import heat_maps, plot_heat_maps

mpl.use("Agg")


def spread_out(layer):
    """Return a model whose standard deviations differ by orders of magnitude."""
    model = sb.mean_field(layer.double())
    for part in model.stochastic():
        with torch.no_grad():
            part.spread.log_scale.normal_(-3, 2)
    return model


def approximation(matrix, rank):
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return np.maximum((left[:, :rank] * values[:rank]) @ right[:rank], 0)


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Linear(30, 20), (30, 20)), (nn.Conv2d(4, 20, 3), (36, 20)), (nn.Linear(30, 1), (30, 1))]
)
def test_maps_are_the_matrix_and_its_approximations(layer, shape):
    model = spread_out(layer)
    maps = heat_maps(model, ranks=(1, 2, 5))
    assert list(maps) == ["sigma", 1, 2, 5]
    sigma = model.net.weight_posterior.scale.detach().flatten(1).numpy().T
    assert sigma.shape == shape
    np.testing.assert_array_equal(maps["sigma"], sigma)
    for rank in (1, 2, 5):
        np.testing.assert_allclose(maps[rank], approximation(sigma, rank), rtol=1e-9, atol=1e-12)


def test_negative_entries_are_zero():
    maps = heat_maps(spread_out(nn.Linear(30, 20)))
    assert maps[1].min() > 0  # Perron and Frobenius
    assert maps[2].min() == 0


def test_the_layer_is_chosen_by_name():
    model = spread_out(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)))
    assert heat_maps(model, "1")["sigma"].shape == (5, 3)
    with pytest.raises(ValueError, match=r"`layer`.*'0', '1'.*None"):
        heat_maps(model)
    with pytest.raises(ValueError, match=r"`layer`.*'first'"):
        plot_heat_maps(model, "first")


def test_factors_of_a_rank1_model():
    model = sb.rank1(nn.Linear(6, 5), members=4)
    sigma = model.net.input_factor.scale.detach().double().numpy()
    np.testing.assert_array_equal(heat_maps(model, "input_factor")["sigma"], sigma)


@pytest.mark.parametrize("rank", [0, 1.5])
def test_wrong_ranks(rank):
    with pytest.raises(ValueError, match=rf"`ranks`.*at least 1.*{rank}"):
        heat_maps(sb.mean_field(nn.Linear(3, 2)), ranks=(1, rank))


def drawn(ax):
    (image,) = ax.images
    return image


def test_the_figure_has_one_scale_of_colours():
    model = spread_out(nn.Linear(30, 20))
    maps = heat_maps(model)
    axes = plot_heat_maps(model)
    assert [ax.get_title() for ax in axes] == ["σ", "rank 1", "rank 2"]
    for ax, matrix in zip(axes, maps.values(), strict=True):
        np.testing.assert_array_equal(drawn(ax).get_array(), matrix)
        assert drawn(ax).get_clim() == (0, max(matrix.max() for matrix in maps.values()))
    (bar,) = [ax for ax in axes[0].figure.axes if ax not in list(axes)]
    assert bar.get_ylim() == pytest.approx(drawn(axes[0]).get_clim())


@pytest.mark.parametrize("ranks", [(), (3,)])
def test_own_axes_and_computed_maps(ranks):
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 1 + len(ranks))
    maps = heat_maps(spread_out(nn.Linear(30, 20)), ranks=ranks)
    found = plot_heat_maps(maps, axes=axes)
    assert len(found) == 1 + len(ranks)
    for ax, matrix in zip(np.atleast_1d(axes), maps.values(), strict=True):
        np.testing.assert_array_equal(drawn(ax).get_array(), matrix)
