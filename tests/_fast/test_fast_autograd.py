"""Operations with gradients of their own do all that autograd can ask of them."""

import pytest
import torch
from fast_oracle import (
    LAYERS,
    MEMBERS,
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
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacrev, jvp, vmap

from compiled_kernels import needs_kernels
from slimbayes._fast.row_noise import SignedNoise, random_bits
from slimbayes._fast.scaled_rows import scale_rows

pytestmark = needs_kernels

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


def operation(x, bias, channel_dim, values):
    """Scale rows by the kernel; the test fails where it does not know how."""
    y = scale_rows(x, values, bias, 0, channel_dim)
    assert y is not None
    return y


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("shape", "channel_dim"), [((4, 3), 1), ((4, 2, 3), 2), ((4, 3, 2), 1), ((4, 3, 2, 1), 1)])
def test_gradients_of_scaled_rows(shape, channel_dim, groups):
    check(lambda x, v: operation(x, None, channel_dim, v), uniform(*shape), uniform(groups, 3))
    check(lambda x, b, v: operation(x, b, channel_dim, v), uniform(*shape), uniform(2, 3), uniform(groups, 3))


@pytest.mark.parametrize("members", [1, 2])
def test_gradients_of_rows_with_signs_of_their_own(members):
    bits = random_bits((4, 3))

    def signed(x, bias, loc, deviation):
        return operation(x, bias, 1, SignedNoise(loc, deviation, bits))

    check(signed, uniform(4, 3), uniform(members, 3), uniform(members, 3), uniform(2, 3))
    check(signed, uniform(4, 3, 2), uniform(members, 3), uniform(members, 3), uniform(2, 3))


def kept_by(model, x):
    """Return how many numbers a pass keeps for the backward pass, without weights and factors."""
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = model(x.requires_grad_(), samples=0)
    return sum(size for size in sizes if size in (x.numel() * MEMBERS, y.numel()))


@pytest.mark.parametrize("layer", ["linear", "linear_3d"])
def test_the_scaled_input_is_not_kept(layer):
    model, x = case(layer, bias=False)
    kept = kept_by(model, x)
    with plain_path():
        assert kept <= kept_by(model, x) - x.numel() * MEMBERS


# ------------------------------------------------------------------ backward passes of other kinds


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
            (gradients,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            gradients.square().sum().backward()
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
        assert taken


# ------------------------------------------------------------------ no gradients


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
            assert taken


@pytest.mark.parametrize("conv", [False, True], ids=["linear", "conv"])
def test_training_after_inference_mode(conv):
    """Memory that is kept from call to call must not be of the kind that training cannot write to."""
    net = nn.Conv1d(50, 60, 1) if conv else nn.Linear(50, 60)
    model, x = convert(net, torch.float64), torch.randn(70, 50, *[9] * conv, dtype=torch.float64)
    with flipping():
        with torch.inference_mode():
            model(x)
            model(x, noise="shared")
        assert assert_fast_is_plain(model, x)


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


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("layer", LAYERS)
def test_outputs_changed_in_place(layer, change, bias):
    build, shape = LAYERS[layer]
    for batch, arguments in ((6, {}), (10, {"noise": "shared"})):
        model = convert(InPlace(build(bias=bias), CHANGES[change]), torch.float64)
        x = torch.randn(batch, *shape, dtype=torch.float64, requires_grad=True)
        with flipping():
            assert assert_fast_is_plain(model, x, **arguments)


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
        assert len(assert_fast_is_plain(model, x)) == 4


# ------------------------------------------------------------------ half precision


@pytest.mark.parametrize("signed", [False, True], ids=["values", "signed"])
@pytest.mark.parametrize(("shape", "channel_dim"), [((12, 65), 1), ((12, 5, 3), 2), ((12, 5, 4, 3), 1)])
def test_bfloat16_rounds_once(shape, channel_dim, signed):
    """The output is that of float64 rounded to bfloat16; sums are taken in float32."""
    channels = shape[channel_dim]
    x = torch.randn(shape, dtype=torch.bfloat16, requires_grad=True)
    bias, loc, deviation = (torch.randn(n, channels, requires_grad=True) for n in (2, 2, 4))
    bits = random_bits((12, channels))

    def run(x, bias, loc, deviation, scale):
        values = SignedNoise(loc, deviation, bits) if signed else loc
        return scale(x, values, bias)

    def plain(x, values, bias):
        rows = [values.values() if signed else values, bias]
        view = [1] * x.dim()
        view[0], view[channel_dim] = len(x), channels
        v, b = (table.repeat_interleave(len(x) // len(table), 0).view(view) for table in rows)
        return x * v + b

    leaves = [x, bias, loc, *([deviation] if signed else [])]
    y = run(x, bias, loc, deviation, lambda x, values, bias: operation(x, bias, channel_dim, values))
    wide = [leaf.detach().double().requires_grad_() for leaf in (x, bias, loc, deviation)]
    expected = run(*wide, plain)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected.bfloat16(), rtol=2**-8, atol=1e-6)
    up = torch.randn(shape, dtype=torch.bfloat16)
    found = torch.autograd.grad(y, leaves, up)
    truth = torch.autograd.grad(expected, wide[: len(leaves)], up.double())
    torch.testing.assert_close(found[0].double(), truth[0], rtol=2**-8, atol=1e-6)
    for one, exact in zip(found[1:], truth[1:], strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), exact, rtol=1e-5, atol=1e-5)
