"""Rows scaled by the kernel: any number of channels, in each layout that it knows; all else is left to torch."""

from itertools import product

import pytest
import torch
from fast_oracle import TOLERANCES, assert_near

from compiled_kernels import needs_kernels
from slimbayes._fast import scaled_rows
from slimbayes._fast.row_noise import SignedNoise, random_bits
from slimbayes._fast.scaled_linear import scaled_linear
from slimbayes._fast.scaled_rows import plain_scaled, scale_rows

pytestmark = needs_kernels

DTYPES = (torch.float32, torch.float64)
#: Few, whose loops the kernel widens; and more than one vector of the processor holds.
CHANNELS = (1, 3, 5, 16, 65)
ROWS, MEMBERS, DRAWS = 12, 2, 4

#: By name: the shape of rows, the axis of their channels and the memory format.
LAYOUTS = {
    "dense": (lambda channels: (ROWS, channels), 1, torch.contiguous_format),
    "positions": (lambda channels: (ROWS, 6, channels), 2, torch.contiguous_format),
    "sequences": (lambda channels: (ROWS, channels, 9), 1, torch.contiguous_format),
    "images": (lambda channels: (ROWS, channels, 4, 2), 1, torch.contiguous_format),
    "images_channels_last": (lambda channels: (ROWS, channels, 4, 2), 1, torch.channels_last),
    "volumes_channels_last": (lambda channels: (ROWS, channels, 3, 1, 2), 1, torch.channels_last_3d),
}
#: By name: the groups of rows that have values of their own; None for signs of their own around a draw's.
VALUES = {"one": 1, "members": MEMBERS, "rows": ROWS, "signed": None}


def rows_of(layout, channels, dtype):
    shape, channel_dim, memory_format = LAYOUTS[layout]
    x = torch.randn(shape(channels), dtype=dtype).contiguous(memory_format=memory_format)
    return x.requires_grad_(), channel_dim


def values_of(kind, channels, dtype):
    """Return loc, deviation and bits; the last two are None for values of groups."""
    groups = VALUES[kind]
    if groups is not None:
        return torch.randn(groups, channels, dtype=dtype, requires_grad=True), None, None
    loc, deviation = (torch.randn(n, channels, dtype=dtype, requires_grad=True) for n in (MEMBERS, DRAWS))
    return loc, deviation, random_bits((ROWS, channels))


def assert_scaled(x, channel_dim, parts, bias):
    """Compare the result and all gradients with those of plain operations."""
    loc, deviation, _ = parts
    values = loc if deviation is None else SignedNoise(*parts)
    found = scale_rows(x, values, bias, 0, channel_dim)
    assert found is not None
    expected = plain_scaled(x, bias, channel_dim, *parts)
    of_values, of_gradients = TOLERANCES[x.dtype]
    assert_near(found, expected, of_values)
    leaves = [one for one in (x, loc, deviation, bias) if one is not None]
    grad = torch.randn_like(expected)
    pairs = zip(torch.autograd.grad(found, leaves, grad), torch.autograd.grad(expected, leaves, grad), strict=True)
    for own, plain in pairs:
        assert_near(own, plain, of_gradients)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_number_of_channels(layout, kind, dtype):
    for channels, biases in product(CHANNELS, (0, 1, MEMBERS)):
        x, channel_dim = rows_of(layout, channels, dtype)
        bias = torch.randn(biases, channels, dtype=dtype, requires_grad=True) if biases else None
        assert_scaled(x, channel_dim, values_of(kind, channels, dtype), bias)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_gradients_that_are_wanted(layout, kind):
    x, channel_dim = rows_of(layout, 5, torch.float64)
    bias = torch.randn(MEMBERS, 5, dtype=torch.float64, requires_grad=True)
    for wanted in product((True, False), repeat=3):
        if any(wanted):
            parts = values_of(kind, 5, torch.float64)
            leaves = [x, *(part for part in parts[:2] if part is not None), bias]
            for leaf, flag in zip(leaves, [wanted[0], *[wanted[1]] * (len(leaves) - 2), wanted[2]], strict=True):
                leaf.requires_grad_(flag)
            found = scale_rows(x, parts[0] if parts[1] is None else SignedNoise(*parts), bias, 0, channel_dim)
            expected = plain_scaled(x, bias, channel_dim, *parts)
            asked = [leaf for leaf in leaves if leaf.requires_grad]
            for own, plain in zip(
                torch.autograd.grad(found.square().sum(), asked),
                torch.autograd.grad(expected.square().sum(), asked),
                strict=True,
            ):
                assert_near(own, plain, TOLERANCES[torch.float64][1])


def columns(table):
    return table.T.contiguous().T


#: By name, what is changed of x, loc, deviation, bits and bias.
UNKNOWN = {
    "rows_in_columns": lambda x, loc, deviation, bits, bias: (columns(x), loc, deviation, bits, bias),
    "every_second_channel": lambda x, *rest: (x.repeat_interleave(2, 1)[:, ::2], *rest),
    "locations_in_columns": lambda x, loc, *rest: (x, columns(loc), *rest),
    "deviations_in_columns": lambda x, loc, deviation, *rest: (x, loc, columns(deviation), *rest),
    "bits_in_columns": lambda x, loc, deviation, bits, bias: (x, loc, deviation, columns(bits), bias),
    "bits_of_fewer_rows": lambda x, loc, deviation, bits, bias: (x, loc, deviation, bits[1:], bias),
    "bits_of_another_type": lambda x, loc, deviation, bits, bias: (x, loc, deviation, bits.short(), bias),
    "biases_in_columns": lambda x, loc, deviation, bits, bias: (x, loc, deviation, bits, columns(bias)),
    "biases_of_another_type": lambda x, loc, deviation, bits, bias: (x, loc, deviation, bits, bias.float()),
    "biases_of_fewer_channels": lambda x, loc, deviation, bits, bias: (x, loc, deviation, bits, bias[:, 1:]),
    "biases_that_do_not_divide_the_rows": lambda x, loc, deviation, bits, bias: (x, loc, deviation, bits, bias[:5]),
    "locations_of_another_type": lambda x, loc, *rest: (x, loc.float(), *rest),
    "fewer_rows": lambda x, *rest: (x[1:], *rest),
    "fewer_channels": lambda x, *rest: (x[:, 1:].contiguous(), *rest),
    "no_rows": lambda x, *rest: (x[:0], *rest),
    "integers": lambda x, *rest: (x.long(), *rest),
    "another_device": lambda x, *rest: (x.to("meta"), *rest),
}


@pytest.mark.parametrize("change", UNKNOWN)
def test_what_the_kernel_does_not_know_is_left_to_torch(change):
    x, (loc, deviation, bits) = torch.randn(ROWS, 16, dtype=torch.float64), values_of("signed", 16, torch.float64)
    bias = torch.randn(6, 16, dtype=torch.float64)
    loc, deviation = loc.detach(), deviation.detach()
    assert scale_rows(x, SignedNoise(loc, deviation, bits), bias, 0, 1) is not None
    x, loc, deviation, bits, bias = UNKNOWN[change](x, loc, deviation, bits, bias)
    assert scale_rows(x, SignedNoise(loc, deviation, bits), bias, 0, 1) is None


#: What hooks make of the tensors that are saved for the backward pass.
CHANGED = {
    "strides": lambda saved: columns(saved) if saved.dim() == 2 else saved,
    "type": lambda saved: saved.double() if saved.is_floating_point() else saved,
    "no_more_rows": lambda saved: saved[:6] if len(saved) == ROWS else saved,
    "twice_the_rows": lambda saved: torch.cat([saved, saved]) if len(saved) == ROWS else saved,
    "fewer_channels": lambda saved: saved[..., 1:].contiguous(),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("change", CHANGED)
def test_tensors_that_hooks_have_changed(change, kind):
    """Kernels read no further than memory goes: gradients are right, or an error says that something has changed."""
    x, bias = torch.randn(ROWS, 16, requires_grad=True), torch.randn(MEMBERS, 16, requires_grad=True)
    weight = torch.randn(16, 16, requires_grad=True)
    parts = values_of(kind, 16, torch.float32)
    values = parts[0] if parts[1] is None else SignedNoise(*parts)
    leaves = [x, bias, *(part for part in parts[:2] if part is not None)]
    for run, wanted in (
        (lambda: scale_rows(x, values, bias, 0, 1), leaves),
        (lambda: scaled_linear(x, weight, values, values, bias, 0), [*leaves, weight]),
    ):
        expected = torch.autograd.grad(run().square().sum(), wanted)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, CHANGED[change]):
            y = run()
            if change in ("strides", "type"):
                for own, plain in zip(torch.autograd.grad(y.square().sum(), wanted), expected, strict=True):
                    assert_near(own, plain, TOLERANCES[torch.float32][1])
            else:
                with pytest.raises(RuntimeError):
                    torch.autograd.grad(y.square().sum(), wanted)


@pytest.mark.parametrize("kind", VALUES)
def test_one_tensor_that_is_both_factors(kind):
    x, parts = torch.randn(ROWS, 5, dtype=torch.float64), values_of(kind, 5, torch.float64)
    values = parts[0] if parts[1] is None else SignedNoise(*parts)
    y = scaled_linear(x, torch.eye(5, dtype=torch.float64), values, values, None, 0)
    expected = plain_scaled(plain_scaled(x, None, 1, *parts), None, 1, *parts)
    wanted = [part for part in parts[:2] if part is not None]
    found, plain = (torch.autograd.grad(z.sum(), wanted, create_graph=True) for z in (y, expected))
    torch.testing.assert_close(found, plain)
    second = (torch.autograd.grad(sum(one.square().sum() for one in first), wanted) for first in (found, plain))
    torch.testing.assert_close(*second)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_on_another_axis_are_left_to_torch(axis):
    found = scale_rows(torch.randn(4, 4, 3), torch.randn(2, 3), None, axis, 2)
    assert (found is None) == (axis == 1)


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_many_numbers_are_for_several_threads():
    rows = scaled_rows.MOST_FOR_ONE_THREAD // 64
    for more in (0, 1):
        found = scale_rows(torch.ones(rows + more, 64), torch.ones(1, 64), None, 0, 1)
        assert (found is None) == bool(more)
