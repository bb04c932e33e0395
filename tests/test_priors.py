"""Priors of factors, and where factors start, against SciPy's distributions and the reference's numbers."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

import slimbayes as sb
from slimbayes.families import SCALE_EPSILON, inverse_softplus, softplus_scale
from slimbayes.layers import Factor, FactorOptions
from slimbayes.priors import Prior

VALUES = torch.tensor([0.05, 0.9, 1.0001, 1.3, 6.0], dtype=torch.float64)


def log_prob(prior: Prior) -> np.ndarray:
    return prior.distribution(VALUES).log_prob(VALUES).detach().numpy()


def mixture_density(x: float, scale_density, mean: float = 1.0) -> float:
    """The density of N(mean, tau^2) with tau integrated out, over log tau."""
    centre = math.log(abs(x - mean))
    pieces = [(centre - 6, centre), (centre, centre + 3), (centre + 3, centre + 40)]
    return sum(
        integrate.quad(
            lambda u: stats.norm.pdf(x, mean, math.exp(u)) * scale_density(math.exp(u)) * math.exp(u),
            *piece,
            epsabs=0,
            epsrel=1e-10,
            limit=200,
        )[0]
        for piece in pieces
    )


# ---------------------------------------------------------------------- distributions


@pytest.mark.parametrize(
    ("family", "distribution"),
    [
        ("normal", lambda std: stats.norm(0.8, std)),
        ("cauchy", lambda std: stats.cauchy(0.8, std)),
        ({"name": "student_t", "df": 4.0}, lambda std: stats.t(4, 0.8, std)),
        ("log_normal", lambda std: stats.lognorm(std, scale=0.8)),
        ("half_cauchy", lambda std: stats.halfcauchy(scale=std)),
    ],
)
@pytest.mark.parametrize("trainable", [False, True])
def test_prior_of_a_family(family, distribution, trainable):
    prior = Prior(family, mean=0.8, std=0.3, trainable=trainable, dtype=torch.float64)
    start = 0.3 + SCALE_EPSILON if trainable else 0.3
    np.testing.assert_allclose(log_prob(prior), distribution(start).logpdf(VALUES), rtol=1e-10)
    assert [name for name, _ in prior.named_parameters()] == (["rho"] if trainable else [])
    assert prior.penalty() is None


@pytest.mark.parametrize("df", [1.0, 3.0, 8.0])
def test_an_inverse_gamma_variance_makes_a_student_t(df):
    prior = Prior("normal", mean=1.0, std=0.2, scale_prior="inverse_gamma", df=df)
    np.testing.assert_allclose(log_prob(prior), stats.t(df, 1.0, 0.2).logpdf(VALUES), rtol=1e-12)
    variance = stats.invgamma(df / 2, scale=df / 2 * 0.2**2)
    density = mixture_density(1.3, lambda tau: variance.pdf(tau**2) * 2 * tau)
    assert log_prob(prior)[3] == pytest.approx(math.log(density), rel=1e-8)


def test_a_half_cauchy_scale_makes_a_horseshoe():
    prior = Prior("normal", mean=1.0, std=0.2, scale_prior="half_cauchy")
    density = [mixture_density(x, stats.halfcauchy(scale=0.2).pdf) for x in VALUES.tolist()]
    np.testing.assert_allclose(log_prob(prior), np.log(density), rtol=1e-7)


# ---------------------------------------------------------------------- a trainable scale


@pytest.mark.parametrize("tau", [0.02, 0.3, 2.0])
@pytest.mark.parametrize(
    ("scale_prior", "log_density"),
    [
        ("half_cauchy", lambda tau: stats.halfcauchy(scale=0.1).logpdf(tau)),
        # The density of tau^2, times |d tau^2 / d tau| = 2 tau.
        ("inverse_gamma", lambda tau: stats.invgamma(1.5, scale=1.5 * 0.01).logpdf(tau**2) + math.log(2 * tau)),
    ],
)
def test_penalty_is_the_log_density_of_the_scale(scale_prior, log_density, tau):
    prior = Prior("normal", std=0.1, trainable=True, scale_prior=scale_prior, dtype=torch.float64)
    with torch.no_grad():
        prior.rho.fill_(inverse_softplus(tau - SCALE_EPSILON))
    penalty = prior.penalty()
    assert penalty.item() == pytest.approx(-log_density(tau), rel=1e-10)
    penalty.backward()
    step = 1e-5 * tau
    derivative = -(log_density(tau + step) - log_density(tau - step)) / (2 * step)
    assert prior.rho.grad.item() == pytest.approx(derivative * torch.sigmoid(prior.rho).item(), rel=1e-6)


@pytest.mark.parametrize("scale_prior", ["half_cauchy", "inverse_gamma"])
def test_the_penaltys_density_has_mass_one(scale_prior):
    prior = Prior("normal", std=0.1, trainable=True, scale_prior=scale_prior)
    log_tau = np.linspace(-25, 25, 2001)
    prior.rho = nn.Parameter(torch.tensor([inverse_softplus(tau) for tau in np.exp(log_tau)]))
    density = (-prior.penalty()).exp().detach().numpy() * np.exp(log_tau)
    assert np.trapezoid(density, log_tau) == pytest.approx(1, abs=1e-5)


def test_a_trained_scale_is_the_posteriors_second_moment():
    # For normals, d KL / d tau = 0 at tau^2 = mean(scale^2 + (loc - mean)^2): empirical Bayes.
    factor = Factor(50, FactorOptions(members=3, prior_scale="trainable", dropout_rate=0.1), dtype=torch.float64)
    best = (factor.scale.square() + (factor.loc - 1).square()).mean().sqrt().item()
    for tau, sign in ((best / 2, -1), (best, 0), (best * 2, 1)):
        factor.prior.rho.data.fill_(inverse_softplus(tau - SCALE_EPSILON))
        (gradient,) = torch.autograd.grad(factor.kl().sum(), factor.prior.rho)
        expected = 150 * (1 / tau - best**2 / tau**3) * torch.sigmoid(factor.prior.rho).item()
        assert gradient.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert (gradient.item() > 1e-9) - (gradient.item() < -1e-9) == sign


@pytest.mark.parametrize("member_kl", ["sum", "mean"])
def test_a_model_counts_each_penalty_once(member_kl):
    model = sb.rank1(nn.Linear(4, 3), members=5, prior_scale="trainable", scale_prior="half_cauchy", prior_std=0.1)
    layer = model.net
    expected = 0.0
    for factor in (layer.input_factor, layer.output_factor):
        tau = softplus_scale(factor.prior.rho).item()
        loc, scale = factor.loc.detach().double(), factor.scale.detach().double()
        divergence = torch.log(tau / scale) + (scale**2 + (loc - 1) ** 2) / (2 * tau**2) - 0.5
        expected += divergence.sum().item() / (5 if member_kl == "mean" else 1)
        expected -= stats.halfcauchy(scale=0.1).logpdf(tau)
    assert model.kl(member_kl).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 0.03, 1.0, 50.0])
def test_inverse_softplus(scale):
    rho = torch.tensor(inverse_softplus(scale), dtype=torch.float64)
    assert softplus_scale(rho).item() == pytest.approx(scale + 1e-7, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"std": 0.0}, ["`prior_std`", "0.0"]),
        ({"std": math.inf}, ["`prior_std`", "inf"]),
        ({"mean": math.nan}, ["`prior_mean`", "nan"]),
        ({"family": "inverse gamma"}, ["`prior_family`", "'inverse gamma'", "'inverse_gamma'?"]),
        ({"scale_prior": "half_couchy"}, ["`scale_prior`", "'half_couchy'", "'half_cauchy'?"]),
        ({"family": "cauchy", "scale_prior": "half_cauchy"}, ["`prior_family`", "'cauchy'", "'normal'", "trainable"]),
        ({"scale_prior": "inverse_gamma", "df": 0.0}, ["`df`", "0.0"]),
        ({"scale_prior": "inverse_gamma", "df": -1.0, "trainable": True}, ["`df`", "-1.0"]),
        ({"family": "log_normal", "mean": -1.0}, ["`prior_mean`", "-1.0", "positive"]),
    ],
)
def test_errors_name_argument_and_value(arguments, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        Prior(**arguments)
    for word in words:
        assert word in str(error.value)


# ---------------------------------------------------------------------- where factors start (sections 3.2, 3.5)

WIDE = 20_000


def factor(**options) -> Factor:
    return Factor(WIDE, FactorOptions(members=2, **options), dtype=torch.float64)


@pytest.mark.parametrize(
    ("rate", "scale", "rho"),
    [(1e-3, 0.031639, -3.43752), (1e-6, 1e-3, -6.90725), (5e-7, 0.00070711, -7.25398), (0.1, 0.33333, -0.92732)],
)
def test_scale_starts_at_the_dropout_rate(rate, scale, rho):
    for family in ("cauchy", "student_t"):  # no jitter
        started = factor(family=family, dropout_rate=rate)
        assert started.rho.unique().item() == pytest.approx(rho, abs=1e-5)
        assert started.scale.unique().item() == pytest.approx(scale + 1e-7, rel=2e-5)
    for family in ("normal", "log_normal"):
        jitter = (factor(family=family, dropout_rate=rate).rho - rho).detach().flatten().numpy()
        assert stats.kstest(jitter, stats.truncnorm(-2, 2, scale=0.1).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("options", "squared_distance", "spread", "anchor"),
    [
        # Reference-semantics 2.5: CIFAR-10 as tuned, the script's default signs, CIFAR-100, ImageNet.
        ({"init_spread": 0.5}, 0.25, 0.25 * math.sqrt(2), 13.2),
        ({"init": "sign"}, 2.0, 2.0, 100.7),
        ({"init_spread": 1.0}, 1.0, math.sqrt(2), 50.7),
        ({"init_spread": 0.75, "prior_std": 0.05}, 0.5625, 0.5625 * math.sqrt(2), 112.7),
    ],
)
def test_kl_at_the_start(options, squared_distance, spread, anchor):
    prior_std = options.get("prior_std", 0.1)
    jitter = stats.truncnorm(-2, 2, loc=-3.43752, scale=0.1)
    log_scale = jitter.expect(lambda rho: np.log(np.log1p(np.exp(rho))))
    variance = jitter.expect(lambda rho: np.log1p(np.exp(rho)) ** 2)
    expected = math.log(prior_std) - log_scale + (variance + squared_distance) / (2 * prior_std**2) - 0.5
    assert expected == pytest.approx(anchor, abs=0.05)
    kl = factor(dropout_rate=1e-3, **options).kl().sum().item() / (2 * WIDE)
    assert kl == pytest.approx(expected, abs=4 * spread / (2 * prior_std**2) / math.sqrt(2 * WIDE))
