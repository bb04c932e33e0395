"""Linear layers and convolutions equal plain torch layers with materialised weights, row by row."""

import pytest
import torch
from layer_oracle import DTYPES, FACTORS, MEMBERS, NOISES, assert_equal, forward_and_values, loop
from torch import nn

from slimbayes import layers

ROWS = 4 * MEMBERS

LINEAR = {
    "2d": ("Linear", (5, 7), {}, (5,)),
    "3d": ("Linear", (5, 7), {}, (4, 5)),
    "3d_time_equals_batch": ("Linear", (5, 7), {}, (ROWS, 5)),
    "4d": ("Linear", (5, 7), {}, (2, 3, 5)),
    "5d": ("Linear", (5, 7), {}, (2, 1, 3, 5)),
    "no_bias": ("Linear", (5, 7), {"bias": False}, (3, 5)),
    "square": ("Linear", (5, 5), {}, (5, 5)),
}
CONV = {
    "1d": ("Conv1d", (4, 6, 3), {}, (4, 9)),
    "1d_same": ("Conv1d", (4, 6, 5), {"padding": "same", "bias": False}, (4, 9)),
    "1d_options": ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}, (4, 9)),
    "1d_replicate": ("Conv1d", (4, 6, 3), {"padding": 2, "padding_mode": "replicate"}, (4, 9)),
    "2d": ("Conv2d", (4, 6, 3), {}, (4, 6, 5)),
    "2d_stride_padding": ("Conv2d", (4, 6, 3), {"stride": (2, 1), "padding": 1}, (4, 6, 5)),
    "2d_padding_tuple": ("Conv2d", (4, 6, (3, 2)), {"padding": (0, 2)}, (4, 6, 5)),
    "2d_same": ("Conv2d", (4, 6, (3, 2)), {"padding": "same", "dilation": 2}, (4, 6, 5)),
    "2d_valid": ("Conv2d", (4, 6, (1, 4)), {"padding": "valid"}, (4, 6, 5)),
    "2d_circular": ("Conv2d", (4, 6, 3), {"padding": (1, 2), "padding_mode": "circular"}, (4, 6, 5)),
    "2d_reflect": ("Conv2d", (4, 6, 3), {"padding": 2, "padding_mode": "reflect"}, (4, 6, 5)),
    "2d_replicate_same": ("Conv2d", (4, 6, 3), {"padding": "same", "padding_mode": "replicate"}, (4, 6, 5)),
    "2d_dilation": ("Conv2d", (4, 6, 2), {"dilation": (2, 3), "bias": False}, (4, 6, 5)),
    "2d_groups": ("Conv2d", (4, 6, 3), {"groups": 2, "padding": 1}, (4, 6, 5)),
    "2d_depthwise": ("Conv2d", (4, 8, 3), {"groups": 4}, (4, 6, 5)),
    "3d": ("Conv3d", (2, 3, (1, 2, 3)), {"stride": (1, 2, 1), "padding": (0, 1, 1)}, (2, 3, 4, 3)),
    "3d_circular_groups": (
        "Conv3d",
        (4, 2, 2),
        {"padding": 1, "padding_mode": "circular", "groups": 2, "bias": False},
        (4, 3, 2, 3),
    ),
}
TRANSPOSED = {
    "1d": ("ConvTranspose1d", (4, 6, 3), {}, (4, 5)),
    "1d_options": (
        "ConvTranspose1d",
        (4, 6, 3),
        {"stride": 3, "padding": 1, "output_padding": 2, "dilation": 2, "groups": 2},
        (4, 5),
    ),
    "2d": ("ConvTranspose2d", (4, 6, (3, 2)), {"stride": (2, 1), "bias": False}, (4, 3, 4)),
    "2d_groups": (
        "ConvTranspose2d",
        (4, 6, 3),
        {"groups": 2, "padding": 1, "output_padding": 1, "stride": 2},
        (4, 3, 4),
    ),
    "3d": ("ConvTranspose3d", (2, 3, 2), {"stride": 2, "output_padding": (1, 0, 1)}, (2, 2, 3, 2)),
    "3d_groups": ("ConvTranspose3d", (4, 2, (1, 2, 3)), {"groups": 2, "dilation": (1, 1, 2)}, (4, 2, 3, 2)),
}
CASES = [
    pytest.param(*case, id=f"{case[0]}-{name}") for table in (LINEAR, CONV, TRANSPOSED) for name, case in table.items()
]
#: One layer of each kind, for the options of the factors.
KINDS = [
    pytest.param(*case, id=case[0]) for case in (LINEAR["3d"], CONV["2d_groups"], TRANSPOSED["1d_options"], CONV["1d"])
]
OPTIONS = {
    "input": {"factors": "input"},
    "output": {"factors": "output"},
    "rank_2": {"rank": 2},
    "rank_3": {"rank": 3},
    "rank_3_input": {"rank": 3, "factors": "input"},
    "rank_2_output": {"rank": 2, "factors": "output"},
    "additive": {"perturbation": "additive"},
    "additive_input": {"perturbation": "additive", "factors": "input"},
    "additive_output": {"perturbation": "additive", "factors": "output"},
    "shared_bias": {"member_bias": False},
    "clip": {"clip": 0.9},
    "one_member": {"members": 1},
    "point": {"family": "delta"},
    "sign": {"init": "sign"},
}


def pair(kind, args, kwargs, dtype, **options):
    """Return a rank-1 layer whose members' biases differ, and a plain layer of the same shape."""
    layer = getattr(layers, f"Rank1{kind}")(*args, **kwargs, dtype=dtype, **{**FACTORS, **options})
    if layer.bias is not None:
        nn.init.normal_(layer.bias)
    return layer, getattr(nn, kind)(*args, **kwargs, dtype=dtype)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "args", "kwargs", "shape"), CASES)
def test_layer_equals_loop(kind, args, kwargs, shape, dtype, noise):
    layer, plain = pair(kind, args, kwargs, dtype)
    x = torch.randn(ROWS, *shape, dtype=dtype)
    y, values = forward_and_values(layer, noise, ROWS, x)
    assert_equal(y, loop(layer, plain, x, values))


@pytest.mark.parametrize("noise", ["example", "location"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("kind", "args", "kwargs", "shape"), KINDS)
def test_options_equal_loop(kind, args, kwargs, shape, dtype, options, noise):
    layer, plain = pair(kind, args, kwargs, dtype, **options)
    x = torch.randn(ROWS, *shape, dtype=dtype)
    y, values = forward_and_values(layer, noise, ROWS, x)
    assert_equal(y, loop(layer, plain, x, values))


@pytest.mark.parametrize("options", [{}, *OPTIONS.values()], ids=["plain", *OPTIONS])
@pytest.mark.parametrize(("kind", "args", "kwargs", "shape"), KINDS)
def test_gradients_equal_those_of_the_loop(kind, args, kwargs, shape, options):
    layer, plain = pair(kind, args, kwargs, torch.float64, **options)
    x = torch.randn(ROWS, *shape, dtype=torch.float64, requires_grad=True)
    y, values = forward_and_values(layer, "example", ROWS, x)
    cotangent = torch.randn_like(y)
    names, sources = zip(*layer.named_parameters(), strict=True)
    actual = torch.autograd.grad(y, (x, *sources), cotangent)
    expected = torch.autograd.grad(loop(layer, plain, x, values), (x, *sources), cotangent)
    assert any("loc" in name for name in names)
    for one, other in zip(actual, expected, strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("told_by", ["row_dim", "batch_dim"])
@pytest.mark.parametrize("time", [5, ROWS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_with_time_first(dtype, time, told_by):
    layer, plain = pair("Linear", (5, 7), {}, dtype)
    if told_by == "row_dim":
        layer.row_dim = 1
    else:
        layer.sampling.batch_dim = 1
    x = torch.randn(time, ROWS, 5, dtype=dtype)
    y, values = forward_and_values(layer, "example", ROWS, x)
    assert_equal(y, loop(layer, plain, x, values, axis=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kind", "shape", "output_size"),
    [("ConvTranspose1d", (5,), (11,)), ("ConvTranspose2d", (3, 4), (8, 9)), ("ConvTranspose3d", (2, 3, 2), (6, 7, 5))],
)
def test_transposed_with_output_size(kind, shape, output_size, dtype):
    layer, plain = pair(kind, (4, 6, 3), {"stride": 2}, dtype)
    x = torch.randn(ROWS, 4, *shape, dtype=dtype)
    y, values = forward_and_values(layer, "example", ROWS, x, output_size=output_size)
    assert y.shape[2:] == output_size
    assert_equal(y, loop(layer, plain, x, values, output_size))


@pytest.mark.parametrize(("kind", "args", "kwargs", "shape"), KINDS)
def test_rank_terms_start_as_the_network(kind, args, kwargs, shape):
    layer, plain = pair(kind, args, kwargs, torch.float64, rank=3, init="ones")
    layer.sampling.samples = 0
    x = torch.randn(ROWS, *shape, dtype=torch.float64)
    parameters = {"weight": layer.weight, "bias": layer.bias[0]}
    expected = torch.func.functional_call(plain, parameters, (x,))
    assert_equal(layer(input=x)[: ROWS // MEMBERS], expected[: ROWS // MEMBERS])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("kind", "args", "kwargs", "shape"), KINDS)
def test_half_precision(kind, args, kwargs, shape, dtype):
    layer, plain = pair(kind, args, kwargs, dtype)
    x = torch.randn(ROWS, *shape, dtype=dtype)
    y, values = forward_and_values(layer, "held", ROWS, x)
    assert y.dtype == dtype
    y.float().sum().backward()
    expected = loop(layer.double(), plain.double(), x.double(), {name: v.double() for name, v in values.items()})
    # Input, weight product, output factor and bias are each rounded once.
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)


def test_factors_follow_the_weight_to_its_device():
    layer = layers.Rank1Conv2d(4, 6, 3, members=2, device="meta", dtype=torch.float64)
    assert {(p.device.type, p.dtype) for p in layer.parameters()} == {("meta", torch.float64)}
