"""Peak memory against sets of live tensors that are counted by hand; all in units of one activation."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from benchmarks.memory import Peak, peak_memory

ROWS, WIDTH = 4, 64
ACTIVATION, WEIGHT = 4 * ROWS * WIDTH, 4 * WIDTH * WIDTH  # bytes; a weight is 16 activations
SCALAR = 4


def chain(depth):
    """Linear and ReLU, several times, without biases."""
    return nn.ModuleList([nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(depth)])


def training(layers, run):
    x = torch.randn(ROWS, WIDTH)
    optimiser = torch.optim.Adam(layers.parameters(), fused=True)

    def step():
        optimiser.zero_grad()
        run(x).sum().backward()
        optimiser.step()

    step()  # makes Adam's state, which is not to be counted
    return peak_memory(step, layers.parameters())


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_chain_keeps_every_relu_and_at_most_two_products_more(depth):
    layers = chain(depth)

    def run(x):
        for layer in layers:
            x = layer(x).relu()
        return x

    # Forward: every ReLU's output is kept, the product before the last one still lives when it is made. Backward: the
    # last ReLU's output goes as soon as it has been used, so nothing needs more than the forward pass, but for the
    # loss and its gradient.
    activations = (depth + 1) * ACTIVATION
    peak = training(layers, run)
    assert activations <= peak.activations <= activations + 2 * SCALAR
    # The last gradient of a weight is made while all others, and the gradient it is made from, are alive.
    assert depth * WEIGHT + ACTIVATION <= peak.total <= depth * WEIGHT + ACTIVATION + 2 * SCALAR


def test_checkpointing_keeps_only_the_inputs_of_its_parts():
    layers = chain(6)

    def part(x, begin):
        for layer in layers[begin : begin + 3]:
            x = layer(x).relu()
        return x

    def run(x):
        for begin in (0, 3):
            x = checkpoint(part, x, begin, use_reentrant=False)
        return x

    plain = training(layers, lambda x: part(part(x, 0), 3)).activations
    saved = training(layers, run).activations
    # Two outputs of parts, and one part's three ReLUs with a gradient or a product, instead of six ReLUs and a product.
    assert plain // ACTIVATION == 7
    assert saved // ACTIVATION == 5


def test_views_and_what_is_done_in_place_count_once():
    x = torch.zeros(256)

    def step():
        y = x + 1
        z = y.view(16, 16).t()[2:]
        y.mul_(3)
        x.add_(1)  # was there before
        return z.relu_()

    assert peak_memory(step) == Peak(1024, 1024, {"aten::add": 1024})


def test_what_was_there_before_is_not_counted_and_what_is_freed_makes_room():
    x = torch.zeros(256)

    def step():
        for _ in range(10):
            y = x * 2
            del y
        x.relu()

    assert peak_memory(step) == Peak(1024, 1024, {"aten::mul": 1024})
    assert peak_memory(lambda: None) == Peak(0, 0, {})


def test_who_made_what_is_held_at_the_peak():
    layers = chain(2)

    def run(x):
        for layer in layers:
            x = layer(x).relu()
        return x

    # In the backward pass: both ReLUs' outputs, the gradient of the second, the loss and its gradient.
    peak = training(layers, run)
    assert peak.makers["aten::relu"] == 2 * ACTIVATION
    assert peak.makers["aten::threshold_backward"] == ACTIVATION
    assert sum(peak.makers.values()) == peak.activations


def test_an_address_that_is_used_again_is_a_new_storage():
    old = [torch.zeros(1 << 20)]

    def step():
        address = old[0].mul_(2).untyped_storage().data_ptr()
        old.clear()
        return torch.empty(1 << 20).add_(1), address

    assert peak_memory(step).total == 4 << 20


def test_the_gradients_of_the_step_before_are_not_in_the_way():
    weight = nn.Parameter(torch.zeros(256))

    def step():
        weight.grad = None
        (weight * 2).sum().backward()

    step()
    # The product dies before backward; then the sum's gradient, a view of a number, and the weight's gradient.
    peak = peak_memory(step, [weight])
    assert peak.total == 1024 + 2 * SCALAR
    assert peak.activations == 1024 + SCALAR


def test_nothing_is_kept_alive():
    kept = []

    def step():
        kept.append(weakref.ref((torch.zeros(8) + 1).untyped_storage()))

    weight = nn.Parameter(torch.zeros(3))
    peak_memory(step, [weight])
    assert kept[0]() is None
    counters = [one for one in gc.get_objects() if type(one).__name__ == "_Storages"]
    assert not counters


def test_an_accelerators_total_is_its_allocators(monkeypatch):
    class Allocator:
        synchronize = reset_peak_memory_stats = staticmethod(lambda: None)
        memory_allocated = staticmethod(lambda: 10_000)  # after the step, with the gradient
        max_memory_allocated = staticmethod(lambda: 15_000)

    monkeypatch.setattr(torch, "get_device_module", lambda device: Allocator)
    weight = nn.Parameter(torch.zeros(256, device="meta"))

    def step():
        weight.grad = None
        (weight * 2).sum().backward()

    peak = peak_memory(step, [weight])
    assert peak.total == 15_000 - (10_000 - 1024)
    assert peak.activations == 1024 + SCALAR
