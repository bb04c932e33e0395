"""Local reparameterisation as one operation, against plain operations and finite differences."""

import pytest
import torch

from slimbayes.layers.local import _plain, local_linear

F64 = torch.float64


def arguments(maps, bias=True, dtype=F64, rows=6, inputs=5, outputs=4):
    """Return x, weight, bias, offset, noise and the maps, all leaves."""
    x, weight = torch.randn(rows, inputs, dtype=dtype), torch.randn(outputs, inputs, dtype=dtype)
    offset, noise = torch.rand(outputs, dtype=dtype) + 0.1, torch.randn(rows, outputs, dtype=dtype)
    made = [torch.rand(outputs, inputs, dtype=dtype)]
    if maps == 2:
        made = [torch.rand(3, inputs, dtype=dtype), torch.rand(outputs, 3, dtype=dtype)]
    b = torch.randn(outputs, dtype=dtype) if bias else None
    leaves = [x, weight, b, offset, *made]
    for leaf in leaves:
        if leaf is not None:
            leaf.requires_grad_()
    return x, weight, b, offset, noise, tuple(made)


@pytest.mark.parametrize("maps", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_finite_differences(maps, bias):
    x, weight, b, offset, noise, made = arguments(maps, bias)
    given = [x, weight, offset, *made] if b is None else [x, weight, b, offset, *made]

    def function(*leaves):
        leaves = list(leaves)
        first, second = leaves[:2]
        own_bias = leaves[2] if bias else None
        rest = leaves[3:] if bias else leaves[2:]
        return local_linear(first, second, own_bias, rest[0], noise.clone(), tuple(rest[1:]))

    assert torch.autograd.gradcheck(function, given)


@pytest.mark.parametrize("maps", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_equals_plain_operations(maps, dtype):
    x, weight, b, offset, noise, made = arguments(maps, dtype=dtype, rows=30, inputs=20, outputs=10)
    leaves = [x, weight, b, offset, *made]
    up = torch.randn(30, 10, dtype=dtype)
    found, expected = (f(x, weight, b, offset, noise.clone(), made) for f in (local_linear, _plain))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, leaves, up), torch.autograd.grad(expected, leaves, up))


@pytest.mark.parametrize("frozen", ["x", "weight", "bias"])
def test_what_is_frozen_has_no_gradient(frozen):
    x, weight, b, offset, noise, made = arguments(2)
    names = {"x": x, "weight": weight, "bias": b}
    names[frozen].requires_grad_(False)
    local_linear(x, weight, b, offset, noise, made).sum().backward()
    assert {name: leaf.grad is not None for name, leaf in names.items()} == {n: n != frozen for n in names}


def test_two_backward_passes_and_untouched_inputs():
    x, weight, b, offset, noise, made = arguments(2)
    before = [leaf.detach().clone() for leaf in (x, weight, b, offset, *made)]
    y = local_linear(x, weight, b, offset, noise, made)
    y.sum().backward(retain_graph=True)
    once = weight.grad.clone()
    y.sum().backward()
    torch.testing.assert_close(weight.grad, 2 * once)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, weight, b, offset, *made), strict=True))


@pytest.mark.parametrize("maps", [1, 2])
def test_second_derivatives(maps):
    x, weight, b, offset, noise, made = arguments(maps)

    def penalty(function):
        y = function(x, weight, b, offset, noise.clone(), made)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), [x, weight, offset, *made])

    torch.testing.assert_close(penalty(local_linear), penalty(_plain))


def test_an_input_of_zeros_has_a_finite_gradient():
    x, weight, b, _, noise, made = arguments(2)
    x = torch.zeros_like(x).requires_grad_()
    local_linear(x, weight, b, torch.full((4,), 1e-30, dtype=F64), noise, made).sum().backward()
    assert x.grad.isfinite().all()
    assert all(leaf.grad.isfinite().all() for leaf in made)


def test_functional_transforms_take_plain_operations():
    x, weight, b, offset, noise, made = arguments(2)
    slope = torch.func.grad(lambda w: local_linear(x, w, b, offset, noise, made).square().sum())(weight)
    (expected,) = torch.autograd.grad(_plain(x, weight, b, offset, noise, made).square().sum(), weight)
    torch.testing.assert_close(slope, expected)
