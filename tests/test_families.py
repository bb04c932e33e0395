"""Draws, densities and names of the families, against SciPy's distributions."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator, Tensor

from slimbayes.families import (
    FAMILIES,
    Cauchy,
    DeltaFamily,
    Family,
    HalfCauchy,
    HorseshoeFamily,
    InverseGamma,
    LogNormal,
    Normal,
    StudentT,
    get_family,
)

LOC, SCALE = 0.7, 0.3
DRAWS = 20_000


class RootInverseGamma:
    """The distribution of sqrt(v) with v inverse-gamma distributed, in SciPy's terms."""

    def __init__(self, df: float, scale: float) -> None:
        self.square = stats.invgamma(df / 2, scale=df / 2 * scale**2)

    def cdf(self, r: np.ndarray) -> np.ndarray:
        return self.square.cdf(r**2)

    def logpdf(self, r: np.ndarray) -> np.ndarray:
        return self.square.logpdf(r**2) + np.log(2 * r)


class NormalScaleMixture:
    """N(loc, lambda^2) averaged over quantiles of a half-Cauchy lambda: the horseshoe by its definition."""

    def __init__(self, loc: float, scale: float) -> None:
        points, weights = np.polynomial.legendre.leggauss(400)
        self.loc, self.weights = loc, weights / 2
        self.scales = stats.halfcauchy(scale=scale).ppf((points + 1) / 2)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        return stats.norm.cdf((np.asarray(x)[..., None] - self.loc) / self.scales) @ self.weights


DISTRIBUTIONS = [
    (Normal(), stats.norm(LOC, SCALE)),
    (Cauchy(), stats.cauchy(LOC, SCALE)),
    (StudentT(df=0.8), stats.t(0.8, LOC, SCALE)),
    (StudentT(df=3.0), stats.t(3, LOC, SCALE)),
    (StudentT(df=30.0), stats.t(30, LOC, SCALE)),
    (LogNormal(), stats.lognorm(SCALE, scale=math.exp(LOC))),
    (HalfCauchy(), stats.halfcauchy(scale=SCALE)),
    (InverseGamma(df=3.0), RootInverseGamma(3.0, SCALE)),
    (InverseGamma(df=12.0), RootInverseGamma(12.0, SCALE)),
    (HorseshoeFamily(), NormalScaleMixture(LOC, SCALE)),
]
RANDOM = [family for family, _ in DISTRIBUTIONS]
ALL = [*RANDOM, DeltaFamily()]


def draw(family: Family, dtype: torch.dtype = torch.float64, seed: int = 0, draws: int = DRAWS) -> Tensor:
    loc, scale = torch.tensor([LOC], dtype=dtype), torch.tensor([SCALE], dtype=dtype)
    noise = family.noise((draws, 1), loc, Generator().manual_seed(seed))
    return family.transform(loc, scale, noise).squeeze(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("family", "distribution"), DISTRIBUTIONS, ids=lambda x: repr(x) if isinstance(x, Family) else ""
)
def test_draws_follow_the_distribution(family, distribution, dtype):
    values = draw(family, dtype)
    assert values.dtype == dtype
    assert stats.kstest(values.double().numpy(), distribution.cdf).pvalue > 1e-3


@pytest.mark.parametrize("family", [Normal(), LogNormal(), StudentT(df=6.0), StudentT(df=30.0), InverseGamma(df=12.0)])
def test_sample_moments(family):
    distribution = {
        "normal": stats.norm(LOC, SCALE),
        "log_normal": stats.lognorm(SCALE, scale=math.exp(LOC)),
        "student_t": stats.t(getattr(family, "df", 1), LOC, SCALE),
        "inverse_gamma": stats.invgamma(6, scale=6 * SCALE**2),
    }[family.name]
    values = draw(family, draws=200_000).numpy()
    values = values**2 if family.name == "inverse_gamma" else values
    mean, variance, kurtosis = distribution.stats("mvk")
    assert abs(values.mean() - mean) < 4 * math.sqrt(variance / len(values))
    assert abs(values.var() - variance) < 4 * variance * math.sqrt((kurtosis + 2) / len(values))


@pytest.mark.parametrize(
    ("family", "distribution"), DISTRIBUTIONS[:-1], ids=lambda x: repr(x) if isinstance(x, Family) else ""
)
def test_density_is_scipys(family, distribution):
    values = torch.tensor([0.01, 0.3, 0.7, 2.0, 40.0], dtype=torch.float64)
    loc, scale = torch.full_like(values, LOC), torch.full_like(values, SCALE)
    log_prob = family.distribution(loc, scale).log_prob(values)
    np.testing.assert_allclose(log_prob.numpy(), distribution.logpdf(values.numpy()), rtol=1e-10)


@pytest.mark.parametrize("family", [family for family in ALL if family.posterior], ids=repr)
def test_location_is_the_median(family):
    location = family.location(torch.tensor(LOC, dtype=torch.float64)).item()
    if family.random:
        distribution = dict(zip(map(repr, RANDOM), (distribution for _, distribution in DISTRIBUTIONS), strict=True))[
            repr(family)
        ]
        assert location == pytest.approx(distribution.median(), abs=1e-12)
    assert family.loc_of(location) == pytest.approx(LOC, abs=1e-12)


@pytest.mark.parametrize("family", RANDOM, ids=repr)
def test_gradients_of_a_draw_match_finite_differences(family):
    noise = family.noise((50,), torch.zeros(1, dtype=torch.float64), Generator().manual_seed(3))
    loc, scale = (torch.full((50,), value, dtype=torch.float64, requires_grad=True) for value in (LOC, SCALE))
    gradients = torch.autograd.grad(
        family.transform(loc, scale, noise).sum(), (loc, scale), allow_unused=True, materialize_grads=True
    )
    step = 1e-6
    with torch.no_grad():
        by_loc = family.transform(loc + step, scale, noise) - family.transform(loc - step, scale, noise)
        by_scale = family.transform(loc, scale + step, noise) - family.transform(loc, scale - step, noise)
    torch.testing.assert_close(gradients[0], by_loc / (2 * step), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradients[1], by_scale / (2 * step), rtol=1e-6, atol=1e-7)


def test_a_point_mass_is_its_location_and_passes_the_gradient():
    loc = torch.tensor([0.5, -2.0], requires_grad=True)
    family = DeltaFamily()
    values = family.transform(loc, torch.zeros(2), family.noise((3, 2), loc))
    assert values.tolist() == [[0.5, -2.0]] * 3
    values.sum().backward()
    assert loc.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("family", RANDOM, ids=repr)
def test_a_generator_decides_everything(family):
    first = draw(family, seed=1)
    torch.manual_seed(99)
    assert torch.equal(first, draw(family, seed=1))
    assert not torch.equal(first, draw(family, seed=2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", RANDOM, ids=repr)
def test_half_precision_parameters_have_float32_noise(family, dtype):
    # 256 values of a bfloat16 uniform would fail this test on the tails alone.
    like = torch.zeros(1, dtype=dtype)
    noise = family.noise((DRAWS,), like, Generator().manual_seed(0))
    assert noise.dtype == torch.float32
    exact = family.noise((DRAWS,), torch.zeros(1), Generator().manual_seed(0))
    assert torch.equal(noise, exact)


@pytest.mark.parametrize("family", ALL, ids=repr)
def test_spec_rebuilds_the_family(family):
    assert get_family(json.loads(json.dumps(family.spec()))) == family
    assert get_family(family) is family


def test_names():
    assert get_family("student_t", df=5.0) == StudentT(df=5.0)
    assert {name for name, family in FAMILIES.items() if family.posterior} == {
        "normal",
        "cauchy",
        "student_t",
        "log_normal",
        "delta",
    }
    assert all(get_family(name).name == name for name in FAMILIES)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: get_family("couchy"), ["`family`", "'couchy'", "Did you mean 'cauchy'?"]),
        (lambda: get_family("students_t", "prior_family"), ["`prior_family`", "'students_t'", "'student_t'?"]),
        (lambda: get_family({"df": 3.0}), ["`family`", "None"]),
        (lambda: get_family(7), ["`family`", "7"]),
        (lambda: get_family("normal", df=3.0), ["`family`", "'normal'", "'df': 3.0"]),
        (lambda: StudentT(df=0.0), ["`df`", "0.0"]),
        (lambda: InverseGamma(df=-1.0), ["`df`", "-1.0"]),
        (lambda: LogNormal().loc_of(-2.0), ["positive", "-2.0", "`prior_mean`"]),
    ],
)
def test_errors_name_argument_and_value(make, words):
    with pytest.raises(ValueError, match=r"Expected|positive") as error:
        make()
    for word in words:
        assert word in str(error.value)
