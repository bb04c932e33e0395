"""Every fast path equals the plain operations: outputs and all gradients, in both types, with the same draws."""

import threading
from itertools import product

import pytest
import torch
from fast_oracle import (
    LAYERS,
    PASSES,
    assert_fast_is_plain,
    assert_same,
    convert,
    counted,
    flipping,
    outcome,
    plain_path,
)
from torch import nn

from compiled_kernels import needs_kernels
from slimbayes.layers import Rank1Conv2d, Rank1Linear

DTYPES = (torch.float32, torch.float64)
pytestmark = needs_kernels


def case(layer, dtype=torch.float32, batch=6, needs_gradient=True, bias=True, **options):
    """Return a model of one layer and its input."""
    build, shape = LAYERS[layer]
    model = convert(build(bias=bias), dtype, **options)
    return model, torch.randn(batch, *shape, dtype=dtype, requires_grad=needs_gradient)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("how", PASSES)
@pytest.mark.parametrize("layer", LAYERS)
def test_each_kind_of_noise(layer, how, dtype):
    batch, flips, arguments = PASSES[how]
    for factors in ("both", "input", "output"):
        model, x = case(layer, dtype, batch, factors=factors)
        with flipping(flips):
            assert assert_fast_is_plain(model, x, **arguments)


@pytest.mark.parametrize("layer", LAYERS)
def test_biases_and_what_needs_no_gradient(layer):
    biases = ({"bias": True}, {"bias": False}, {"bias": True, "member_bias": False})
    for bias, needs_gradient, freeze in product(biases, (True, False), (True, False)):
        model, x = case(layer, needs_gradient=needs_gradient, freeze_base=freeze, **bias)
        for flips, arguments in ((False, {}), (True, {}), (False, {"noise": "shared"})):
            with flipping(flips):
                assert assert_fast_is_plain(model, x, **arguments)


@pytest.mark.parametrize("layer", LAYERS)
def test_many_rows_before_a_network(layer):
    for bias, freeze, factors in ((True, False, "both"), (False, True, "both"), (False, False, "input")):
        model, x = case(layer, torch.float64, 50, needs_gradient=False, bias=bias, freeze_base=freeze, factors=factors)
        for flips, arguments in ((False, {"samples": 0}), (False, {"noise": "shared", "samples": 2}), (True, {})):
            with flipping(flips):
                assert assert_fast_is_plain(model, x, **arguments)


@pytest.mark.parametrize("layer", ["linear", "linear_3d"])
def test_few_outputs_of_many_rows(layer):
    for bias, freeze, factors in ((True, False, "both"), (False, True, "both"), (False, False, "input")):
        model, x = case(layer, torch.float64, 60, bias=bias, freeze_base=freeze, factors=factors)
        for arguments in ({"samples": 0}, {"noise": "shared", "samples": 2}):
            assert assert_fast_is_plain(model, x, **arguments)


@pytest.mark.parametrize("family", ["cauchy", "student_t", "log_normal", "delta"])
@pytest.mark.parametrize("layer", ["linear", "conv2d"])
def test_each_family(layer, family):
    model, x = case(layer, torch.float64, family=family)
    for flips in (False, True):
        with flipping(flips):
            assert assert_fast_is_plain(model, x)


@pytest.mark.parametrize("options", [{"rank": 2}, {"perturbation": "additive"}], ids=str)
@pytest.mark.parametrize("layer", ["linear", "conv2d"])
def test_other_perturbations(layer, options):
    with flipping():
        assert_fast_is_plain(*case(layer, **options))


@pytest.mark.parametrize("how", PASSES)
@pytest.mark.parametrize("bias", [False, True], ids=["no_bias", "bias"])
def test_channels_last(how, bias):
    batch, flips, arguments = PASSES[how]
    last = torch.channels_last
    model, x = case("conv2d", batch=batch, bias=bias)
    model, x = model.to(memory_format=last), x.detach().contiguous(memory_format=last).requires_grad_()
    with flipping(flips):
        assert assert_fast_is_plain(model, x, **arguments)
        assert model(x, **arguments).flatten(0, 1).is_contiguous(memory_format=last)
        assert assert_fast_is_plain(model, x.detach(), **arguments)


@pytest.mark.parametrize("train_on", ["tile", "split"])
def test_the_network_gets_images_in_the_format_that_they_came_in(train_on):
    met = []
    model = convert(nn.Sequential(nn.Conv2d(4, 6, 3)), train_on=train_on)
    model.net[0].register_forward_pre_hook(lambda layer, args: met.append(args[0]))
    x = torch.randn(6, 4, 7, 5)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        model(x.contiguous(memory_format=memory_format))
        assert met[-1].is_contiguous(memory_format=memory_format)
    assert torch.equal(*met)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-13, 1e-11, 1e-6])
@pytest.mark.parametrize("layer", ["linear", "conv2d", "conv2d_geometry"])
def test_factors_that_are_zero_or_tiny(layer, value):
    for bias, side in product((True, False), ("input_factor", "output_factor")):
        model, x = case(layer, bias=bias)
        with torch.no_grad():
            getattr(model.net, side).loc[0, ::2] = value
        assert_fast_is_plain(model, x, samples=0)
        assert_fast_is_plain(model, x, noise="shared")


def test_one_row_and_one_channel():
    for net, shape in ((nn.Linear(1, 1), (1,)), (nn.Conv2d(1, 1, 1), (1, 1, 1)), (nn.Conv2d(1, 1, 3), (1, 3, 3))):
        for batch, flips in product((1, 2), (True, False)):
            with flipping(flips):
                assert assert_fast_is_plain(convert(net), torch.randn(batch, *shape, requires_grad=True))


INPUTS = {
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "sliced": lambda x: x.repeat_interleave(2, 0)[::2],
    "expanded": lambda x: x[:1].expand_as(x),
    "channels_expanded": lambda x: x[:, :1].expand_as(x),
    "offset": lambda x: torch.cat([x[:1], x])[1:],
}


@pytest.mark.parametrize("layout", INPUTS)
@pytest.mark.parametrize("layer", LAYERS)
def test_layouts_of_inputs(layer, layout):
    for how in ("example", "flipped", "shared_many_rows"):
        batch, flips, arguments = PASSES[how]
        build, shape = LAYERS[layer]
        model = convert(nn.Sequential(Laid(INPUTS[layout]), build()))
        x = torch.randn(batch, *shape, requires_grad=True)
        with flipping(flips):
            assert_fast_is_plain(model, x, **arguments)  # what the kernel does not know is left to torch


class Laid(nn.Module):
    """Lays its input out in memory in another way."""

    def __init__(self, lay):
        super().__init__()
        self.lay = lay

    def forward(self, x):
        return self.lay(x)


@pytest.mark.parametrize("grad", ["expanded", "transposed"])
@pytest.mark.parametrize("layer", LAYERS)
def test_layouts_of_gradients(layer, grad):
    model, x = case(layer)
    found = []
    for context in (counted, plain_path):
        with context():
            torch.manual_seed(0)
            y = model(x)
            y = y.sum() if grad == "expanded" else y.transpose(1, -1).contiguous().square().sum()
            found.append((y.detach(), dict(enumerate(torch.autograd.grad(y, [x, *model.parameters()])))))
    assert_same(*found)


@pytest.mark.parametrize("layer", [Rank1Linear(5, 7, members=2, family="delta"), Rank1Conv2d(5, 7, 3, members=2)])
def test_no_rows_at_all(layer):
    layer.sampling.samples = 0
    shape = (0, 5) if isinstance(layer, Rank1Linear) else (0, 5, 4, 4)
    assert_fast_is_plain(layer, torch.zeros(*shape, requires_grad=True))


@pytest.mark.parametrize(("layer", "shape"), [("linear", (6, 4)), ("linear", (6, 2, 1)), ("conv2d", (6, 3, 7, 6))])
def test_wrong_channels_raise_the_plain_error(layer, shape):
    model, _ = case(layer)
    messages = []
    for context in (counted, plain_path):
        with context(), pytest.raises(ValueError, match="channels on axis") as error:
            model(torch.randn(shape))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("noise", ["example", "shared"])
def test_wrong_rows_raise_the_plain_error(noise):
    messages = []
    for context in (counted, plain_path):
        layer = Rank1Linear(5, 7, members=2)
        layer.sampling.noise = noise
        with context(), pytest.raises(ValueError, match="Layer Rank1Linear got 5 rows") as error:
            layer(torch.randn(5, 5))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


class Twice(nn.Module):
    """One layer called twice, with others whose memory is smaller and larger."""

    def __init__(self, conv):
        super().__init__()
        kinds = (nn.Conv2d, {"kernel_size": 1}) if conv else (nn.Linear, {})
        self.first, self.again, self.last = (kinds[0](*sizes, **kinds[1]) for sizes in ((3, 8), (8, 8), (8, 2)))

    def forward(self, x):
        return self.last(self.again(self.again(self.first(x)).tanh()).tanh())


@pytest.mark.parametrize("how", PASSES)
@pytest.mark.parametrize("conv", [False, True], ids=["linear", "conv"])
def test_one_layer_called_twice(conv, how):
    batch, flips, arguments = PASSES[how]
    x = torch.randn(batch, 3, *[4, 4] * conv, dtype=torch.float64, requires_grad=True)
    model = convert(Twice(conv), torch.float64)
    with flipping(flips):
        assert len(assert_fast_is_plain(model, x, **arguments)) == 8


def test_graphs_that_are_alive_together():
    """What a graph still needs is not overwritten by the next pass."""
    for layer in LAYERS:
        with flipping():
            model, x = case(layer, torch.float64)
            expected = outcome(model, x)
            model.zero_grad()
            torch.manual_seed(5)
            y = model(x)
            for other in LAYERS:
                outcome(*case(other, torch.float64))
            assert torch.equal(y, expected[0])
            gradients = torch.autograd.grad(y.square().sum(), [x])
            with plain_path():
                torch.manual_seed(5)
                torch.testing.assert_close(gradients, torch.autograd.grad(model(x).square().sum(), [x]))


def test_several_threads_with_models_of_their_own():
    cases = [case(layer, torch.float64, batch) for layer, batch in (("conv2d", 16), ("conv1d", 9), ("linear_3d", 12))]
    expected = [outcome(model, x, samples=0) for model, x in cases]
    found, barrier = {}, threading.Barrier(len(cases))

    def work(index, model, x):
        barrier.wait()
        for _ in range(20):
            model.zero_grad()
            y = model(x, samples=0)
            gradients = torch.autograd.grad(y.square().sum(), [x, *model.parameters()], allow_unused=True)
            found.setdefault(index, []).append((y.detach(), gradients))

    threads = [threading.Thread(target=work, args=(i, *case)) for i, case in enumerate(cases)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for index, results in found.items():
        assert len(results) == 20
        for y, gradients in results:
            torch.testing.assert_close(y, expected[index][0], rtol=1e-12, atol=1e-12)
            for one, first in zip(gradients, results[0][1], strict=True):
                assert (one is None and first is None) or torch.allclose(one, first, rtol=1e-12, atol=1e-12)
    assert len(found) == len(cases)
