"""Local reparameterisation as one operation, against plain operations and finite differences."""

import pytest
import torch

from slimbayes.layers._local_reparameterization import local_linear
from slimbayes.layers._local_reparameterization import plain_local_linear as _plain

F64 = torch.float64
#: None for log sigma itself, or the columns of log u and log v.
each_k = pytest.mark.parametrize("k", [None, 1, 2, 3])


def arguments(k, bias=True, random_bias=True, dtype=F64, rows=6, inputs=5, outputs=4):
    """Return x, weight, bias, noise, the bias's log sigma and those of the weight; all but the noise are leaves."""

    def leaf(*shape):
        return torch.randn(*shape, dtype=dtype, requires_grad=True)

    logs = (leaf(outputs, inputs),) if k is None else (leaf(inputs, k), leaf(outputs, k))
    x, weight, noise = leaf(rows, inputs), leaf(outputs, inputs), torch.randn(rows, outputs, dtype=dtype)
    return x, weight, leaf(outputs) if bias else None, noise, leaf(outputs) if random_bias else None, *logs


def leaves(given):
    return [x for x in given if x is not None and x.requires_grad]


def with_noise(function, given):
    """Call it with a copy of the noise, which it may overwrite."""
    return function(*given[:3], given[3].clone(), *given[4:])


@each_k
@pytest.mark.parametrize(("bias", "random_bias"), [(True, True), (True, False), (False, False)])
def test_finite_differences(k, bias, random_bias):
    given = arguments(k, bias, random_bias)

    def function(*changed):
        changed = iter(changed)
        return with_noise(local_linear, [next(changed) if x is not None and x.requires_grad else x for x in given])

    assert torch.autograd.gradcheck(function, leaves(given))


@each_k
@pytest.mark.parametrize("random_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_equals_plain_operations(k, random_bias, dtype):
    given = arguments(k, random_bias=random_bias, dtype=dtype, rows=30, inputs=20, outputs=10)
    up = torch.randn(30, 10, dtype=dtype)
    found, expected = (with_noise(f, given) for f in (local_linear, _plain))
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(y, leaves(given), up) for y in (found, expected))
    # Entries are sums of terms as large as the largest of them.
    rtol, atol = (1e-5, 1e-6) if dtype == torch.float32 else (1e-12, 1e-14)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol * other.abs().max().item())


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("frozen", ["x", "weight", "bias", "log_sigma"])
def test_what_is_frozen_has_no_gradient(frozen, k):
    given = arguments(k)
    names = dict(zip(("x", "weight", "bias", "noise", "bias_log", "log_sigma"), given, strict=False))
    del names["noise"]
    names[frozen].requires_grad_(False)
    local_linear(*given).sum().backward()
    assert {name: leaf.grad is not None for name, leaf in names.items()} == {n: n != frozen for n in names}


@each_k
def test_two_backward_passes_and_untouched_inputs(k):
    given = arguments(k)
    inputs = leaves(given)
    before = [leaf.detach().clone() for leaf in inputs]
    y = local_linear(*given)
    y.sum().backward(retain_graph=True)
    once = [leaf.grad.clone() for leaf in inputs]
    y.sum().backward()
    torch.testing.assert_close([leaf.grad for leaf in inputs], [2 * grad for grad in once])
    assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True))


@each_k
def test_second_derivatives(k):
    given = arguments(k)

    def penalty(function):
        y = with_noise(function, given)
        (first,) = torch.autograd.grad(y.sum(), given[0], create_graph=True)
        wanted = [x for x in leaves(given) if x is not given[2]]
        return torch.autograd.grad(first.square().sum(), wanted)

    torch.testing.assert_close(penalty(local_linear), penalty(_plain))


@each_k
@pytest.mark.parametrize("bias_log", [None, -100.0])
def test_an_input_of_zeros_has_a_finite_gradient(k, bias_log):
    x, weight, b, noise, _, *logs = arguments(k)
    x = torch.zeros_like(x).requires_grad_()
    small = None if bias_log is None else torch.full((4,), bias_log, dtype=F64, requires_grad=True)
    for function in (local_linear, _plain):
        x.grad = None
        function(x, weight, b, noise.clone(), small, *logs).sum().backward()
        assert all(leaf.grad.isfinite().all() for leaf in (x, *logs))
        assert small is None or small.grad.abs().max() < 1e-12


@each_k
def test_functional_transforms_take_plain_operations(k):
    x, weight, *rest = arguments(k)
    first = torch.func.grad(lambda w: local_linear(x, w, *rest).square().sum())(weight)
    (expected,) = torch.autograd.grad(_plain(x, weight, *rest).square().sum(), weight)
    torch.testing.assert_close(first, expected)
