"""Densities and KL divergences against SciPy's special functions and adaptive quadrature."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import distributions as td

from slimbayes.distributions import Delta, Horseshoe, scaled_exponential_integral
from slimbayes.divergence import kl_divergence
from slimbayes.families import HalfCauchy, InverseGamma, LogNormal


def double(*values):
    return [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]


def quad(f, points, tolerance=1e-10):
    """Integrate from the first to the last of ``points``, adaptively between each two."""
    points = sorted(set(points))
    return sum(
        integrate.quad(f, a, b, epsabs=tolerance, epsrel=1e-11, limit=500)[0] for a, b in itertools.pairwise(points)
    )


@dataclass(frozen=True)
class LocationScale:
    """A location-scale distribution by its formula, which is far quicker to integrate than SciPy's objects.

    The scale of a positive distribution is in log space: x = loc + scale y, or x = exp(loc + scale y).
    """

    standard: Callable[[float], float]
    loc: float = 0.0
    scale: float = 1.0
    positive: bool = False

    def logpdf(self, x):
        log_jacobian = math.log(x * self.scale) if self.positive else math.log(self.scale)
        return self.standard(((math.log(x) if self.positive else x) - self.loc) / self.scale) - log_jacobian


def normal(loc, scale):
    return LocationScale(lambda y: -0.5 * y * y - 0.5 * math.log(2 * math.pi), loc, scale)


def log_normal(loc, scale):
    return replace(normal(loc, scale), positive=True)


def cauchy(loc, scale):
    return LocationScale(lambda y: -math.log(math.pi * (1 + y * y)), loc, scale)


def half_cauchy(scale):
    return LocationScale(lambda y: math.log(2 / math.pi) - math.log1p(y * y), 0.0, scale)


def student_t(df, loc, scale):
    constant = special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - 0.5 * math.log(df * math.pi)
    return LocationScale(lambda y: constant - (df + 1) / 2 * math.log1p(y * y / df), loc, scale)


def horseshoe(loc, scale):
    def standard(y):
        z = y * y / 2
        if z > 500:
            scaled = math.log1p(-1 / z + 2 / z**2 - 6 / z**3 + 24 / z**4) - math.log(z)
        else:
            scaled = math.log(special.exp1(z)) + z
        return scaled - 0.5 * math.log(2 * math.pi**3)

    return LocationScale(standard, loc, scale)


@pytest.mark.parametrize(
    ("oracle", "scipys"),
    [
        (normal(0.3, 0.2), stats.norm(0.3, 0.2)),
        (log_normal(0.3, 0.2), stats.lognorm(0.2, scale=math.exp(0.3))),
        (cauchy(0.3, 0.2), stats.cauchy(0.3, 0.2)),
        (half_cauchy(0.2), stats.halfcauchy(scale=0.2)),
        (student_t(5, 0.3, 0.2), stats.t(5, 0.3, 0.2)),
    ],
)
def test_the_oracles_are_scipys_distributions(oracle, scipys):
    assert [oracle.logpdf(x) for x in (0.1, 1.0, 7.0)] == pytest.approx(scipys.logpdf([0.1, 1.0, 7.0]), rel=1e-12)


PRIORS = {
    "cauchy": (td.Cauchy, cauchy),
    "student_t": (lambda loc, scale: td.StudentT(3.0, loc, scale), partial(student_t, 3.0)),
    "horseshoe": (Horseshoe, horseshoe),
}


def kl_by_quadrature(q, p, power=1):
    """E_q[(log q - log p)^power] by adaptive quadrature, cut where either density bends."""
    centre, width = p.loc, p.scale
    if q.positive and not p.positive:
        centre, width = (math.log(p.loc), p.scale / p.loc) if p.loc > 0 else (math.log(p.scale), 1.0)
    centre, width = (centre - q.loc) / q.scale, width / q.scale

    def integrand(u):
        y = centre + width * math.sinh(u)
        log_q = q.standard(y)
        if log_q < -300:
            return 0.0
        if q.positive:
            x = math.exp(q.loc + q.scale * y)
            ratio = q.logpdf(x) - p.logpdf(x)
        else:  # sinh(u) is exact where x - loc would round to p's pole
            ratio = log_q - math.log(q.scale) - p.standard(math.sinh(u)) + math.log(p.scale)
        return math.exp(log_q) * ratio**power * width * math.cosh(u)

    ends = [math.asinh((y - centre) / width) for y in (-1e15, -300.0, -9.0, -3.0, 0.0, 3.0, 9.0, 300.0, 1e15)]
    return quad(integrand, [*ends, *(cut for cut in (-5.0, 0.0, 5.0) if ends[0] < cut < ends[-1])])


# ---------------------------------------------------------------------- the exponential integral


def test_scaled_exponential_integral_is_scipys():
    z = torch.logspace(-12, 2.5, 300, dtype=torch.float64)
    expected = special.exp1(z.numpy()) * np.exp(z.numpy())
    np.testing.assert_allclose(scaled_exponential_integral(z).numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(scaled_exponential_integral(z.float()).numpy(), expected, rtol=3e-6)


@pytest.mark.parametrize("z", [1e-12, 1e-6, 0.01, 0.5, 0.999, 1.0, 1.001, 3.0, 50.0, 99.9, 100.0, 300.0, 1e3])
def test_scaled_exponential_integral_and_gradient_by_laplace_transform(z):
    (argument,) = double(z)
    value = scaled_exponential_integral(argument)
    value.backward()
    # f(z) = int exp(-t) / (z + t) dt, with t = exp(u)
    cuts = [-60.0, math.log(z), 0.0, 1.0, 2.0, 5.0]
    expected = quad(lambda u: math.exp(u - math.exp(u)) / (z + math.exp(u)), cuts, 1e-14)
    derivative = -quad(lambda u: math.exp(u - math.exp(u)) / (z + math.exp(u)) ** 2, cuts, 1e-14)
    assert value.item() == pytest.approx(expected, rel=1e-10)
    assert argument.grad.item() == pytest.approx(derivative, rel=1e-9)
    assert argument.grad.item() == pytest.approx(value.item() - 1 / z, rel=1e-9)


def test_scaled_exponential_integral_keeps_float32_gradients_for_far_values():
    z = torch.tensor([150.0, 1e4, 1e7, 1e9], requires_grad=True)
    scaled_exponential_integral(z).sum().backward()
    exact = z.detach().double()
    torch.testing.assert_close(z.grad.double(), -(1 - 2 / exact + 6 / exact**2) / exact**2, rtol=1e-5, atol=0)


def test_scaled_exponential_integral_has_second_derivatives():
    z = torch.tensor([1e-3, 0.3, 1.5, 30.0, 250.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(scaled_exponential_integral, z)


# ---------------------------------------------------------------------- the horseshoe


@pytest.mark.parametrize("scale", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("distance", [1e-6, 0.03, 1.0, 20.0])
def test_horseshoe_density_is_the_integral_over_its_scale(scale, distance):
    (x,) = double(1.0 + distance)
    distance = x.item() - 1.0

    def at_log_scale(u):
        return (
            stats.norm.pdf(distance, scale=math.exp(u)) * stats.halfcauchy.pdf(math.exp(u), scale=scale) * math.exp(u)
        )

    centre = math.log(distance)
    density = quad(at_log_scale, [centre - 5, centre, centre + 3, math.log(scale), max(centre, math.log(scale)) + 40])
    log_prob = Horseshoe(torch.tensor(1.0, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)).log_prob(x)
    assert log_prob.item() == pytest.approx(math.log(density), rel=1e-9, abs=1e-9)


def test_horseshoe_draws_follow_the_density():
    horseshoe = Horseshoe(torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))
    values = horseshoe.rsample((20_000,))
    for width in (0.01, 0.3, 2.0, 30.0):
        distance = torch.logspace(-12, math.log10(width), 4000, dtype=torch.float64)
        mass = 2 * np.trapezoid(horseshoe.log_prob(1 + distance).exp().numpy(), distance.numpy())
        share = ((values - 1).abs() < width).double().mean().item()
        assert share == pytest.approx(mass, abs=4 * math.sqrt(mass * (1 - mass) / len(values)))


# ---------------------------------------------------------------------- KL, closed forms

CLOSED = [
    (td.Normal, td.Normal, normal, normal),
    (td.LogNormal, td.LogNormal, log_normal, log_normal),
    (td.Cauchy, td.Cauchy, cauchy, cauchy),
    (td.LogNormal, td.Normal, log_normal, normal),
    (partial(td.StudentT, 5.0), td.Normal, partial(student_t, 5.0), normal),
]


@pytest.mark.parametrize(("q", "p", "q_oracle", "p_oracle"), CLOSED)
@pytest.mark.parametrize("parameters", [(0.3, 0.2, 1.0, 0.5), (1.0, 0.8, 0.6, 1.5)])
def test_closed_forms(q, p, q_oracle, p_oracle, parameters):
    def expected(m, s, n, b):
        return kl_by_quadrature(q_oracle(m, s), p_oracle(n, b))

    tensors = double(*parameters)
    divergence = kl_divergence(q(*tensors[:2]), p(*tensors[2:]))
    assert divergence.item() == pytest.approx(expected(*parameters), rel=1e-8)
    for i, gradient in enumerate(torch.autograd.grad(divergence, tensors)):
        moved = [[x + sign * 1e-4 * (i == j) for j, x in enumerate(parameters)] for sign in (1, -1)]
        difference = (expected(*moved[0]) - expected(*moved[1])) / 2e-4
        assert gradient.item() == pytest.approx(difference, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "q", [td.Cauchy(0.0, 1.0), td.StudentT(2.0, 0.0, 1.0), td.StudentT(0.7, 0.0, 1.0), td.StudentT(1.0, 0.0, 1.0)]
)
def test_heavy_tails_under_a_normal_are_infinitely_far(q):
    assert kl_divergence(q, td.Normal(0.0, 10.0)).item() == math.inf


# ---------------------------------------------------------------------- KL, quadrature

GRID = list(
    itertools.product(
        (1e-3, 0.01, 0.03, 0.1, 0.3, 1.0),
        (1e-4, 1e-3, 0.01, 0.1, 1.0),
        (0.0, 0.001, 0.03, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0),
    )
)


@pytest.mark.parametrize(("prior", "error"), [("cauchy", 2e-6), ("student_t", 2e-6), ("horseshoe", 1e-4)])
def test_normal_posterior_from_narrow_to_wide(prior, error):
    make, oracle = PRIORS[prior]
    expected = torch.tensor(
        [kl_by_quadrature(normal(1 + shift, s), oracle(1.0, b)) for s, b, shift in GRID], dtype=torch.float64
    )
    for dtype, tolerance in ((torch.float64, error), (torch.float32, 2e-4)):
        std, prior_std, shift = torch.tensor(GRID, dtype=dtype).T
        divergence = kl_divergence(td.Normal(1 + shift, std), make(torch.ones_like(std), prior_std))
        torch.testing.assert_close(divergence.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(
    "parameters", [(1.3, 0.1, 1.0, 0.1), (1.2, 0.03, 1.0, 1.0), (1.5, 1.0, 1.0, 1e-2), (0.9, 0.3, 1.0, 1e-3)]
)
def test_gradients_of_a_normal_posteriors_kl(prior, parameters):
    make, oracle = PRIORS[prior]
    tensors = double(*parameters)
    divergence = kl_divergence(td.Normal(*tensors[:2]), make(*tensors[2:]))
    units = (parameters[1], parameters[1], parameters[1], parameters[3])
    for i, (gradient, unit) in enumerate(zip(torch.autograd.grad(divergence, tensors), units, strict=True)):
        step = 1e-3 * unit
        moved = [[x + sign * step * (i == j) for j, x in enumerate(parameters)] for sign in (1, -1)]
        above, below = (kl_by_quadrature(normal(m, s), oracle(n, b)) for m, s, n, b in moved)
        difference = (above - below) / (2 * step)
        # In units of the scale that the parameter lives on, the finite difference is good to 1e-6.
        assert gradient.item() * unit == pytest.approx(difference * unit, abs=2e-5, rel=1e-5)


POSITIVE_PRIORS = [
    (lambda b: td.HalfCauchy(b), half_cauchy),
    (lambda b: td.Cauchy(torch.ones_like(b), b), lambda b: cauchy(1.0, b)),
    (lambda b: td.StudentT(3.0, torch.zeros_like(b), b), lambda b: student_t(3.0, 0.0, b)),
]


@pytest.mark.parametrize(("prior", "oracle"), POSITIVE_PRIORS)
@pytest.mark.parametrize("parameters", [(0.1, 0.03, 0.5), (-0.5, 0.3, 0.1), (0.3, 1.0, 0.02)])
def test_log_normal_posterior(prior, oracle, parameters):
    def expected(m, s, b):
        return kl_by_quadrature(log_normal(m, s), oracle(b))

    loc, scale, prior_scale = double(*parameters)
    divergence = kl_divergence(td.LogNormal(loc, scale), prior(prior_scale))
    assert divergence.item() == pytest.approx(expected(*parameters), abs=1e-6)
    for i, gradient in enumerate(torch.autograd.grad(divergence, (loc, scale, prior_scale))):
        step = 1e-3 * parameters[max(i, 1)]
        moved = [[x + sign * step * (i == j) for j, x in enumerate(parameters)] for sign in (1, -1)]
        difference = (expected(*moved[0]) - expected(*moved[1])) / (2 * step)
        assert gradient.item() == pytest.approx(difference, rel=1e-4, abs=1e-4)


def test_log_normal_posterior_under_an_inverse_gamma():
    # E log IG(x^2; a, c) + log 2x has a closed form, for E exp(-2 log x) does.
    loc, scale, prior_scale, df = 0.2, 0.4, 0.7, 5.0
    a, c = df / 2, df / 2 * prior_scale**2
    log_prior = a * math.log(c) - special.gammaln(a) - (2 * a + 1) * loc - c * math.exp(2 * scale**2 - 2 * loc)
    expected = -(math.log(scale * math.sqrt(2 * math.pi * math.e)) + loc) - log_prior - math.log(2)
    q = td.LogNormal(*double(loc, scale))
    p = InverseGamma(df=df).distribution(*double(0.0, prior_scale))
    assert kl_divergence(q, p).item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("scale", [0.1, 1.0, 2.0, 3.0])
def test_a_wide_log_normal_posterior_under_an_inverse_gamma(scale):
    # The density of x in double the digits: E x^-2 has its peak at -2 scale, beyond any rule for the posterior.
    loc, prior_scale, df = 0.2, 0.7, 3.0
    a = df / 2
    c = a * prior_scale**2

    def integrand(u):
        log_q = -0.5 * u * u - 0.5 * math.log(2 * math.pi)
        log_x = loc + scale * u
        log_p = math.log(2) + a * math.log(c) - special.gammaln(a) - (2 * a + 1) * log_x - c * math.exp(-2 * log_x)
        return math.exp(log_q) * (log_q - math.log(scale) - log_x - log_p)

    expected = quad(integrand, [-2 * scale - 12, -2 * scale - 3, -2 * scale, -2 * scale + 3, 0.0, 3.0, 12.0])
    tensors = double(loc, scale, prior_scale)
    divergence = kl_divergence(
        td.LogNormal(*tensors[:2]), InverseGamma(df=df).distribution(torch.zeros(()), tensors[2])
    )
    assert divergence.item() == pytest.approx(expected, rel=1e-9)


# ---------------------------------------------------------------------- KL, heavy tails

HEAVY = [
    (td.StudentT(3.0, 1.1, 0.1), td.StudentT(3.0, 1.0, 0.2), student_t(3.0, 1.1, 0.1), student_t(3.0, 1.0, 0.2)),
    (td.StudentT(6.0, 0.8, 0.3), td.StudentT(2.0, 1.0, 0.1), student_t(6.0, 0.8, 0.3), student_t(2.0, 1.0, 0.1)),
    (td.Cauchy(1.1, 0.1), td.StudentT(3.0, 1.0, 0.2), cauchy(1.1, 0.1), student_t(3.0, 1.0, 0.2)),
    (td.StudentT(3.0, 1.1, 0.1), td.Cauchy(1.0, 0.2), student_t(3.0, 1.1, 0.1), cauchy(1.0, 0.2)),
]


@pytest.mark.parametrize(("q", "p", "q_oracle", "p_oracle"), HEAVY)
def test_heavy_pairs(q, p, q_oracle, p_oracle):
    divergence = kl_divergence(q, p)
    assert divergence.item() == pytest.approx(kl_by_quadrature(q_oracle, p_oracle), abs=2e-6)
    assert torch.equal(divergence, kl_divergence(q, p))  # nothing is drawn


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(("df", "error"), [(0.5, 1e-4), (1.0, 2e-6), (3.0, 2e-6), (30.0, 2e-6)])
def test_student_t_posterior_from_narrow_to_wide(prior, df, error):
    make, oracle = PRIORS[prior]
    grid = GRID[::7]
    expected = [kl_by_quadrature(student_t(df, 1 + shift, s), oracle(1.0, b)) for s, b, shift in grid]
    expected = torch.tensor(expected, dtype=torch.float64)
    for dtype, tolerance in ((torch.float64, error), (torch.float32, 1e-4)):
        scale, prior_scale, shift = torch.tensor(grid, dtype=dtype).T
        divergence = kl_divergence(td.StudentT(df, 1 + shift, scale), make(torch.ones_like(scale), prior_scale))
        torch.testing.assert_close(divergence.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("prior", PRIORS)
def test_gradients_of_a_heavy_posteriors_kl(prior):
    make, oracle = PRIORS[prior]
    parameters = (1.2, 0.3, 1.0, 0.2)

    def expected(m, s, n, b):
        return kl_by_quadrature(student_t(3.0, m, s), oracle(n, b))

    tensors = double(*parameters)
    divergence = kl_divergence(td.StudentT(3.0, *tensors[:2]), make(*tensors[2:]))
    for i, gradient in enumerate(torch.autograd.grad(divergence, tensors)):
        if i == 2 and prior == "horseshoe":
            continue  # where the prior is does not train, and its density has a pole there
        moved = [[x + sign * 1e-3 * (i == j) for j, x in enumerate(parameters)] for sign in (1, -1)]
        difference = (expected(*moved[0]) - expected(*moved[1])) / 2e-3
        assert gradient.item() == pytest.approx(difference, rel=1e-4, abs=1e-4)


def test_a_posterior_of_others_is_drawn():
    q, p = td.Laplace(*double(0.0, 1.0)), td.Cauchy(*double(0.0, 1.0))
    # Under |x| ~ Exp(1).
    cross = quad(lambda x: math.exp(-x) * math.log(math.pi * (1 + x * x)), [0.0, 1.0, 5.0, 60.0])
    expected = cross - (1 + math.log(2))
    # The terms' standard deviation is below 1.
    assert kl_divergence(q, p, samples=100_000).item() == pytest.approx(expected, abs=4 / math.sqrt(100_000))


# ---------------------------------------------------------------------- KL, the rest


def test_point_masses():
    loc = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    divergence = kl_divergence(Delta(loc), td.Cauchy(torch.ones_like(loc), 0.1 * torch.ones_like(loc)))
    np.testing.assert_allclose(divergence.detach(), -stats.cauchy.logpdf([0.5, 1.5], 1, 0.1), rtol=1e-12)
    divergence.sum().backward()
    np.testing.assert_allclose(loc.grad, [-1 / 0.26, 1 / 0.26], rtol=1e-12)  # 2 y / (b^2 + y^2)
    assert kl_divergence(Delta(loc), Delta(loc + 1)).tolist() == [0.0, 0.0]
    assert kl_divergence(td.Normal(loc, 1.0), Delta(loc)).tolist() == [math.inf, math.inf]
    for family in (HalfCauchy(), LogNormal(), InverseGamma()):
        prior = family.distribution(*double(0.0, 1.0))
        assert kl_divergence(Delta(-loc), prior).tolist() == [math.inf, math.inf]
        assert kl_divergence(Delta(loc), prior).tolist() == (-prior.log_prob(loc)).tolist()
    assert Delta(loc).mean.tolist() == [0.5, 1.5]
    assert Delta(loc).variance.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("q", "p", "q_oracle", "p_oracle", "error"),
    [
        (td.Normal, td.Normal, normal, normal, 1e-5),
        (td.Normal, td.Cauchy, normal, cauchy, 1e-5),
        (partial(td.StudentT, 3.0), td.Cauchy, partial(student_t, 3.0), cauchy, 1e-5),
    ],
    ids=["closed form", "quadrature", "heavy tails"],
)
def test_batch_shapes_broadcast(q, p, q_oracle, p_oracle, error):
    locs, prior_locs = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0.0, 0.5, 1.0, 3.0])
    divergence = kl_divergence(q(locs, 0.3), p(prior_locs, 0.5))
    expected = [
        [kl_by_quadrature(q_oracle(m, 0.3), p_oracle(n, 0.5)) for n in prior_locs.tolist()] for m in (0.0, 1.0, 2.0)
    ]
    torch.testing.assert_close(divergence, torch.tensor(expected), rtol=1e-5, atol=error)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("prior", ["normal", *PRIORS])
def test_half_precision_posteriors_are_measured_in_float32(prior, dtype):
    make, oracle = PRIORS.get(prior, (td.Normal, normal))
    loc, scale, prior_loc, prior_scale = (torch.tensor(x, dtype=dtype) for x in (1.25, 0.0625, 1.0, 0.125))
    divergence = kl_divergence(td.Normal(loc, scale), make(prior_loc, prior_scale))
    assert divergence.dtype == torch.float32
    # The prior's own normalising constants keep the half type's digits.
    assert divergence.item() == pytest.approx(kl_by_quadrature(normal(1.25, 0.0625), oracle(1.0, 0.125)), rel=5e-3)


def test_half_precision_student_t_can_be_drawn():
    q = td.StudentT(*(torch.tensor(x, dtype=torch.bfloat16) for x in (3.0, 1.25, 0.0625)))
    divergence = kl_divergence(q, td.StudentT(3.0, 1.0, 0.125))
    expected = kl_by_quadrature(student_t(3.0, 1.25, 0.0625), student_t(3.0, 1.0, 0.125))
    assert divergence.item() == pytest.approx(expected, abs=1e-5)


def test_gauss_hermite_would_miss_a_narrow_prior() -> None:
    """Why the rule is not Gauss-Hermite: somewhere 64 of its nodes are more than half a nat off, ours nowhere."""

    def cross_entropy_density(x, loc, scale):
        return stats.norm.pdf(x, loc, scale) * -stats.cauchy.logpdf(x, 1.0, 1e-4)

    nodes, weights = (torch.tensor(x) for x in np.polynomial.hermite_e.hermegauss(64))
    errors, ours = [], []
    for shift in np.linspace(0.0, 0.2, 41):
        loc, scale = 1.0 + shift, 0.5
        exact = sum(
            integrate.quad(cross_entropy_density, *part, args=(loc, scale))[0]
            for part in itertools.pairwise([-3.0, 0.9, 0.999, 1.0, 1.001, 1.1, 6.0])
        ) - stats.norm.entropy(loc, scale)
        q = td.Normal(*(torch.tensor(value, dtype=torch.float64) for value in (loc, scale)))
        p = td.Cauchy(*(torch.tensor(value, dtype=torch.float64) for value in (1.0, 1e-4)))
        values = q.loc + q.scale * nodes
        hermite = ((q.log_prob(values) - p.log_prob(values)) * weights).sum() / math.sqrt(2 * math.pi)
        errors.append(abs(hermite.item() - exact))
        ours.append(abs(kl_divergence(q, p).item() - exact))
    assert max(errors) > 0.5
    assert max(ours) < 1e-5
