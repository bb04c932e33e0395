"""Effective sample size and R-hat against ArviZ, plain loops, and processes whose answer is known."""

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from slimbayes.mcmc import chain_summary, diagnostics, effective_sample_size, r_hat, to_arviz

KINDS = {
    "bulk": lambda draws: effective_sample_size(draws),
    "mean": lambda draws: effective_sample_size(draws, rank_normalised=False),
    "rank": lambda draws: r_hat(draws),
    "split": lambda draws: r_hat(draws, rank_normalised=False),
}

#: What ArviZ 0.23.4 (``az.ess`` and ``az.rhat`` with this ``method``) says of ``fixed_draws(samples)``.
ARVIZ = {
    ("bulk", 101): [345.7005576, 20.85012112, 1040.823997, 404.8611324, 34.95548884, 282.869843, 21.55385022],
    ("mean", 101): [343.0159179, 20.96486803, 1040.823997, 417.3126325, 34.23260583, 285.8622906, 21.73065309],
    ("rank", 101): [1.003794723, 1.171742285, 0.9951878946, 1.001058063, 1.102057722, 1.146722553, 1.167617636],
    ("split", 101): [1.003160309, 1.171443063, 0.9950608387, 0.9910470841, 1.105867629, 0.9964326474, 1.166922936],
    ("bulk", 200): [719.0928497, 22.54880866, 2190.023154, 819.3862838, 22.46466549, 708.9308149, 22.29035187],
    ("mean", 200): [719.2008681, 22.01323091, 2229.229729, 823.3821491, 21.93079596, 716.5917929, 22.14388008],
    ("rank", 200): [1.00686374, 1.185358399, 0.9994764297, 1.002576422, 1.127260742, 1.17051208, 1.185174691],
    ("split", 200): [1.006871247, 1.193322283, 0.9994710621, 0.9989581898, 1.130056468, 1.000028932, 1.191216813],
}


def fixed_draws(samples: int) -> np.ndarray:
    """Return four chains of seven elements.

    They are independent, slow, antithetic, without a mean, with one chain shifted, with one chain wider, with ties.
    """
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(4, samples))
    slow, anti = noise.copy(), noise.copy()
    for t in range(1, samples):
        slow[:, t] += 0.9 * slow[:, t - 1]
        anti[:, t] -= 0.5 * anti[:, t - 1]
    cauchy = rng.standard_cauchy(size=(4, samples))
    shifted = noise + np.array([0, 0, 0, 1.0])[:, None]
    wider = noise * np.array([1, 1, 1, 3.0])[:, None]
    return np.stack([noise, slow, anti, cauchy, shifted, wider, slow.round()], axis=2)


def autoregressive(rho: float, chains: int, samples: int, elements: int) -> torch.Tensor:
    """Return stationary AR(1) chains of unit variance, (chains, samples, elements)."""
    noise = torch.randn(samples, chains, elements, dtype=torch.float64)
    draws = [noise[0]]
    for one in noise[1:]:
        draws.append(rho * draws[-1] + math.sqrt(1 - rho**2) * one)
    return torch.stack(draws, 1)


@pytest.mark.parametrize(("kind", "samples"), ARVIZ)
def test_stored_numbers_of_arviz(kind, samples):
    values = KINDS[kind](fixed_draws(samples))
    np.testing.assert_allclose(values, ARVIZ[kind, samples], rtol=1e-8)


@pytest.mark.parametrize("samples", [4, 5, 11, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_arviz_itself(kind, samples):
    arviz = pytest.importorskip("arviz")
    draws = fixed_draws(samples)
    statistic = arviz.ess if kind in ("bulk", "mean") else arviz.rhat
    expected = [statistic(draws[:, :, i], method=kind) for i in range(draws.shape[2])]
    np.testing.assert_allclose(KINDS[kind](draws), expected, rtol=1e-9)


@pytest.mark.parametrize("rank_normalised", [False, True])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.4])
def test_ess_of_autoregressive_chains(rho, rank_normalised):
    # S (1 - rho) / (1 + rho), exact as S grows. The mean over 100 elements has a standard error of a tenth of the
    # estimates' spread; short of S by the truncation of the sums at noise, which is a few per cent.
    chains, samples = 4, 2000
    values = effective_sample_size(autoregressive(rho, chains, samples, 100), rank_normalised)
    expected = chains * samples * (1 - rho) / (1 + rho)
    error = values.std().item() / math.sqrt(100)
    assert values.mean().item() == pytest.approx(expected, abs=4 * error + 0.04 * expected)


def test_ess_predicts_the_error_of_a_mean():
    # The means of 2000 independent elements scatter by std / sqrt(ESS); their spread is known to 1.6 %.
    draws = autoregressive(0.8, 2, 500, 2000)
    ess = effective_sample_size(draws, rank_normalised=False).median().item()
    assert draws.mean((0, 1)).std().item() == pytest.approx(1 / math.sqrt(ess), rel=0.08)


@pytest.mark.parametrize("rank_normalised", [False, True])
def test_r_hat_of_chains_of_one_law_and_of_others(rank_normalised):
    draws = torch.randn(4, 1000, 50)
    same = r_hat(draws, rank_normalised)
    assert ((same > 0.995) & (same < 1.01)).all()
    draws[0] += 2.0
    assert (r_hat(draws, rank_normalised) > 1.1).all()
    drifting = torch.randn(1, 1000, 50) + torch.linspace(0, 4, 1000)[:, None]
    assert (r_hat(drifting, rank_normalised) > 1.1).all()  # one chain, by its halves


def test_ranks_see_what_moments_do_not():
    draws = torch.randn(4, 1000)
    draws[0] *= 5
    assert r_hat(draws, rank_normalised=False) < 1.01
    assert r_hat(draws) > 1.1
    # Ranks do not change under a monotone map, however heavy the tails that it makes.
    positive = torch.rand(4, 200, 3, dtype=torch.float64)
    torch.testing.assert_close(effective_sample_size(positive), effective_sample_size((8 * positive).exp()))


def test_classic_r_hat_by_a_plain_loop():
    draws = np.random.default_rng(1).normal(size=(3, 21, 2, 2))
    for i in range(2):
        for j in range(2):
            halves = [half for chain in draws[:, :, i, j] for half in (chain[:10], chain[-10:])]
            within = np.mean([np.var(half, ddof=1) for half in halves])
            between = 10 * np.var([half.mean() for half in halves], ddof=1)
            expected = math.sqrt((0.9 * within + between / 10) / within)
            assert r_hat(draws, rank_normalised=False)[i, j].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_blocks(kind, monkeypatch):
    draws = torch.randn(2, 30, 3, 4)
    whole = KINDS[kind](draws)
    assert whole.shape == (3, 4)
    assert whole.dtype == torch.float64
    assert KINDS[kind](draws[..., 0, 0]).shape == ()
    assert KINDS[kind](draws[..., :0]).shape == (3, 0)
    monkeypatch.setattr(diagnostics, "_BLOCK", 300)
    torch.testing.assert_close(KINDS[kind](draws), whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(KINDS[kind](draws.numpy()), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_constant_and_broken_elements_are_nan_and_spare_the_others(kind):
    draws = torch.randn(2, 30, 4, dtype=torch.float64)
    alone = KINDS[kind](draws)
    draws[..., 1] = 0.1  # whose mean over 30 is not 0.1 in floating point
    draws[0, 3, 2] = torch.nan
    draws[1, 7, 3] = torch.inf
    values = KINDS[kind](draws)
    assert values.isnan().tolist() == [False, True, True, True]
    assert values[0] == alone[0]


@pytest.mark.parametrize("rank_normalised", [False, True])
def test_chains_stuck_at_unlike_values(rank_normalised):
    draws = torch.tensor([0.1, 0.7, 1.3]).double()[:, None].expand(3, 30)
    assert r_hat(draws, rank_normalised) == torch.inf
    assert effective_sample_size(draws, rank_normalised) < 7  # no more than the half chains


@pytest.mark.parametrize("shape", [(10,), (2, 3), (0, 10), (2, 3, 5)])
def test_too_few_samples_are_refused(shape):
    for function in (effective_sample_size, r_hat, lambda draws: chain_summary({"factor": draws})):
        with pytest.raises(ValueError, match=r"`draws`.*at least 4 samples.*Keep more samples"):
            function(torch.zeros(shape))


def test_summary():
    draws = {"input_factor": torch.randn(4, 50, 3, 5), "bias": torch.zeros(4, 50, 2), "noise": torch.randn(4, 50)}
    draws["input_factor"][..., 0, 0] = 1.0
    summary = chain_summary(draws)
    assert (summary.chains, summary.samples) == (4, 50)
    ess = effective_sample_size(draws["input_factor"]).flatten()[1:]
    factor = summary.factors["input_factor"]
    assert (factor.elements, factor.undefined) == (15, 1)
    assert factor.min_ess == ess.min().item()
    assert factor.min_ess <= factor.median_ess <= ess.max().item()
    assert factor.max_r_hat == r_hat(draws["input_factor"]).flatten()[1:].max().item()
    assert summary.factors["noise"].elements == 1
    assert math.isnan(summary.factors["bias"].min_ess)
    lines = str(summary).splitlines()
    assert [line.split()[0] for line in lines] == ["factor", "input_factor", "bias", "noise", "4"]


@pytest.mark.parametrize("draws", [{}, {"a": torch.zeros(2, 5), "b": torch.zeros(2, 6)}])
def test_summaries_of_unlike_chains_are_refused(draws):
    with pytest.raises(ValueError, match="`draws`.*same chains and samples"):
        chain_summary(draws)


@pytest.mark.parametrize("samples", [4, 9, 10])
def test_no_effective_size_where_it_would_not_depend_on_the_draws(samples):
    """ArviZ finds more effective draws than draws in chains that do not move at all."""
    stuck = torch.randn(4, 1).expand(4, samples)
    assert effective_sample_size(stuck).item() > 4 * samples or samples == 10
    summary = chain_summary({"factor": stuck})
    assert math.isnan(summary.factors["factor"].min_ess) == (samples < 10)
    assert math.isnan(summary.factors["factor"].median_ess) == (samples < 10)
    assert summary.factors["factor"].undefined == 0
    assert summary.factors["factor"].max_r_hat == math.inf
    assert ("ESS needs 10" in str(summary)) == (samples < 10)


def test_without_arviz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="pip install arviz"):
        to_arviz({"a": torch.zeros(2, 5)})


@pytest.mark.parametrize("version", ["0.23.4", "1.0.0"])
def test_both_interfaces_of_arviz(version, monkeypatch):
    fake = SimpleNamespace(__version__=version, from_dict=lambda data=None, posterior=None: (data, posterior))
    monkeypatch.setitem(sys.modules, "arviz", fake)
    data, posterior = to_arviz({"a": torch.ones(2, 5, requires_grad=True)})
    arrays = posterior if version[0] == "0" else data["posterior"]
    np.testing.assert_array_equal(arrays["a"], np.ones((2, 5)))


def test_draws_reach_arviz():
    arviz = pytest.importorskip("arviz")
    draws = fixed_draws(50)
    table = arviz.summary(to_arviz({"factor": torch.from_numpy(draws)}), round_to=6)
    np.testing.assert_allclose(table["r_hat"], r_hat(draws), atol=1e-5)
