"""The passes that scale rows and go back: compiled kernels, torch's operations and plain autograd say the same."""

from contextlib import contextmanager
from itertools import product

import pytest
import torch
from fast_oracle import TOLERANCES, assert_near
from slimbayes.layers.flips import Flipped

from compiled_kernels import needs_kernels
from slimbayes.layers import passes, torch_passes

DTYPES = (torch.float32, torch.float64)
CHANNELS = (1, 3, 5, 16, 65)
ROWS = 12
MEMBERS = 2

#: By name, the shape of rows and the memory format in which their channels lie last.
LAYOUTS = {
    "dense": (lambda channels: (ROWS, channels), torch.contiguous_format),
    "places": (lambda channels: (ROWS * 6, channels), torch.contiguous_format),
    "images": (lambda channels: (ROWS, channels, 4, 2), torch.channels_last),
    "volumes": (lambda channels: (ROWS, channels, 3, 1, 2), torch.channels_last_3d),
}


def rows_of(layout, channels, dtype):
    shape, memory_format = LAYOUTS[layout]
    return torch.randn(shape(channels), dtype=dtype).contiguous(memory_format=memory_format)


def numbers(*shape, dtype):
    """Return numbers between 1 and 2, each with a random sign."""
    return (1 + torch.rand(shape, dtype=dtype)) * (torch.randint(2, shape) * 2 - 1)


def flipped(channels, dtype, wider=0):
    """Return twelve rows of four draws of two members; ``wider`` channels of other factors lie beside them."""
    loc, deviation = 4 * numbers(MEMBERS, channels, dtype=dtype), numbers(4, channels + wider, dtype=dtype)
    signs = torch.randint(2, (3, channels + wider), dtype=torch.int8) * 2 - 1
    return Flipped(loc, deviation[:, wider:], signs[:, wider:])


SIDES = {
    "one": lambda channels, dtype: numbers(1, channels, dtype=dtype),
    "members": lambda channels, dtype: numbers(MEMBERS, channels, dtype=dtype),
    "rows": lambda channels, dtype: numbers(ROWS, channels, dtype=dtype),
    "flipped": flipped,
    "flipped_together": lambda channels, dtype: flipped(channels, dtype, wider=7),
}


def plain_values(side):
    """Return the value of each row or group, with a history; and what it is made of."""
    if not isinstance(side, Flipped):
        side = side.detach().requires_grad_()
        return side, [side]
    loc, deviation = (part.detach().requires_grad_() for part in (side.loc, side.deviation))
    draws, share = len(deviation), len(side.signs)
    noise = deviation.repeat_interleave(share, 0) * side.signs.repeat(draws, 1)
    return loc.repeat_interleave(draws * share // len(loc), 0) + noise, [loc, deviation]


def for_rows(values, x):
    return values.repeat_interleave(len(x) // len(values), 0).view(len(x), -1, *[1] * (x.dim() - 2))


def plain_scale(x, side, bias):
    y = x * for_rows(plain_values(side)[0].detach(), x)
    return y if bias is None else y + for_rows(bias, x)


def plain_back(grad, x, side, biases):
    """Return the gradients of x, of the side's parts and of the bias, and x times the values, by autograd."""
    values, parts = plain_values(side)
    x = x.detach().requires_grad_()
    bias = torch.zeros(max(biases, 1), x.shape[1], dtype=x.dtype, requires_grad=True)
    scaled = x * for_rows(values, x)
    of_x, of_bias, *of_parts = torch.autograd.grad(scaled + for_rows(bias, x), [x, bias, *parts], grad)
    return of_x, of_parts, of_bias, scaled.detach()


def memory_like(x):
    return torch.full_like(x, torch.nan)


@contextmanager
def fallbacks():
    """Give a list of the passes that torch's operations did."""
    taken = []

    def counting(name, plain):
        return lambda *args: taken.append(name) or plain(*args)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("scale", "scale_back", "rectified_back", "weight_back"):
            patch.setattr(torch_passes, name, counting(name, getattr(torch_passes, name)))
        yield taken


def assert_slopes(found, expected, dtype):
    """Compare the gradients of a pass, relative to the largest of each tensor."""
    of_parts, of_bias = expected
    assert found is not None
    assert [one is None for one in found.side] == [one is None for one in of_parts]
    for own, plain in zip((*found.side, found.bias), (*of_parts, of_bias), strict=True):
        assert (own is None) == (plain is None)
        if own is not None:
            assert_near(own, plain, TOLERANCES[dtype][1])


# ------------------------------------------------------------------ forward


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled_scaling_is_plain_scaling(layout, side, dtype):
    for channels, members in product(CHANNELS, (0, 1, MEMBERS)):
        values, x = SIDES[side](channels, dtype), rows_of(layout, channels, dtype)
        if side == "one" and members > 1:
            continue
        bias = torch.randn(members, channels, dtype=dtype) if members else None
        with fallbacks() as taken:
            found = passes.scale(x, values, bias, memory_like(x))
        assert taken == []
        expected = plain_scale(x, values, bias)
        assert_near(found, expected, TOLERANCES[dtype][0])
        assert_near(torch_passes.scale(x, values, bias, memory_like(x)), expected, TOLERANCES[dtype][0])
        assert passes.scale(x, values, bias, x) is x
        assert torch.equal(x, found)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_vector_for_members_with_biases_of_their_own(layout):
    x = rows_of(layout, 5, torch.float64)
    values, bias = numbers(1, 5, dtype=x.dtype), torch.randn(MEMBERS, 5, dtype=x.dtype)
    found, of_x = passes.scale(x, values, bias, memory_like(x)), memory_like(x)
    assert_near(found, plain_scale(x, values, bias), 1e-10)
    slopes = passes.scale_back(found, x, values, of_x, biases=MEMBERS)
    expected_of_x, of_parts, of_bias, _ = plain_back(found, x, values, MEMBERS)
    assert_slopes(slopes, ((*of_parts, None, None), of_bias), x.dtype)
    assert_near(of_x, expected_of_x, 1e-10)


BIASES = {
    "columns": lambda channels: torch.randn(channels, MEMBERS, dtype=torch.float64).T,
    "another_type": lambda channels: torch.randn(MEMBERS, channels, dtype=torch.float32),
}


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("kind", BIASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_biases_of_other_kinds(layout, kind):
    for channels in CHANNELS:
        x, values = rows_of(layout, channels, torch.float64), SIDES["members"](channels, torch.float64)
        bias = BIASES[kind](channels)
        assert_near(passes.scale(x, values, bias, memory_like(x)), plain_scale(x, values, bias), 1e-10)


# ------------------------------------------------------------------ backward

WANTED = [
    {name for name, one in zip(("sums", "bias", "of_factor", "scaled"), flags, strict=True) if one}
    for flags in product((True, False), repeat=4)
    if any(flags)
]


def assert_back(run, grad, x, side, wanted, biases, expected, in_place=False):
    """Go back and compare all that is wanted; ``in_place`` writes the gradient of x over that of the output."""
    expected_of_x, expected_of_parts, expected_of_bias, expected_scaled = expected
    grad = grad.clone()
    of_factor = (grad if in_place else memory_like(x)) if "of_factor" in wanted else None
    scaled = memory_like(x) if "scaled" in wanted else None
    factor = x if {"sums", "scaled"} & wanted else None
    found = run(grad, factor, side, of_factor, scaled, "sums" in wanted, biases if "bias" in wanted else 0, False)
    of_parts = (*expected_of_parts, None, None)[:3] if "sums" in wanted else (None, None, None)
    assert_slopes(found, (of_parts, expected_of_bias if "bias" in wanted else None), x.dtype)
    if of_factor is not None:
        assert_near(of_factor, expected_of_x, TOLERANCES[x.dtype][1])
    if scaled is not None:
        assert_near(scaled, expected_scaled, TOLERANCES[x.dtype][0])


@needs_kernels
@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: "-".join(sorted(wanted)))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled_gradients_in_every_combination(layout, wanted):
    for side, dtype, members in product(SIDES, DTYPES, (1, MEMBERS)):
        if side == "one" and members > 1:
            continue
        values, x, grad = SIDES[side](5, dtype), *(rows_of(layout, 5, dtype) for _ in range(2))
        expected = plain_back(grad, x, values, members)
        assert_back(torch_passes.scale_back, grad, x, values, wanted, members, expected)
        with fallbacks() as taken:
            assert_back(passes.scale_back, grad, x, values, wanted, members, expected)
            assert_back(passes.scale_back, grad, x, values, wanted, members, expected, in_place=True)
        assert taken == []


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled_gradients_of_any_number_of_channels(layout, side, dtype):
    for channels, wanted in product(CHANNELS, ({"sums", "bias", "of_factor"}, {"sums", "of_factor", "scaled"})):
        values, x, grad = SIDES[side](channels, dtype), *(rows_of(layout, channels, dtype) for _ in range(2))
        expected = plain_back(grad, x, values, 1)
        assert_back(torch_passes.scale_back, grad, x, values, wanted, 1, expected)
        with fallbacks() as taken:
            assert_back(passes.scale_back, grad, x, values, wanted, 1, expected)
        assert taken == []


def small_values(side, value):
    """Return a side of which one value is small."""
    if not isinstance(side, Flipped):
        side = side.clone()
        side[-1, -1] = value
        return side
    loc, deviation = side.loc.clone(), side.deviation.clone()
    loc[-1, -1], deviation[-1, -1] = value, 0.0
    return Flipped(loc, deviation, side.signs)


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled_gradients_from_the_output(layout, side, dtype):
    for channels, members in product(CHANNELS, (0, 1)):
        values, x, grad = SIDES[side](channels, dtype), *(rows_of(layout, channels, dtype) for _ in range(2))
        of_x, of_parts, of_bias, output = plain_back(grad, x, values, members)
        for run in (passes.scale_back, torch_passes.scale_back):
            found_of_x = memory_like(x)
            found = run(grad, output, values, found_of_x, None, True, members, True)
            assert_slopes(found, ((*of_parts, None, None)[:3], of_bias if members else None), dtype)
            assert_near(found_of_x, of_x, TOLERANCES[dtype][1])


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("value", [0.0, 1e-13, -1e-13, torch.nan])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_input_does_not_follow_from_the_output_where_a_value_is_nearly_zero(layout, side, value):
    for dtype in DTYPES:
        values, x = small_values(SIDES[side](5, dtype), value), rows_of(layout, 5, dtype)
        assert passes.scale_back(x, x, values, memory_like(x), divided=True) is None
        assert passes.scale_back(x, x, small_values(values, 1e-11), memory_like(x), divided=True) is not None


# ------------------------------------------------------------------ backward from what a ReLU has left


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("layout", ["dense", "places"])
def test_compiled_gradients_from_what_a_relu_has_left(layout, side, dtype):
    for channels, members, trained in product(CHANNELS, (0, 1, MEMBERS), (True, False)):
        if side == "one" and members > 1:
            continue
        values, x, grad = SIDES[side](channels, dtype), *(rows_of(layout, channels, dtype) for _ in range(2))
        bias = torch.randn(members, channels, dtype=dtype) if members else None
        biases = members if trained else 0
        rectified = plain_scale(x, values, bias).relu()
        grad = grad * (rectified > 0)
        of_x, of_parts, of_bias, _ = plain_back(grad, x, values, members)
        for run in (passes.rectified_back, torch_passes.rectified_back):
            found_of_x = memory_like(x)
            found, doubtful = run(grad, rectified, values, bias, found_of_x, biases)
            assert not len(doubtful)
            assert_slopes(found, ((*of_parts, None, None)[:3], of_bias if biases else None), dtype)
            assert_near(found_of_x, of_x, TOLERANCES[dtype][1])


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("grown", [1e-30, 1.0, torch.nan])
@pytest.mark.parametrize("side", SIDES)
def test_the_input_does_not_follow_where_the_gradient_came_past_the_relu(side, grown):
    for dtype in DTYPES:
        values, x = SIDES[side](5, dtype), rows_of("dense", 5, dtype)
        rectified = plain_scale(x, values, None).relu()
        grad = (rectified > 0).to(dtype)
        assert passes.rectified_back(grad, rectified, values, None, memory_like(x)) is not None
        grad[tuple((rectified == 0).nonzero()[0])] = grown
        assert passes.rectified_back(grad, rectified, values, None, memory_like(x)) is None


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize(("value", "bias"), [(0.0, 0), (1e-7, 0), (-1e-7, 0), (1e-3, 2), (-1e-3, -2), (torch.nan, 0)])
@pytest.mark.parametrize("side", SIDES)
def test_of_values_that_are_nearly_zero_the_channel_is_told(side, value, bias):
    for dtype in DTYPES:
        values, x = small_values(SIDES[side](5, dtype), value), rows_of("dense", 5, dtype).relu()
        shift = torch.tensor([[0, 0, 0, 0, bias]], dtype=dtype) if bias else None
        _, doubtful = passes.rectified_back(x, x, values, shift, memory_like(x))
        assert doubtful.tolist() == [4]


# ------------------------------------------------------------------ what the kernels do not know

LAID = {
    "places_in_columns": (lambda x: x.T.contiguous().T, "dense"),
    "every_second_channel": (lambda x: x.repeat_interleave(2, 1)[:, ::2], "places"),
    "images_channels_first": (lambda x: x.contiguous(), "images"),
    "images_transposed": (lambda x: x.transpose(2, 3).contiguous().transpose(2, 3), "images"),
    "volumes_channels_first": (lambda x: x.contiguous(), "volumes"),
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("laid", LAID)
def test_other_layouts_take_torchs_operations(laid, side):
    lay, layout = LAID[laid]
    for dtype in DTYPES:
        values, usual, grad = SIDES[side](5, dtype), *(rows_of(layout, 5, dtype) for _ in range(2))
        bias, x = torch.randn(1, 5, dtype=dtype), lay(usual)
        of_x, of_parts, of_bias, scaled = plain_back(grad, usual, values, 1)
        with fallbacks() as taken:
            found = passes.scale(x, values, bias, lay(memory_like(usual)))
            into_another = passes.scale(usual, values, bias, lay(memory_like(usual)))
            for one in (grad, lay(grad)):
                memory, other = lay(memory_like(usual)), memory_like(usual)
                slopes = passes.scale_back(one, x, values, memory, other, biases=1)
                assert_slopes(slopes, ((*of_parts, None, None)[:3], of_bias), dtype)
                assert_near(memory, of_x, TOLERANCES[dtype][1])
                assert_near(other, scaled, TOLERANCES[dtype][0])
        assert taken == ["scale"] * 2 + ["scale_back"] * 2
        for one in (found, into_another):
            assert_near(one, plain_scale(usual, values, bias), TOLERANCES[dtype][0])


@pytest.mark.parametrize("side", SIDES)
def test_sides_in_columns_take_torchs_operations(side):
    values, x, grad = SIDES[side](5, torch.float64), *(rows_of("images", 5, torch.float64) for _ in range(2))
    expected, (of_x, of_parts, of_bias, _) = plain_scale(x, values, None), plain_back(grad, x, values, 1)
    if isinstance(values, Flipped):
        parts = values.loc, values.deviation, values.signs
        laid = [Flipped(*(p.T.contiguous().T if i == j else p for j, p in enumerate(parts))) for i in range(3)]
    else:
        laid = [values.repeat_interleave(2, 1)[:, ::2]]
    for one in laid:
        with fallbacks() as taken:
            assert_near(passes.scale(x, one, None, memory_like(x)), expected, 1e-10)
            memory = memory_like(x)
            assert_slopes(
                passes.scale_back(grad, x, one, memory, biases=1), ((*of_parts, None, None)[:3], of_bias), x.dtype
            )
            assert_near(memory, of_x, 1e-10)
        assert taken == ["scale", "scale_back"]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("side", SIDES)
def test_sequences_of_channels_first(side):
    values, x, grad = SIDES[side](5, torch.float64), *(torch.randn(ROWS, 5, 9, dtype=torch.float64) for _ in range(2))
    expected = plain_back(grad, x, values, 1)
    assert_near(passes.scale(x, values, None, memory_like(x)), expected[-1], 1e-10)
    assert_back(passes.scale_back, grad, x, values, {"sums", "bias", "of_factor", "scaled"}, 1, expected)


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@needs_kernels
@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("side", SIDES)
def test_many_numbers_are_for_several_threads(side):
    channels = 64
    positions = passes.MOST_FOR_ONE_THREAD // (ROWS * channels)
    for more in (0, 1):
        x, grad = (torch.randn(ROWS * (positions + more), channels) for _ in range(2))
        values, bias, memory = SIDES[side](channels, x.dtype), torch.randn(1, channels), memory_like(x)
        with fallbacks() as taken:
            found = passes.scale(x, values, bias, memory_like(x))
            slopes = passes.scale_back(grad, x, values, memory, biases=1)
        assert taken == ["scale", "scale_back"] * more
        assert_near(found, plain_scale(x, values, bias), TOLERANCES[x.dtype][0])
        of_x, of_parts, of_bias, _ = plain_back(grad, x, values, 1)
        assert_slopes(slopes, ((*of_parts, None, None)[:3], of_bias), x.dtype)
        assert_near(memory, of_x, TOLERANCES[x.dtype][1])


# ------------------------------------------------------------------ weights


def weight_case(outputs, inputs, dtype, behind, first):
    """Return the arguments of ``weight_back`` and what it is to write, from the formulas of its docstring."""
    own, weight, total = (torch.randn(outputs, inputs, dtype=dtype) for _ in range(3))
    s, of_s, r = (torch.randn(size, dtype=dtype) for size in (inputs, inputs, outputs))
    exact_own, exact_weight, exact_s, exact_r = (one.double() for one in (own, weight, s, r if behind else r * 0 + 1))
    of_total = exact_own * exact_r.unsqueeze(1) * exact_s + (0 if first else total.double())
    products = exact_own * exact_weight
    expected = [of_total, of_s.double() + exact_r @ products, products @ exact_s]
    memory = memory_like(total) if first else total
    arguments = (
        (own, weight, s, r, memory, of_s, memory_like(r)) if behind else (own, weight, s, None, memory, of_s, None)
    )
    return arguments, [one.to(dtype) for one in (expected if behind else expected[:2])]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("first", [True, False], ids=["first", "another"])
@pytest.mark.parametrize("behind", [True, False], ids=["both", "input"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_factors_from_the_gradient_of_a_weight(dtype, behind, first):
    for outputs, inputs in ((1, 1), (7, 5), (3, 65), (64, 200)):
        arguments, expected = weight_case(outputs, inputs, dtype, behind, first)
        passes.weight_back(*arguments, first)
        for found, one in zip((x for x in arguments[4:] if x is not None), expected, strict=True):
            assert_near(found, one, TOLERANCES[dtype][1])


@needs_kernels
@pytest.mark.parametrize("position", [None, *range(7)])
def test_weights_in_columns_take_torchs_operations(position):
    arguments, expected = weight_case(6, 4, torch.float64, behind=True, first=False)
    laid = [x.repeat_interleave(2, -1)[..., ::2] if i == position else x for i, x in enumerate(arguments)]
    with fallbacks() as taken:
        passes.weight_back(*laid, False)
    assert taken == ([] if position is None else ["weight_back"])
    for found, one in zip(laid[4:], expected, strict=True):
        assert_near(found, one, 1e-10)
