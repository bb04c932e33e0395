"""The sums of a KL against their plain definitions in float64."""

import pytest
import torch

from slimbayes._fast import weight_sums as sums
from slimbayes._fast.softplus_sum import softplus_pair_sum
from slimbayes._fast.weight_sums import weighted_sum


def tied_sums(log_u, log_v):
    return weighted_sum(1.0, 0.0, None, log_u, log_v), weighted_sum(0.0, 1.0, None, log_u, log_v)


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
    found, own_gradients = gradients(tied_sums, log_u, log_v)
    expected, expected_gradients = gradients(plain_tied_sums, log_u, log_v)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-9)
    torch.testing.assert_close(own_gradients, expected_gradients, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_tied_sums_in_float32(k, spread):
    log_u, log_v = (spread * torch.randn(size, k) - 2 for size in (500, 700))
    found, own_gradients = gradients(tied_sums, log_u, log_v)
    expected, expected_gradients = gradients(plain_tied_sums, log_u.double(), log_v.double())
    for ours, truth in zip((*found, *own_gradients), (*expected, *expected_gradients), strict=True):
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
    found = softplus_pair_sum(torch.cat([a, b]), 1500)
    assert found is not None
    total, (by_a, by_b) = found[0], found[1].split([1500, 1400])
    pairs = a.unsqueeze(1) + b
    torch.testing.assert_close(total, torch.nn.functional.softplus(pairs).sum(), rtol=1e-9, atol=1e-4)
    torch.testing.assert_close(by_a, pairs.sigmoid().sum(1), rtol=1e-9, atol=1e-7)
    torch.testing.assert_close(by_b, pairs.sigmoid().sum(0), rtol=1e-9, atol=1e-7)


def test_all_pairs_are_left_to_others_where_they_are_cheaper():
    assert softplus_pair_sum(torch.randn(50), 20) is None
    for broken in (200 * torch.rand(3000), torch.full((3000,), float("nan"))):
        assert softplus_pair_sum(torch.cat([broken, torch.rand(3000)]), 3000) is None


def test_a_broken_parameter_shows_in_the_sum():
    log_u, log_v = torch.zeros(2000, 2), torch.zeros(2000, 2)
    log_u[3, 1] = float("nan")
    assert all(value.isnan() for value in tied_sums(log_u, log_v))


def plain_weighted_sum(by_log, by_square, means, log_sigma):
    squares = (2 * log_sigma).exp().sum() + (0.0 if means is None else means.square().sum())
    return by_log * log_sigma.sum() + by_square * squares


@pytest.mark.parametrize("shape", [(30,), (4, 5, 6)])
@pytest.mark.parametrize("with_means", [True, False])
@pytest.mark.parametrize("k", [None, 1, 2, 3])
def test_weighted_sum(k, with_means, shape):
    """Both sums and the means at once, by their definition and by finite differences."""
    means = torch.randn(shape, dtype=torch.float64, requires_grad=True) if with_means else None
    rows, columns = shape[0], means.numel() // shape[0] if with_means else 7
    sizes = ((rows, columns),) if k is None else ((rows, k), (columns, k))
    logs = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    log_sigma = logs[0] if k is None else (logs[0].unsqueeze(1) + logs[1]).logsumexp(-1)
    expected = plain_weighted_sum(-1.5, 0.3, means, log_sigma)
    torch.testing.assert_close(weighted_sum(-1.5, 0.3, means, *logs), expected)
    given = [means, *logs] if with_means else logs
    before = [x.detach().clone() for x in given]

    def function(*changed):
        return weighted_sum(-1.5, 0.3, *changed) if with_means else weighted_sum(-1.5, 0.3, None, *changed)

    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, [x.detach()[:3].requires_grad_() for x in given])
    assert all(torch.equal(x, y) for x, y in zip(given, before, strict=True))


@pytest.mark.parametrize("k", [None, 2])
def test_two_backward_passes_and_frozen_means(k):
    means = torch.randn(50, 60)
    sizes = ((50, 60),) if k is None else ((50, k), (60, k))
    logs = [torch.randn(size, requires_grad=True) for size in sizes]
    total = weighted_sum(-1.0, 2.0, means, *logs)
    total.backward(retain_graph=True)
    once = [log.grad.clone() for log in logs]
    total.backward()
    torch.testing.assert_close([log.grad for log in logs], [2 * grad for grad in once])
    assert means.grad is None


@pytest.mark.parametrize("k", [1, 2, 3])
def test_second_derivatives(k):
    log_u, log_v = (torch.randn(size, k, dtype=torch.float64, requires_grad=True) for size in (60, 50))
    assert torch.autograd.gradgradcheck(lambda u, v: tied_sums(u, v)[0], (log_u[:3], log_v[:4]))

    def second(function):
        (first,) = torch.autograd.grad(function(log_u, log_v)[0], log_u, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [log_u, log_v], allow_unused=True, materialize_grads=True)

    torch.testing.assert_close(second(tied_sums), second(plain_tied_sums))
