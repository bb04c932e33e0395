"""The fast paths under autocast, torch.compile and DistributedDataParallel: gradients are those of the plain path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fast_ddp_worker import inputs, network
from fast_oracle import LAYERS, PASSES, SEED, assert_same, convert, counted, flipping, loss_of, outcome, plain_path
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from compiled_kernels import needs_kernels

pytestmark = needs_kernels


@pytest.mark.parametrize("how", PASSES)
def test_a_whole_network(how):
    batch, flips, arguments = PASSES[how]
    model, x = convert(network(), torch.float64), inputs(batch, torch.float64)
    for training in (True, False):
        model.train(training)
        with flipping(flips):
            with counted() as taken:
                found = outcome(model, x, **arguments)
            with plain_path():
                assert_same(found, outcome(model, x, **arguments))
        assert len(taken) == 8


@pytest.mark.parametrize("layer", LAYERS)
def test_autocast_agrees_with_the_plain_path(layer):
    build, shape = LAYERS[layer]
    model, x = convert(build()), torch.randn(6, *shape, requires_grad=True)

    def run():
        model.zero_grad()
        torch.manual_seed(SEED)
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
        gradients = torch.autograd.grad(loss_of(y.float()), [x, *model.parameters()])
        return y, gradients

    with flipping(), counted() as taken:
        y, gradients = run()
        with plain_path():
            expected, expected_gradients = run()
    assert taken
    assert y.dtype == expected.dtype
    # bfloat16 has 8 bits; what the kernel scales is rounded once, the plain path rounds the factors, too.
    for found, plain in zip((y, *gradients), (expected, *expected_gradients), strict=True):
        assert found.dtype == plain.dtype
        assert (found - plain).abs().max() <= 0.03 * plain.abs().max()
    # The same in single precision is near.
    torch.manual_seed(SEED)
    with flipping():
        single = model(x)
    assert (y - single).abs().max() < 0.05 * single.abs().max()


def test_autocast_switched_off_within_takes_the_fast_path():
    model, x = convert(network()), inputs(6, torch.float32)
    with flipping():
        expected = outcome(model, x)
        with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False), counted() as taken:
            assert_same(outcome(model, x), expected)
    assert len(taken) == 8


def test_a_backward_pass_under_autocast():
    """Discouraged by torch, but it must not fail; bfloat16 has 8 bits."""
    for layer, (build, shape) in LAYERS.items():
        model, x = convert(build()), torch.randn(6, *shape)
        expected = outcome(model, x)[1]
        model.zero_grad()
        torch.manual_seed(SEED)
        loss = loss_of(model(x))
        with torch.autocast("cpu", torch.bfloat16):
            loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad.dtype == torch.float32
            assert (parameter.grad - expected[name]).abs().max() < 0.05 * expected[name].abs().max(), (layer, name)


def small_network():
    return nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize(
    ("build", "scalings", "samples"),
    [(small_network, 4, 2), *(pytest.param(network, 8, samples, marks=pytest.mark.slow) for samples in (0, 2))],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_gradients(build, scalings, samples):
    torch._dynamo.reset()
    model, x = convert(build()), inputs(10, torch.float32)
    model.eval()
    how = {"samples": 0}
    if samples:
        how = {"draw": {name: value.detach() for name, value in model.draw(samples).items()}}
    with counted() as taken:
        expected = outcome(model, x, **how)
    assert len(taken) == scalings
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with counted() as taken:
        y, gradients = outcome(compiled, x, **how)
    assert taken == []
    assert_same(expected, (y, {name.removeprefix("_orig_mod."): g for name, g in gradients.items()}))


class AtLocation(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, samples=0)


@pytest.mark.filterwarnings("ignore")  # tracing warns of itself
def test_a_traced_model_takes_other_batches():
    module = AtLocation(convert(small_network()).eval())
    with torch.no_grad():
        module(inputs(6, torch.float32))
        traced = torch.jit.trace(module, inputs(6, torch.float32), check_trace=False)
        for batch in (4, 9):
            x = inputs(batch, torch.float32)
            torch.testing.assert_close(traced(x), module(x))


def test_compiled_passes_do_not_share_draws():
    torch._dynamo.reset()
    model = convert(nn.Linear(3, 3), factors="input")
    x = torch.ones(4, 3)
    model(x)
    with flipping(), torch.no_grad():
        y = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
    bias = model.net.bias
    assert y.shape == (2, 4, 3)
    deviations = (y[0] - bias[0] - model.net.input_factor.loc[0] @ model.net.weight.T).abs()
    assert len(set(deviations[:, 0].tolist())) == 4


@pytest.mark.slow
def test_two_processes(tmp_path):
    worker = Path(__file__).parent / "fast_ddp_worker.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    workers = [
        subprocess.Popen(
            [sys.executable, worker, tmp_path / "store", str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    logs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), "\n".join(logs)


def test_fake_tensors_leave_no_memory_behind():
    model = convert(nn.Linear(5, 3), torch.float64)
    x = torch.randn(8, 5, dtype=torch.float64)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert isinstance(model(torch.empty(8, 5, dtype=torch.float64)), FakeTensor)
    assert type(model(x)) is torch.Tensor  # whose memory is real
