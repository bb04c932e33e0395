"""Figure 1: the weight priors that priors of a factor induce, against SciPy's distributions and Monte Carlo."""

import math
import sys

import matplotlib as mpl
import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Generator

import slimbayes as sb
from slimbayes.analysis import induced_weight_density, plot_induced_weight_priors
from slimbayes.priors import Prior

mpl.use("Agg")

WEIGHTS = torch.tensor([-6.0, -1.0, -0.2, -1e-4, 1e-4, 0.3, 0.9, 2.5, 10.0], dtype=torch.float64)


def horseshoe(w, scale):
    z = (w / scale) ** 2 / 2
    return np.exp(z) * special.exp1(z) / (scale * math.sqrt(2 * math.pi**3))


@pytest.mark.parametrize("weight_std", [1.0, 0.2])
@pytest.mark.parametrize(
    ("prior", "density"),
    [
        (Prior("delta", mean=1.0), lambda w, std: stats.norm(scale=std).pdf(w)),
        (Prior("delta", mean=-0.5), lambda w, std: stats.norm(scale=0.5 * std).pdf(w)),
        (Prior("inverse_gamma", std=0.7), lambda w, std: stats.t(3, scale=0.7 * std).pdf(w)),
        (Prior({"name": "inverse_gamma", "df": 9.0}, std=2.0), lambda w, std: stats.t(9, scale=2 * std).pdf(w)),
        (Prior("half_cauchy", std=1.0), horseshoe),
        # A product of two central normals: K_0(|w| / std) / (pi std).
        (Prior("normal", mean=0.0, std=1.0), lambda w, std: special.k0(np.abs(w) / std) / (math.pi * std)),
    ],
)
def test_well_known_distributions(prior, density, weight_std):
    weights = WEIGHTS[WEIGHTS.abs() < 5 * weight_std]  # exp(z) of the horseshoe overflows beyond
    expected = density(weights.numpy(), weight_std)
    np.testing.assert_allclose(induced_weight_density(weights, prior, weight_std).numpy(), expected, rtol=1e-9)


def test_at_zero():
    zero = torch.zeros(1, dtype=torch.float64)
    assert induced_weight_density(zero, Prior("inverse_gamma", std=1.0)).item() == pytest.approx(stats.t(3).pdf(0))
    # E[1 / r] / sqrt(2 pi) with r log-normal
    expected = math.exp(0.5**2 / 2) / math.sqrt(2 * math.pi)
    assert induced_weight_density(zero, Prior("log_normal", std=0.5)).item() == pytest.approx(expected, rel=1e-10)
    for family in ("normal", "cauchy", "half_cauchy"):
        assert induced_weight_density(zero, Prior(family, std=1.0)).item() == math.inf


SPREAD = [
    Prior("normal", mean=1.0, std=1.0),
    Prior("normal", mean=1.0, std=0.1),
    Prior("cauchy", mean=1.0, std=1.0),
    Prior("cauchy", mean=-0.5, std=1e-3),
    Prior("student_t", mean=1.0, std=0.1),
    Prior("log_normal", mean=1.0, std=0.5),
    Prior("horseshoe", mean=1.0, std=0.1),
    Prior("half_cauchy", std=0.3),
    Prior("inverse_gamma", std=1.0),
]


@pytest.mark.parametrize("prior", SPREAD, ids=str)
def test_mass_is_one_and_symmetric(prior):
    log_weight = torch.linspace(-40, 40, 1601, dtype=torch.float64)
    density = induced_weight_density(log_weight.exp(), prior)
    torch.testing.assert_close(induced_weight_density(-log_weight.exp(), prior), density, rtol=1e-12, atol=0)
    assert np.trapezoid(2 * density * log_weight.exp(), log_weight) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("prior", SPREAD, ids=str)
def test_draws_fall_where_the_density_says(prior):
    draws = 200_000
    generator = Generator().manual_seed(0)
    loc, scale = (torch.full((1,), value, dtype=torch.float64) for value in (prior.loc, prior.std))
    r = prior.family.transform(loc, scale, prior.family.noise((draws,), loc, generator))
    w = 0.5 * torch.randn(draws, dtype=torch.float64, generator=generator) * r
    edges = np.array([1e-6, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0])
    counts, _ = np.histogram(w.abs().numpy(), edges)
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        grid = torch.logspace(math.log10(low), math.log10(high), 400, dtype=torch.float64)
        mass = 2 * integrate.simpson(induced_weight_density(grid, prior, 0.5).numpy() * grid.numpy(), x=grid.log())
        assert count / draws == pytest.approx(mass, abs=4 * math.sqrt(mass * (1 - mass) / draws) + 1e-12)


def test_type_and_shape_are_the_weights():
    weights = torch.tensor([[0.5, -0.5, 1.0]])
    density = induced_weight_density(weights, "log_normal")
    assert density.dtype == torch.float32
    assert density.shape == (1, 3)
    torch.testing.assert_close(density, induced_weight_density(weights, Prior("log_normal")))


def test_a_trainable_scale_is_read():
    prior = Prior("normal", mean=0.0, std=0.1, trainable=True, dtype=torch.float64)
    prior.rho.data.fill_(math.log(math.expm1(2.0 - 1e-7)))
    expected = special.k0(np.abs(WEIGHTS.numpy()) / 2) / (2 * math.pi)
    np.testing.assert_allclose(induced_weight_density(WEIGHTS, prior).numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_wrong_weight_std(value):
    with pytest.raises(ValueError, match=r"`weight_std`.*" + str(value)):
        induced_weight_density(WEIGHTS, "normal", value)


# ---------------------------------------------------------------------- the figure


def curves(ax):
    return {line.get_label(): line.get_xydata() for line in ax.lines}


def test_figure_1():
    drawn = curves(plot_induced_weight_priors())
    assert list(drawn) == ["r = 1", "r ~ normal(1, 1)", "r ~ Cauchy(1, 1)", "r² ~ inverse-gamma(3/2, 3/2)"]
    w = drawn["r = 1"][:, 0]
    np.testing.assert_allclose(drawn["r = 1"][:, 1], stats.norm.pdf(w), rtol=1e-12)
    np.testing.assert_allclose(drawn["r² ~ inverse-gamma(3/2, 3/2)"][:, 1], stats.t(3).pdf(w), rtol=1e-9)
    # The caption: the Cauchy has less mass around 0 than the normal, and heavier tails.
    normal, cauchy = drawn["r ~ normal(1, 1)"][:, 1], drawn["r ~ Cauchy(1, 1)"][:, 1]
    assert (cauchy < normal)[np.abs(w) < 1].all()
    assert (cauchy > normal)[np.abs(w) > 3].all()


def test_own_axes_and_priors():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert plot_induced_weight_priors(ax, {"mine": Prior("half_cauchy", std=1.0)}, weight_std=2.0) is ax
    ((label, line),) = curves(ax).items()
    assert label == "mine"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mine"]
    np.testing.assert_allclose(line[:, 1], horseshoe(line[:, 0], 2.0), rtol=1e-9)


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "slimbayes\[report\]"'):
        plot_induced_weight_priors()


def test_importing_the_package_does_not_import_matplotlib():
    import subprocess

    code = "import sys, slimbayes; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sb.analysis.induced_weight_density is induced_weight_density
