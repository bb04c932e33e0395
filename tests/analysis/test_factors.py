"""What is said of rank-1 factors, against NumPy on their own parameters."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import nn

import slimbayes as sb
from slimbayes.analysis import factor_summary, member_distance, plot_factors, plot_member_distance

mpl.use("Agg")


def array(x):
    return x.detach().double().numpy()


def softplus(rho):
    return np.log1p(np.exp(array(rho))) + 1e-7


def net():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Conv1d(1, 4, 3))


NAMES = ["0.input_factor", "0.output_factor", "2.input_factor", "2.output_factor"]


@pytest.mark.parametrize("rank", [1, 2])
def test_locations_and_scales(rank):
    model = sb.rank1(net(), members=3, rank=rank)
    summary = factor_summary(model)
    assert list(summary) == NAMES
    factor, found = model.net[0].output_factor, summary["0.output_factor"]
    location, scale = array(factor.loc), softplus(factor.rho)
    assert location.shape == ((3, 5) if rank == 1 else (3, rank, 5))
    np.testing.assert_array_equal(found.location, location)
    np.testing.assert_allclose(found.scale, scale, rtol=1e-5)
    np.testing.assert_allclose(found.low, location - scale, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.high, location + scale, rtol=1e-5, atol=1e-6)
    assert found.mean_location == pytest.approx(location.mean())
    assert found.mean_scale == pytest.approx(scale.mean(), rel=1e-5)


def test_log_normal_factors_are_reported_as_values():
    model = sb.rank1(nn.Linear(6, 5).double(), members=3, family="log_normal", dropout_rate=0.2)
    factor, found = model.net.input_factor, factor_summary(model)["input_factor"]
    log, scale = array(factor.loc), softplus(factor.rho)
    np.testing.assert_allclose(found.location, np.exp(log), rtol=1e-12)
    np.testing.assert_allclose(found.scale, scale, rtol=1e-12)
    np.testing.assert_allclose(found.low, np.exp(log - scale), rtol=1e-12)
    np.testing.assert_allclose(found.high, np.exp(log + scale), rtol=1e-12)


def test_clipped_factors_are_reported_as_they_are_drawn():
    model = sb.rank1(nn.Linear(60, 5).double(), members=3, family="cauchy", dropout_rate=0.4, clip=1.2)
    factor, found = model.net.input_factor, factor_summary(model)["input_factor"]
    location, scale = array(factor.loc), softplus(factor.rho)
    assert location.max() > 1.2
    for values, unclipped in (
        (found.location, location),
        (found.low, location - scale),
        (found.high, location + scale),
    ):
        np.testing.assert_allclose(values, np.clip(unclipped, -1.2, 1.2), rtol=1e-10)


def test_points_have_no_scale():
    model = sb.batch_ensemble(nn.Linear(6, 5), members=3)
    found = factor_summary(model)["input_factor"]
    assert found.mean_scale == 0
    for values in (found.location, found.low, found.high):
        np.testing.assert_array_equal(values, array(model.net.input_factor.loc))


@pytest.mark.parametrize("convert", [sb.mean_field, sb.k_tied])
@pytest.mark.parametrize("tool", [factor_summary, member_distance, plot_factors, plot_member_distance])
def test_models_without_factors(convert, tool):
    model = convert(nn.Linear(3, 2))
    with pytest.raises(ValueError, match=rf"`model`.*rank-1 factors.*{model.method} model has none.*sb.rank1"):
        tool(model)


# ---------------------------------------------------------------------- distances


@pytest.mark.parametrize(
    ("convert", "options"),
    [(sb.rank1, {}), (sb.rank1, {"rank": 2}), (sb.batch_ensemble, {"init": "sign"}), (sb.rank1, {"members": 1})],
)
def test_distances_are_root_mean_squares(convert, options):
    model = convert(net().double(), **{"members": 4, **options})
    distances = member_distance(model)
    assert list(distances) == [*NAMES, "all"]
    flat = {
        f"{layer}.{side}_factor": array(getattr(model.net[layer], f"{side}_factor").loc).reshape(model.members, -1)
        for layer in (0, 2)
        for side in ("input", "output")
    }
    flat["all"] = np.concatenate([flat[name] for name in NAMES], axis=1)
    for name, values in flat.items():
        expected = cdist(values, values) / np.sqrt(values.shape[1])
        np.testing.assert_allclose(distances[name], expected, rtol=1e-10, atol=1e-15)


def test_members_that_are_alike_are_at_distance_zero():
    model = sb.rank1(nn.Linear(6, 5), members=3, init="ones")
    for distances in member_distance(model).values():
        np.testing.assert_array_equal(distances, np.zeros((3, 3)))


# ---------------------------------------------------------------------- figures


def test_the_figure_of_distances():
    from matplotlib.figure import Figure

    model = sb.rank1(net(), members=4)
    distances = member_distance(model)
    ax = plot_member_distance(model)
    np.testing.assert_array_equal(ax.images[0].get_array(), distances["all"])
    assert ax.images[0].get_clim()[0] == 0
    mine = Figure().subplots()
    assert plot_member_distance(distances, "2.input_factor", mine) is mine
    np.testing.assert_array_equal(mine.images[0].get_array(), distances["2.input_factor"])
    with pytest.raises(ValueError, match=r"`layer`.*'2.input_factor'.*'2'"):
        plot_member_distance(distances, "2")


@pytest.mark.parametrize("rank", [1, 2])
def test_the_figure_of_factors(rank):
    from matplotlib.figure import Figure

    model = sb.rank1(net(), members=3, rank=rank)
    summary = factor_summary(model)
    mine = Figure().subplots()
    assert plot_factors(summary, "0.output_factor", mine) is mine
    for ax in (mine, plot_factors(model, "0.output_factor")):
        found = summary["0.output_factor"]
        for member, (line, shade) in enumerate(zip(ax.lines, ax.collections, strict=True)):
            np.testing.assert_array_equal(line.get_ydata(), found.location[member].ravel())
            edges = shade.get_paths()[0].vertices[:, 1]
            assert edges.min() == pytest.approx(found.low[member].min())
            assert edges.max() == pytest.approx(found.high[member].max())
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["member 0", "member 1", "member 2"]
    with pytest.raises(ValueError, match=r"`layer`.*'0.input_factor'.*None"):
        plot_factors(model)


def test_half_precision():
    model = sb.rank1(nn.Linear(6, 5), members=3).to(torch.bfloat16)
    found = factor_summary(model)["input_factor"]
    assert found.location.dtype == np.float64
    np.testing.assert_array_equal(found.location, array(model.net.input_factor.loc))
