"""The sums of a KL against their plain definitions in float64."""

import pytest
import torch

from slimbayes.layers import sums
from slimbayes.layers.softplus_sum import softplus_pair_sum
from slimbayes.layers.sums import full_sums, sum_of_squares, tied_sums


def plain_tied_sums(log_u, log_v):
    terms = log_u.unsqueeze(1) + log_v.unsqueeze(0)
    log_sigma = terms.logsumexp(-1)
    return log_sigma.sum(), (2 * log_sigma).exp().sum()


def gradients(function, *inputs):
    """Return the sums, and the gradients of a combination of them that lets neither drown the other."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    logs, squares = function(*inputs)
    weighted = 0.7 * logs + 1.3 * squares / squares.detach() * logs.detach().abs()
    return (logs, squares), torch.autograd.grad(weighted, inputs)


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 4.0])
@pytest.mark.parametrize(("m", "n", "k"), [(300, 400, 1), (300, 400, 2), (1, 7, 2), (300, 40, 3), (50, 60, 5)])
def test_tied_sums_in_float64(m, n, k, spread):
    log_u, log_v = (spread * torch.randn(size, k, dtype=torch.float64) - 2 for size in (m, n))
    found, slopes = gradients(tied_sums, log_u, log_v)
    expected, expected_slopes = gradients(plain_tied_sums, log_u, log_v)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-9)
    torch.testing.assert_close(slopes, expected_slopes, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_tied_sums_in_float32(k, spread):
    log_u, log_v = (spread * torch.randn(size, k) - 2 for size in (500, 700))
    found, slopes = gradients(tied_sums, log_u, log_v)
    expected, expected_slopes = gradients(plain_tied_sums, log_u.double(), log_v.double())
    for ours, truth in zip((*found, *slopes), (*expected, *expected_slopes), strict=True):
        torch.testing.assert_close(ours.double(), truth, rtol=1e-5, atol=1e-6 * truth.abs().max().item())


def test_blocks_do_not_matter(monkeypatch):
    log_u, log_v = torch.randn(37, 3, dtype=torch.float64), torch.randn(11, 3, dtype=torch.float64)
    whole = gradients(tied_sums, log_u, log_v)
    monkeypatch.setattr(sums, "BLOCK", 50)
    torch.testing.assert_close(gradients(tied_sums, log_u, log_v), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("width_a", "width_b"), [(0.0, 0.0), (0.1, 3.0), (3.0, 0.1), (5.0, 5.0), (12.0, 1.0)])
@pytest.mark.parametrize("shift", [-30.0, 0.0, 7.0])
def test_softplus_of_all_pairs(width_a, width_b, shift):
    a = width_a * (torch.rand(1500, dtype=torch.float64) - 0.5) + shift
    b = width_b * (torch.rand(1400, dtype=torch.float64) - 0.5) + 2.0
    found = softplus_pair_sum(a, b)
    assert found is not None
    total, by_a, by_b = found
    pairs = a.unsqueeze(1) + b
    torch.testing.assert_close(total, torch.nn.functional.softplus(pairs).sum(), rtol=1e-9, atol=1e-4)
    torch.testing.assert_close(by_a, pairs.sigmoid().sum(1), rtol=1e-9, atol=1e-7)
    torch.testing.assert_close(by_b, pairs.sigmoid().sum(0), rtol=1e-9, atol=1e-7)


def test_all_pairs_are_left_to_others_where_they_are_cheaper():
    assert softplus_pair_sum(torch.randn(20), torch.randn(30)) is None
    assert softplus_pair_sum(200 * torch.rand(3000), torch.rand(3000)) is None
    assert softplus_pair_sum(torch.full((3000,), float("nan")), torch.rand(3000)) is None


def test_a_broken_parameter_shows_in_the_sum():
    log_u, log_v = torch.zeros(2000, 2), torch.zeros(2000, 2)
    log_u[3, 1] = float("nan")
    assert all(value.isnan() for value in tied_sums(log_u, log_v))


def test_full_sums_and_squares():
    log_scale = torch.randn(30, 20, dtype=torch.float64)
    found, (slope,) = gradients(full_sums, log_scale)
    torch.testing.assert_close(found, (log_scale.sum(), (2 * log_scale).exp().sum()))
    expected = gradients(lambda x: (x.sum(), (2 * x).exp().sum()), log_scale)[1][0]
    torch.testing.assert_close(slope, expected)
    x = torch.randn(4, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sum_of_squares, x)
    assert sum_of_squares(x).item() == pytest.approx((x**2).sum().item())


@pytest.mark.parametrize("k", [1, 2, 3])
def test_second_derivatives(k):
    log_u, log_v = (torch.randn(size, k, dtype=torch.float64, requires_grad=True) for size in (60, 50))
    assert torch.autograd.gradgradcheck(lambda u, v: tied_sums(u, v)[0], (log_u[:3], log_v[:4]))

    def second(function):
        (slope,) = torch.autograd.grad(function(log_u, log_v)[0], log_u, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), [log_u, log_v], allow_unused=True, materialize_grads=True)

    torch.testing.assert_close(second(tied_sums), second(plain_tied_sums))
    log_scale = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: full_sums(x)[1], log_scale)
