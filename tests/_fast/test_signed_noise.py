"""Rows that share a draw's magnitudes: each has exactly the distribution of its own noise, and no two are correlated.

Tolerances are five Monte Carlo standard errors; Kolmogorov-Smirnov tests are at the level 1e-4 each.
"""

import pytest
import torch
from scipy import stats
from torch import nn

import slimbayes as sb
from slimbayes._fast import row_noise
from slimbayes._fast.row_noise import SignedNoise, random_bits, signs_of
from slimbayes.layers.gaussian import random_signs
from slimbayes.layers.rank1 import Factor, FactorOptions
from slimbayes.sampling import Sampling

PASSES = 1500
MEMBERS, SAMPLES, DRAWS, SHARE, CHANNELS = 2, 2, 2, 2, 3
ERROR = 5 / PASSES**0.5
LEVEL = 1e-4
DISTRIBUTIONS = {"normal": stats.norm, "cauchy": stats.cauchy, "student_t": stats.t(3)}


@pytest.fixture
def _few(monkeypatch):
    """Let small passes flip, two rows of four sharing a draw."""
    monkeypatch.setattr(row_noise, "LEAST_TO_SHARE", 1)
    monkeypatch.setattr(row_noise, "ROWS_OF_A_DRAW", SHARE)


def factor_of(family="normal", members=MEMBERS, channels=CHANNELS):
    return Factor(channels, FactorOptions(members=members, family=family, dropout_rate=0.3), dtype=torch.float64)


def outputs_of(noise):
    """Return a function that draws, and its factor: a model whose one layer multiplies ones by its input factor."""
    net = nn.Linear(CHANNELS, CHANNELS, bias=False)
    nn.init.eye_(net.weight)
    model = sb.rank1(net, members=MEMBERS, factors="input", dropout_rate=0.3).double()
    x = torch.ones(DRAWS * SHARE, CHANNELS, dtype=torch.float64)
    return model.net.input_factor, lambda: model(x, samples=SAMPLES, noise=noise)


def values_of(family):
    """Return the same for a factor by itself."""
    factor = factor_of(family)
    factor.sampling = Sampling(samples=SAMPLES)
    return factor, lambda: torch.cat(factor.values(MEMBERS * SAMPLES * DRAWS * SHARE, "layer"))


def standard_noise(factor, draw):
    """Return (value - location) / scale, ``(passes, members, samples, draws, rows of a draw, channels)``."""
    with torch.no_grad():
        values = torch.stack([draw() for _ in range(PASSES)])
        values = values.view(PASSES, MEMBERS, SAMPLES, DRAWS, SHARE, CHANNELS)
        loc, scale = (v.view(MEMBERS, 1, 1, 1, CHANNELS) for v in (factor.loc, factor.scale))
        return (values - loc) / scale


@pytest.fixture(scope="module")
def noises():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_noise, "LEAST_TO_SHARE", 1)
        patch.setattr(row_noise, "ROWS_OF_A_DRAW", SHARE)
        torch.manual_seed(3)
        found = {("normal", noise): standard_noise(*outputs_of(noise)) for noise in ("example", "independent")}
        return found | {(family, "example"): standard_noise(*values_of(family)) for family in ("cauchy", "student_t")}


def correlations(z):
    """Return the correlations of columns over passes, of their values and of their squares."""
    return torch.corrcoef(z.T), torch.corrcoef(z.square().T)


def assert_uncorrelated(matrix, pairs=None):
    off = ~torch.eye(len(matrix), dtype=torch.bool) if pairs is None else pairs
    assert matrix[off].abs().max() < ERROR


# ------------------------------------------------------------------ the distribution of a row


def test_moments_of_each_row_and_channel(noises):
    z = noises["normal", "example"].flatten(1)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        off = (z**power).mean(0) - moment
        assert off.abs().max() < ERROR * variance**0.5, power


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_the_distribution_of_each_row_and_channel(noises, family):
    columns = noises[family, "example"].flatten(1).T.numpy()
    assert min(stats.kstest(column, DISTRIBUTIONS[family].cdf).pvalue for column in columns) > LEVEL


def test_channels_of_a_row_are_independent(noises):
    for row in noises["normal", "example"].flatten(1, 4).unbind(1):
        for matrix in correlations(row):
            assert_uncorrelated(matrix)
    # The sign of one channel says nothing of another's, nor do three together.
    signs = noises["cauchy", "example"].flatten(1, 4).sign()
    assert signs.prod(-1).mean(0).abs().max() < ERROR


# ------------------------------------------------------------------ rows together


def same_draw():
    """Tell of which pairs of rows both have the same draw: of one member and sample, and neighbours."""
    draw = torch.arange(MEMBERS * SAMPLES * DRAWS).repeat_interleave(SHARE)
    return draw.unsqueeze(0) == draw.unsqueeze(1)


def test_rows_are_uncorrelated_and_those_of_different_draws_independent(noises):
    for channel in noises["normal", "example"].flatten(1, 4).unbind(-1):
        values, squares = correlations(channel)
        assert_uncorrelated(values, ~same_draw())
        # The product of two rows of one draw is +-d^2, whose variance is E d^4 = 3, not 1.
        assert_uncorrelated(values / 3**0.5, same_draw() & ~torch.eye(len(values), dtype=torch.bool))
        assert_uncorrelated(squares, ~same_draw())  # samples of one example are among these pairs
        torch.testing.assert_close(squares[same_draw()], torch.ones(int(same_draw().sum()), dtype=torch.float64))


def test_rows_of_different_draws_have_a_joint_distribution(noises):
    """The sum of two independent standard normal numbers is N(0, 2)."""
    z = noises["normal", "example"].flatten(1, 4)[..., 0]
    for first, second in (~same_draw()).nonzero()[::17].tolist():
        assert stats.kstest((z[:, first] + z[:, second]).numpy() / 2**0.5, "norm").pvalue > LEVEL


def test_signs_of_channels_are_their_own(noises):
    """Whether two rows of a draw agree in the sign of one channel says nothing of another channel."""
    z = noises["normal", "example"]
    agreement = (z[..., 0, :] * z[..., 1, :]).sign().flatten(1, 3)
    for pair in agreement.unbind(1):
        assert_uncorrelated(torch.corrcoef(pair.T))


def test_independent_rows_share_nothing(noises):
    for channel in noises["normal", "independent"].flatten(1, 4).unbind(-1):
        for matrix in correlations(channel):
            assert_uncorrelated(matrix)


def test_random_signs():
    signs = random_signs((100, 100), torch.ones(1))
    assert signs.dtype == torch.float32
    assert signs.unique().tolist() == [-1, 1]
    assert abs(signs.mean().item()) < 5 / 100


@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 11, 13)], ids=str)
def test_random_signs_of_any_size_type_and_seed(shape):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        drawn = [random_signs(shape, torch.ones(1, dtype=dtype), torch.Generator().manual_seed(0)) for _ in range(2)]
        assert drawn[0].dtype == dtype
        assert drawn[0].shape == shape
        assert torch.equal(*drawn)
        assert (drawn[0].abs() == 1).all()


def test_neighbouring_signs_are_independent():
    """Eight of them come from one random number: its bytes have no correlation beyond five standard errors."""
    signs = signs_of(random_bits((20_000, 8)), 8).float()
    products = signs.T @ signs / len(signs) - torch.eye(8)
    assert products.abs().max() < 5 * len(signs) ** -0.5


# ------------------------------------------------------------------ gradients


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("passes", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_gradients_are_unbiased(passes):
    """Their average is that of independent noise, within five standard errors of the difference."""
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    model = sb.rank1(net, members=2, dropout_rate=0.2).double()
    x, y = torch.randn(6, 2, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    parameters = list(model.net.parameters())

    def moments(noise):
        gradients = []
        for _ in range(passes):
            loss = (model(x, noise=noise) - y).square().mean()
            gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
        stacked = torch.stack(gradients)
        return stacked.mean(0), stacked.var(0) / passes

    (mean, variance), (expected, of_expected) = moments("example"), moments("independent")
    assert ((mean - expected).abs() <= 5 * (variance + of_expected).sqrt() + 1e-12).all()


def test_values_and_gradients_against_autograd():
    loc, deviation = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (2, 4))
    noise = SignedNoise(loc, deviation, random_bits((12, 3)))
    signs = signs_of(noise.bits, 3)
    rows = [loc[row // 6] + signs[row] * deviation[row // 3] for row in range(12)]
    expected = torch.stack(rows)
    torch.testing.assert_close(noise.values(), expected)
    of_values = torch.randn(12, 3, dtype=torch.float64)
    found, by_hand = (torch.autograd.grad(y, (loc, deviation), of_values) for y in (noise.values(), expected))
    torch.testing.assert_close(found, by_hand)
