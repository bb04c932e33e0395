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
from slimbayes.layers.scratch import scratch
from torch import nn

from compiled_kernels import without_kernels
from slimbayes.layers import Rank1Conv2d, Rank1Linear, scaled_linear, torch_passes
from slimbayes.layers.conv import _Rank1Conv

DTYPES = (torch.float32, torch.float64)


def case(layer, dtype=torch.float32, batch=6, needs_gradient=True, bias=True, **options):
    """Return a model of one layer and its input."""
    build, shape = LAYERS[layer]
    model = convert(build(bias=bias), dtype, **options)
    return model, torch.randn(batch, *shape, dtype=dtype, requires_grad=needs_gradient)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("how", PASSES)
@pytest.mark.parametrize("layer", LAYERS)
def test_each_kind_of_noise(layer, how, dtype):
    batch, flips, arguments = PASSES[how]
    for factors in ("both", "input", "output"):
        model, x = case(layer, dtype, batch, factors=factors)
        with flipping(flips):
            assert assert_fast_is_plain(model, x, **arguments) == [model.net]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("layer", LAYERS)
def test_biases_and_what_needs_no_gradient(layer):
    biases = ({"bias": True}, {"bias": False}, {"bias": True, "member_bias": False})
    for bias, needs_gradient, freeze in product(biases, (True, False), (True, False)):
        model, x = case(layer, needs_gradient=needs_gradient, freeze_base=freeze, **bias)
        for flips, arguments in ((False, {}), (True, {}), (False, {"noise": "shared"})):
            with flipping(flips):
                assert assert_fast_is_plain(model, x, **arguments) == [model.net]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("layer", LAYERS)
def test_many_rows_in_front_of_a_network(layer):
    for bias, freeze, factors in ((True, False, "both"), (False, True, "both"), (False, False, "input")):
        model, x = case(layer, torch.float64, 50, needs_gradient=False, bias=bias, freeze_base=freeze, factors=factors)
        for flips, arguments in ((False, {"samples": 0}), (False, {"noise": "shared", "samples": 2}), (True, {})):
            with flipping(flips):
                assert assert_fast_is_plain(model, x, **arguments) == [model.net]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("layer", ["linear", "linear_3d"])
def test_few_outputs_of_many_rows(layer):
    for bias, freeze, factors in ((True, False, "both"), (False, True, "both"), (False, False, "input")):
        model, x = case(layer, torch.float64, 60, bias=bias, freeze_base=freeze, factors=factors)
        for arguments in ({"samples": 0}, {"noise": "shared", "samples": 2}):
            assert assert_fast_is_plain(model, x, **arguments) == [model.net]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("layer", ["linear", "linear_3d"])
def test_factors_in_front_of_a_network_from_the_gradient_of_their_weights(layer, monkeypatch):
    taken = []
    plain = scaled_linear._by_weight
    monkeypatch.setattr(scaled_linear, "_by_weight", lambda *args: taken.append(layer) or plain(*args))
    for dtype, bias, freeze, factors in product(DTYPES, (True, False), (True, False), ("both", "input")):
        model, x = case(layer, dtype, 50, needs_gradient=False, bias=bias, freeze_base=freeze, factors=factors)
        for arguments in ({"samples": 0}, {"noise": "shared", "samples": 2}):
            taken.clear()
            assert assert_fast_is_plain(model, x, **arguments) == [model.net]
            assert taken


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_convolutions_some_rows_at_a_time(rows, monkeypatch):
    model, x = case("conv2d", torch.float64, 7)
    monkeypatch.setattr(torch_passes, "CACHED_ELEMENTS", rows * 6 * 7 * 6)
    with without_kernels():
        assert assert_fast_is_plain(model, x) == [model.net]


@pytest.mark.parametrize("family", ["cauchy", "student_t", "log_normal", "delta"])
@pytest.mark.parametrize("layer", ["linear", "conv2d"])
def test_each_family(layer, family):
    model, x = case(layer, torch.float64, family=family)
    for flips in (False, True):
        with flipping(flips):
            assert assert_fast_is_plain(model, x) == [model.net]


@pytest.mark.parametrize("options", [{"rank": 2}, {"perturbation": "additive"}], ids=str)
@pytest.mark.parametrize("layer", ["linear", "conv2d"])
def test_what_the_fast_paths_do_not_know_takes_the_plain_one(layer, options):
    with flipping():
        assert assert_fast_is_plain(*case(layer, **options)) == []


@pytest.mark.parametrize("padding", [{"padding": "same"}, {"padding": 1, "padding_mode": "circular"}], ids=str)
def test_paddings_of_other_kinds_take_the_plain_path(padding):
    model = convert(nn.Conv2d(4, 6, 3, **padding))
    assert assert_fast_is_plain(model, torch.randn(6, 4, 7, 6, requires_grad=True)) == []


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("how", PASSES)
@pytest.mark.parametrize("bias", [False, True], ids=["no_bias", "bias"])
def test_channels_last(how, bias):
    batch, flips, arguments = PASSES[how]
    last = torch.channels_last
    model, x = case("conv2d", batch=batch, bias=bias)
    model, x = model.to(memory_format=last), x.detach().contiguous(memory_format=last).requires_grad_()
    with flipping(flips):
        assert assert_fast_is_plain(model, x, **arguments) == [model.net]
        assert model(x, **arguments).flatten(0, 1).is_contiguous(memory_format=last)
        assert assert_fast_is_plain(model, x.detach(), **arguments) == [model.net]


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


@pytest.mark.parametrize("fold", [False, True], ids=["scaled", "folded"])
@pytest.mark.parametrize("how", ["shared_many_rows", "location_many_rows"])
def test_shared_draws_scaled_and_folded(how, fold, monkeypatch):
    monkeypatch.setattr(_Rank1Conv, "_should_fold", lambda *args: fold)
    batch, _, arguments = PASSES[how]
    for layer, bias, factors in product(("conv1d", "conv2d", "conv3d"), (True, False), ("both", "input", "output")):
        model, x = case(layer, torch.float64, batch, bias=bias, factors=factors)
        assert_fast_is_plain(model, x, **arguments)
        assert_fast_is_plain(model, x.detach(), **arguments)


def test_many_rows_of_a_shared_draw_are_folded():
    model, x = case("conv2d", batch=10)
    assert model.net._should_fold(x.repeat(2, 1, 1, 1), torch.ones(2, 4), torch.ones(2, 6))
    assert not model.net._should_fold(x, torch.ones(10, 4), torch.ones(10, 6))
    with torch.no_grad():
        assert not model.net._should_fold(x.repeat(2, 1, 1, 1), torch.ones(2, 4), torch.ones(2, 6))


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-13, 1e-11, 1e-6])
@pytest.mark.parametrize("layer", ["linear", "conv2d", "conv2d_geometry"])
def test_factors_that_are_zero_or_tiny(layer, value):
    for bias, side in product((True, False), ("input_factor", "output_factor")):
        model, x = case(layer, bias=bias)
        with torch.no_grad():
            getattr(model.net, side).loc[0, ::2] = value
        assert_fast_is_plain(model, x, samples=0)
        assert_fast_is_plain(model, x, noise="shared")


@pytest.mark.usefixtures("_each_way")
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
            assert assert_fast_is_plain(model, x, **arguments)


class Laid(nn.Module):
    """Lays its input out in memory in another way."""

    def __init__(self, lay):
        super().__init__()
        self.lay = lay

    def forward(self, x):
        return self.lay(x)


@pytest.mark.usefixtures("_each_way")
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


class Rectified(nn.Module):
    """Two layers with a ReLU between them, and perhaps something else that the first layer's output goes to."""

    def __init__(self, rectify, past, bias=True):
        super().__init__()
        self.first, self.last = nn.Linear(5, 7, bias=bias), nn.Linear(7, 3)
        self.rectify, self.past = rectify, past

    def forward(self, x):
        y = self.first(x)
        z = self.last(self.rectify(y))
        return z + y[..., :3] if self.past else z


RELUS = {"module": nn.ReLU(), "in_place": nn.ReLU(inplace=True), "function": torch.relu}


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize(("rectify", "past"), [*product(RELUS, [False]), ("module", True), ("function", True)])
def test_gradients_from_what_a_relu_has_kept(rectify, past, monkeypatch):
    taken = []
    plain = scaled_linear.rectified_back
    monkeypatch.setattr(scaled_linear, "rectified_back", lambda *args: taken.append(plain(*args)) or taken[-1])
    for how, dtype, bias in product(PASSES, DTYPES, (True, False)):
        batch, flips, arguments = PASSES[how]
        model = convert(Rectified(RELUS[rectify], past, bias), dtype)
        x = torch.randn(batch, 5, dtype=dtype, requires_grad=True)
        taken.clear()
        with flipping(flips):
            assert len(assert_fast_is_plain(model, x, **arguments)) == 2
        assert [one is None for one in taken] == [past]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("how", PASSES)
def test_output_factors_near_zero_behind_a_relu(how, monkeypatch):
    mended = []
    plain = scaled_linear._mend
    monkeypatch.setattr(scaled_linear, "_mend", lambda *args: mended.append(args[1].tolist()) or plain(*args))
    batch, flips, arguments = PASSES[how]
    model = convert(Rectified(torch.relu, False), torch.float32)
    with torch.no_grad():
        model.net.first.bias.fill_(2.0)
        model.net.first.output_factor.loc[:, [1, 4]] = 1e-4
        model.net.first.output_factor.rho[:, [1, 4]] = -30.0
    with flipping(flips):
        assert_fast_is_plain(model, torch.randn(batch, 5, requires_grad=True), **arguments)
    assert set(mended[0]) >= {1, 4}


class Twice(nn.Module):
    """One layer called twice, with others whose scratch memory is smaller and larger."""

    def __init__(self, conv):
        super().__init__()
        kinds = (nn.Conv2d, {"kernel_size": 1}) if conv else (nn.Linear, {})
        self.first, self.again, self.last = (kinds[0](*sizes, **kinds[1]) for sizes in ((3, 8), (8, 8), (8, 2)))

    def forward(self, x):
        return self.last(self.again(self.again(self.first(x)).tanh()).tanh())


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("how", PASSES)
@pytest.mark.parametrize("conv", [False, True], ids=["linear", "conv"])
def test_layers_that_share_scratch_memory(conv, how):
    batch, flips, arguments = PASSES[how]
    x = torch.randn(batch, 3, *[4, 4] * conv, dtype=torch.float64, requires_grad=True)
    model = convert(Twice(conv), torch.float64)
    with flipping(flips):
        assert len(assert_fast_is_plain(model, x, **arguments)) == 4


def test_graphs_that_are_alive_together():
    """Scratch memory that a graph still needed would be overwritten by the next pass."""
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


def test_threads_have_scratch_memory_of_their_own():
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


def test_scratch_memory_is_of_the_thread():
    found = []
    like = torch.zeros(3, 4)

    def work():
        found.append(scratch("test", like))

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    work()
    assert found[0].data_ptr() == found[2].data_ptr()
    assert found[0].data_ptr() != found[1].data_ptr()


def test_scratch_memory_grows_and_keeps_the_layout():
    last = torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for like in (torch.zeros(2, 3), last, torch.zeros(2, 3, 4, 5), torch.zeros(3, 2), last[:1], last.double()):
        memory = scratch("layouts", like)
        assert (memory.shape, memory.dtype, memory.stride()) == (like.shape, like.dtype, like.stride())
    assert scratch("layouts", last.transpose(2, 3)).is_contiguous()
    assert scratch("layouts", last).data_ptr() != scratch("others", last).data_ptr()
    assert scratch("layouts", last, 5, 7).shape == (5, 7)
