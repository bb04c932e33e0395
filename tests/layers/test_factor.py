"""A factor: its initial values, its draws against SciPy, its KL against closed forms, its options."""

import math

import pytest
import scipy.stats
import torch

from slimbayes.families import StudentT
from slimbayes.layers import Factor, FactorOptions

MEMBERS, CHANNELS = 3, 4


def build(channels=CHANNELS, summed=False, dtype=None, **options):
    return Factor(channels, FactorOptions(**{"members": MEMBERS, **options}), summed, dtype=dtype)


def spread_out(factor):
    """Give each member parameters of its own that are easy to tell apart."""
    with torch.no_grad():
        factor.loc.copy_(torch.linspace(-1.0, 2.0, factor.loc.numel()).view_as(factor.loc))
        factor.rho.copy_(torch.linspace(-2.0, 1.0, factor.rho.numel()).view_as(factor.rho))
    return factor


# ------------------------------------------------------------------ initial values


@pytest.mark.parametrize(
    ("rate", "scale", "rho"),
    [(1e-3, 0.031639, -3.43752), (1e-6, 0.001, -6.90725), (5e-7, 0.00070711, -7.25398), (0.1, 0.33333, -0.92732)],
)
def test_initial_scale_is_that_of_a_dropout_rate(rate, scale, rho):
    """The reference's table; the Cauchy family has no jitter."""
    factor = build(family="cauchy", dropout_rate=rate, dtype=torch.float64)
    torch.testing.assert_close(factor.scale - 1e-7, torch.full_like(factor.loc, scale), rtol=2e-5, atol=0.0)
    torch.testing.assert_close(factor.rho, torch.full_like(factor.loc, rho), rtol=1e-5, atol=0.0)


def test_initial_rho_of_a_normal_is_jittered():
    factor = build(channels=20_000)
    jitter = factor.rho - math.log(math.expm1(math.sqrt(1e-3 / (1 - 1e-3))))
    distribution = scipy.stats.truncnorm(-2, 2, scale=0.1)
    assert scipy.stats.kstest(jitter.detach().flatten()[:20_000], distribution.cdf).pvalue > 1e-5


@pytest.mark.parametrize(
    ("options", "summed", "expected"),
    [
        ({}, True, 1.0),
        ({"family": "log_normal"}, True, 0.0),
        ({"perturbation": "additive"}, True, 0.0),
        ({"rank": 3}, True, 1 / 3),
        ({"rank": 3}, False, 1.0),
        ({"rank": 3, "family": "log_normal"}, True, -math.log(3)),
    ],
)
def test_ones_are_neutral(options, summed, expected):
    """R terms r_j s_j^T add up to one; a log-normal location lives in log space."""
    factor = build(init="ones", summed=summed, dtype=torch.float64, **options)
    assert (factor.loc == expected).all()


@pytest.mark.parametrize(("rank", "summed"), [(1, True), (2, True), (2, False)])
def test_random_signs(rank, summed):
    factor = build(channels=5000, init="sign", rank=rank, summed=summed)
    size = 1 / rank if summed else 1.0
    assert set(factor.loc.unique().tolist()) == {-size, size}
    assert (factor.loc > 0).float().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / factor.loc.numel() ** 0.5)


@pytest.mark.parametrize(("options", "mean"), [({}, 1.0), ({"perturbation": "additive"}, 0.0)])
def test_normal_locations(options, mean):
    factor = build(channels=5000, init_spread=0.3, **options)
    assert scipy.stats.kstest(factor.loc.detach().flatten(), scipy.stats.norm(mean, 0.3).cdf).pvalue > 1e-5


# ------------------------------------------------------------------ draws

DISTRIBUTIONS = {
    "normal": scipy.stats.norm,
    "cauchy": scipy.stats.cauchy,
    "student_t": lambda loc, scale: scipy.stats.t(3, loc, scale),
    "log_normal": lambda loc, scale: scipy.stats.lognorm(scale, scale=math.exp(loc)),
}


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("noise", ["example", "shared", "held"])
@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_draws_follow_the_members_distribution(family, noise, rank):
    factor, each = spread_out(build(2, family=family, rank=rank, dtype=torch.float64)), 4000
    rows = MEMBERS * each
    factor.sampling.noise, factor.sampling.samples = "shared" if noise == "shared" else "example", each
    drawn = (factor.hold(MEMBERS, each, None),) if noise == "held" else factor.values(rows, "layer")
    drawn = drawn[0] if noise == "held" or rank == 1 else torch.stack(drawn, 1)
    assert drawn.shape == (rows, *factor.loc.shape[1:])
    scales = torch.log1p(factor.rho.exp()) + 1e-7
    for member, group in enumerate(drawn.detach().chunk(MEMBERS)):
        for element, loc, scale in zip(
            group.flatten(1).T, factor.loc[member].flatten(), scales[member].flatten(), strict=True
        ):
            distribution = DISTRIBUTIONS[family](loc.item(), scale.item())
            assert scipy.stats.kstest(element, distribution.cdf).pvalue > 1e-5


def test_location_of_a_log_normal_is_its_median():
    factor = spread_out(build(family="log_normal"))
    factor.sampling.samples = 0
    torch.testing.assert_close(factor.values(6, "layer")[0], factor.loc.exp())
    torch.testing.assert_close(factor.at_location(1), factor.loc[1].exp())
    torch.testing.assert_close(factor.hold(MEMBERS, 0, None), factor.loc.exp())


def test_a_point_mass_is_held_for_each_sample():
    factor = build(family="delta")
    expected = torch.stack([factor.loc[0], factor.loc[0], factor.loc[1], factor.loc[1], factor.loc[2], factor.loc[2]])
    assert torch.equal(factor.hold(MEMBERS, 2, None), expected)
    assert factor.rho is None
    assert (factor.scale == 0).all()


@pytest.mark.parametrize("family", [*DISTRIBUTIONS, "delta"])
def test_clip_bounds_draws_and_location(family):
    """Clamping is monotone, so the clamped location is the median of the clamped draws."""
    factor = build(64, family=family, clip=0.9, dropout_rate=0.5)
    plain = build(64, family=family, dropout_rate=0.5)
    plain.load_state_dict(factor.state_dict())
    for draw in (lambda f: f.values(30, "layer")[0], lambda f: f.hold(MEMBERS, 5, None), lambda f: f.at_location(2)):
        torch.manual_seed(1)
        unclipped = draw(plain)
        torch.manual_seed(1)
        assert unclipped.max() > 0.9
        assert torch.equal(draw(factor), unclipped.clamp(-0.9, 0.9))


def test_generator_decides_the_draws():
    factor = build()
    before = torch.get_rng_state()
    first, second = (factor.hold(MEMBERS, 2, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    noise = torch.randn(MEMBERS, 2, CHANNELS, generator=torch.Generator().manual_seed(5))
    expected = factor.loc.unsqueeze(1) + factor.scale.unsqueeze(1) * noise
    assert torch.equal(first, expected.flatten(0, 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("family", [*DISTRIBUTIONS, "delta"])
def test_draws_have_the_parameters_dtype(family, dtype):
    factor = build(family=family, dtype=dtype)
    assert {p.dtype for p in factor.parameters()} == {dtype}
    assert factor.values(6, "layer")[0].dtype == factor.hold(MEMBERS, 2, None).dtype == dtype


# ------------------------------------------------------------------ KL

CLOSED_FORMS = {
    "normal": lambda m, s, n, t: math.log(t / s) + (s * s + (m - n) ** 2) / (2 * t * t) - 0.5,
    "cauchy": lambda m, s, n, t: math.log(((s + t) ** 2 + (m - n) ** 2) / (4 * s * t)),
    "log_normal": lambda m, s, n, t: math.log(t / s) + (s * s + (m - math.log(n)) ** 2) / (2 * t * t) - 0.5,
}


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("family", CLOSED_FORMS)
def test_kl_of_each_member(family, rank):
    options = {"family": family, "rank": rank, "prior_mean": 0.8, "prior_std": 0.3}
    factor = spread_out(build(summed=True, dtype=torch.float64, **options))
    scales = torch.log1p(factor.rho.exp()) + 1e-7
    expected = [
        sum(
            CLOSED_FORMS[family](m, s, 0.8 / rank, 0.3)
            for m, s in zip(factor.loc[k].flatten().tolist(), scales[k].flatten().tolist(), strict=True)
        )
        for k in range(MEMBERS)
    ]
    assert factor.kl().tolist() == pytest.approx(expected, rel=1e-10)


def test_point_mass_under_a_prior_pays_its_log_density():
    options = {"family": "delta", "prior_family": "normal", "prior_mean": 0.8, "prior_std": 0.3}
    factor = build(dtype=torch.float64, **options)
    expected = -scipy.stats.norm(0.8, 0.3).logpdf(factor.loc.detach()).sum(1)
    assert factor.kl().tolist() == pytest.approx(expected.tolist(), rel=1e-10)


# ------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 0}, "`members`.*got 0"),
        ({"members": 2.0}, r"`members`.*got 2\.0"),
        ({"rank": 0}, "`rank`.*got 0"),
        ({"family": "gausian"}, "`family`.*'gausian'"),
        ({"family": "horseshoe"}, "`family`.*'horseshoe'.*`prior_family`"),
        ({"factors": "inputs"}, "`factors`.*'inputs'.*'input'"),
        ({"init": "one"}, "`init`.*'one'.*'ones'"),
        ({"perturbation": "add"}, "`perturbation`.*'add'"),
        ({"init_spread": -0.1}, r"`init_spread`.*-0\.1"),
        ({"dropout_rate": 1.0}, r"`dropout_rate`.*got 1\.0"),
        ({"clip": 0.0}, r"`clip`.*got 0\.0"),
        ({"prior_scale": "learned"}, "`prior_scale`.*'learned'"),
        ({"prior_family": "delta"}, "`prior_family`.*'delta'.*infinite"),
        ({"prior_family": "half_cauchy"}, "`prior_family`.*'half_cauchy'.*infinite"),
        ({"family": "log_normal", "init": "sign"}, "`init`.*'log_normal'.*'sign'"),
        ({"family": "log_normal", "perturbation": "additive"}, "`perturbation`.*'log_normal'.*'additive'"),
        ({"perturbation": "additive", "rank": 2}, "`rank`.*'additive'.*got 2"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        FactorOptions(**options)


def test_options_survive_json():
    options = FactorOptions(members=2, family=StudentT(df=5.0), prior_family={"name": "cauchy"}, clip=10.0)
    again = FactorOptions(**options.to_json())
    assert again.to_json() == options.to_json()
    assert Factor(3, again).family == StudentT(df=5.0)
    assert Factor(3, again).prior.family.name == "cauchy"


@pytest.mark.parametrize(("perturbation", "mean"), [("multiplicative", 1.0), ("additive", 0.0)])
def test_prior_mean_is_neutral_unless_given(perturbation, mean):
    assert FactorOptions(perturbation=perturbation).prior_mean == mean
    assert FactorOptions(perturbation=perturbation, prior_mean=0.5).prior_mean == 0.5
