"""Operations with gradients of their own do all that autograd can ask of them."""

import pytest
import torch
from fast_oracle import (
    LAYERS,
    SEED,
    assert_fast_is_plain,
    assert_same,
    convert,
    counted,
    flipping,
    loss_of,
    outcome,
    plain_path,
)
from slimbayes.layers.flips import Flipped
from slimbayes.layers.folded_conv import folded_conv
from slimbayes.layers.geometry import Geometry
from slimbayes.layers.scaled_conv import scaled_conv
from slimbayes.layers.scaled_linear import scaled_linear
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacrev, jvp, vmap

LAYOUTS = ("linear", "linear_3d", "conv2d", "conv2d_geometry")


def case(layer, batch=6, bias=True, **options):
    build, shape = LAYERS[layer]
    return convert(build(bias=bias), torch.float64, **options), torch.randn(batch, *shape, dtype=torch.float64)


# ------------------------------------------------------------------ finite differences


def uniform(*shape):
    return (torch.rand(shape, dtype=torch.float64) + 0.5).requires_grad_()


def check(function, *inputs, repeated=0.0):
    """Compare with finite differences; ``repeated`` is how much a second backward pass may differ from the first."""
    assert gradcheck(function, inputs, check_batched_grad=True, nondet_tol=repeated)
    assert gradgradcheck(function, inputs)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("sides", [("s", "r"), ("s",), ("r",)], ids="".join)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gradients_of_the_linear_operation(sides, groups):
    s, r = (uniform(groups, n) if side in sides else None for side, n in (("s", 2), ("r", 3)))
    bias = uniform(2, 3) if groups > 1 else None
    check(scaled_linear, uniform(4, 2), uniform(3, 2), bias, s, r)
    check(scaled_linear, uniform(4, 2, 2), uniform(3, 2), None, s, r)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("members", [1, 2])
def test_gradients_of_the_linear_operation_with_flipped_noise(members):
    signs = [torch.randint(2, (2, n), dtype=torch.int8) * 2 - 1 for n in (2, 3)]

    def flipped(x, weight, bias, *parts):
        s, r = Flipped(*parts[:2], signs[0]), Flipped(*parts[2:], signs[1])
        return scaled_linear(x, weight, bias, s, r)

    parts = uniform(members, 2), uniform(2, 2), uniform(members, 3), uniform(2, 3)
    check(flipped, uniform(4, 2), uniform(3, 2), uniform(members, 3), *parts)
    check(flipped, uniform(4, 2, 2), uniform(3, 2), None, *parts)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("operation", [scaled_conv, folded_conv])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("sides", [("s", "r"), ("s",), ("r",)], ids="".join)
def test_gradients_of_the_convolutions(operation, sides, bias):
    geometry = Geometry((2,), (1,), (1,), 1)
    s, r = (uniform(2, 2) if side in sides else None for side in ("s", "r"))

    def convolve(*inputs):
        return operation(*inputs, geometry)

    # Once its output is given up, the product is computed anew instead of by division: the last digit may differ.
    check(convolve, uniform(4, 2, 3), uniform(2, 2, 2), uniform(2, 2) if bias else None, s, r, repeated=1e-14)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("members", [1, 2])
def test_gradients_of_the_convolution_with_flipped_noise(members):
    signs = [torch.randint(2, (2, n), dtype=torch.int8) * 2 - 1 for n in (2, 3)]

    def flipped(x, weight, bias, *parts):
        s, r = Flipped(*parts[:2], signs[0]), Flipped(*parts[2:], signs[1])
        return scaled_conv(x, weight, bias, s, r, Geometry((1,), (1,), (1,), 1))

    parts = uniform(members, 2), uniform(2, 2), uniform(members, 3), uniform(2, 3)
    check(flipped, uniform(4, 2, 3), uniform(3, 2, 2), uniform(members, 3), *parts)
    check(flipped, uniform(4, 2, 3), uniform(3, 2, 2), None, *parts, repeated=1e-14)


@pytest.mark.usefixtures("_each_way")
def test_gradients_where_an_output_factor_is_zero():
    geometry = Geometry((1,), (0,), (1,), 2)
    r = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64, requires_grad=True)

    def convolve(x, weight, r):
        return scaled_conv(x, weight, None, None, r, geometry)

    check(convolve, uniform(4, 2, 3), uniform(2, 1, 2), r)
    check(lambda x, weight, r: scaled_linear(x, weight, None, None, r), uniform(4, 2), uniform(2, 2), r)


# ------------------------------------------------------------------ backward passes of other kinds


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("flips", [False, True], ids=["rows", "flipped"])
@pytest.mark.parametrize("layer", LAYOUTS)
def test_a_graph_that_is_used_twice(layer, flips):
    for bias in (True, False):
        model, x = case(layer, bias=bias)
        with flipping(flips):
            single = outcome(model, x)[1]
            model.zero_grad()
            torch.manual_seed(SEED)
            loss = loss_of(model(x))
            loss.backward(retain_graph=True)
            loss.backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, 2 * single[name])


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("layer", LAYOUTS)
def test_gradients_of_gradients(layer):
    """A gradient penalty, whose backward pass goes through the backward pass."""
    model, x = case(layer)
    x.requires_grad_()
    found = []
    for context in (counted, plain_path):
        model.zero_grad()
        with context(), flipping():
            torch.manual_seed(SEED)
            y = model(x).tanh()
            (slopes,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            slopes.square().sum().backward()
        found.append((y.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}))
    assert_same(*found)


@pytest.mark.parametrize("layer", LAYOUTS)
@pytest.mark.parametrize("batch", [6, 10])
def test_several_gradients_at_once(layer, batch):
    """Batched gradients, as ``torch.autograd.functional.jacobian(vectorize=True)`` takes them."""
    model, x = case(layer, batch)
    parameters = list(model.parameters())
    found = []
    for context in (counted, plain_path):
        with context():
            y = model(x, samples=0).flatten()[:3]
            found.append(
                torch.autograd.grad(y, parameters, torch.eye(3).to(y), is_grads_batched=True, allow_unused=True)
            )
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("layer", LAYOUTS)
def test_function_transforms_step_aside(layer):
    model, x = case(layer)
    parameters = dict(model.named_parameters())
    expected = outcome(model, x, samples=0)[1]

    def loss(parameters, x):
        return loss_of(functional_call(model, parameters, (x,), {"samples": 0}))

    with counted() as taken:
        found = grad(loss)(parameters, x)
        batches = torch.stack([x, 2 * x])
        per_batch = vmap(grad(loss), (None, 0))(parameters, batches)
        jacobian = jacrev(lambda x: functional_call(model, parameters, (x,), {"samples": 0}).sum((0, 1)))(x)
        forward = jvp(lambda x: loss(parameters, x), (x,), (torch.ones_like(x),))[1]
    assert taken == []
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient)
        torch.testing.assert_close(per_batch[name][0], gradient)
    x.requires_grad_()
    backward = torch.autograd.grad(loss_of(model(x, samples=0)), x)[0]
    torch.testing.assert_close(forward, backward.sum())
    some = model(x, samples=0).sum((0, 1)).flatten()[1]
    torch.testing.assert_close(jacobian.flatten(0, -x.dim() - 1)[1], torch.autograd.grad(some, x)[0])


@pytest.mark.parametrize("layer", LAYOUTS)
def test_saved_tensors_kept_elsewhere(layer):
    for bias in (True, False):
        model, x = case(layer, bias=bias)
        with flipping():
            expected = outcome(model, x)
            with torch.autograd.graph.save_on_cpu(), counted() as taken:
                assert_same(outcome(model, x), expected)
        assert taken == [model.net]


# ------------------------------------------------------------------ no gradients


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("layer", LAYERS)
def test_passes_without_gradients(layer, mode):
    for bias, arguments in ((True, {}), (False, {}), (True, {"samples": 0}), (False, {"samples": 0})):
        model, x = case(layer, 12, bias=bias)
        with flipping():
            expected = outcome(model, x, **arguments)
            with mode(), counted() as taken:
                torch.manual_seed(SEED)
                torch.testing.assert_close(model(x, **arguments), expected[0])
            assert taken == [model.net]


@pytest.mark.parametrize("conv", [False, True], ids=["linear", "conv"])
def test_training_after_inference_mode(conv):
    """Memory that is kept from call to call must not be of the kind that training cannot write to."""
    net = nn.Conv1d(50, 60, 1) if conv else nn.Linear(50, 60)
    model, x = convert(net, torch.float64), torch.randn(70, 50, *[9] * conv, dtype=torch.float64)
    with flipping():
        with torch.inference_mode():
            model(x)
            model(x, noise="shared")
        assert assert_fast_is_plain(model, x) == [model.net]


@pytest.mark.usefixtures("_each_way")
def test_a_default_device_of_another_kind():
    """What operations allocate is where their inputs are."""
    for layer in LAYERS:
        model, x = case(layer, 13)
        with flipping(), torch.device("meta"):
            assert model(x).device.type == "cpu"
            assert model(x, noise="shared").device.type == "cpu"


# ------------------------------------------------------------------ operations in place on the output


class InPlace(nn.Module):
    def __init__(self, layer, change):
        super().__init__()
        self.layer, self.change = layer, change

    def forward(self, x):
        y = self.layer(x)
        changed = self.change(y)
        return y if changed is None else changed


def _zero_first(y):
    y[0] = 0.0


def _scale_without_gradient(y):
    with torch.no_grad():
        y.mul_(1.0)
    return y.square()


CHANGES = {
    "relu": nn.ReLU(inplace=True),
    "add": lambda y: y.add_(y.detach().roll(1, 0)),
    "view": lambda y: y.flatten(1).tanh_(),
    "index": _zero_first,
    "unchanged_values": _scale_without_gradient,
}


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("layer", LAYERS)
def test_outputs_changed_in_place(layer, change, bias):
    build, shape = LAYERS[layer]
    for batch, arguments in ((6, {}), (10, {"noise": "shared"})):
        model = convert(InPlace(build(bias=bias), CHANGES[change]), torch.float64)
        x = torch.randn(batch, *shape, dtype=torch.float64, requires_grad=True)
        with flipping():
            assert assert_fast_is_plain(model, x, **arguments) == [model.net.layer]


def test_a_residual_added_in_place():
    class Block(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.first, self.second = layer(), layer()

        def forward(self, x):
            y = self.first(x)
            y += x
            z = self.second(y)
            z += y
            return z.relu_()

    for layer, shape in ((lambda: nn.Linear(4, 4), (4,)), (lambda: nn.Conv2d(4, 4, 1, bias=False), (4, 3, 3))):
        model = convert(Block(layer), torch.float64)
        x = torch.randn(8, *shape, dtype=torch.float64, requires_grad=True)
        assert len(assert_fast_is_plain(model, x)) == 2
