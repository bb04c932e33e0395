"""Attention equals plain torch attention with materialised projections, run on one row at a time."""

import pytest
import torch
from layer_oracle import (
    DTYPES,
    FACTORS,
    MEMBERS,
    NOISES,
    assert_equal,
    forward_and_values,
    materialised,
    of_member,
    row_of,
    shifted_bias,
)
from torch import nn
from torch.func import functional_call

from slimbayes.layers import Rank1MultiheadAttention

ROWS, TARGET, SOURCE, EMBED, HEADS = 4 * MEMBERS, 3, 5, 8, 2

BUILDS = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "kdim_vdim": {"kdim": 3, "vdim": 5},
    "kdim_vdim_batch_first": {"kdim": 3, "vdim": 5, "batch_first": True, "add_bias_kv": True},
    "no_bias": {"bias": False},
    "bias_kv": {"add_bias_kv": True},
    "zero_attn": {"add_zero_attn": True, "batch_first": True},
    "bias_kv_zero_attn": {"add_bias_kv": True, "add_zero_attn": True},
}
OPTIONS = {
    "input": {"factors": "input"},
    "output": {"factors": "output"},
    "rank_3": {"rank": 3},
    "additive": {"perturbation": "additive"},
    "additive_no_bias": {"perturbation": "additive", "bias": False},
    "shared_bias": {"member_bias": False},
    "clip": {"clip": 0.9},
    "one_member": {"members": 1},
    "point": {"family": "delta"},
    "separate_projections_rank_2": {"kdim": 3, "vdim": 5, "rank": 2},
}
BUILT = pytest.mark.parametrize("kwargs", BUILDS.values(), ids=BUILDS)
PLAIN_ARGUMENTS = ("batch_first", "kdim", "vdim", "bias", "add_bias_kv", "add_zero_attn", "dropout")


def masks(dtype):
    """Return masks for cross attention by name: ``attn_mask`` and ``key_padding_mask``."""
    flat = torch.rand(TARGET, SOURCE) < 0.3
    deep = torch.rand(ROWS * HEADS, TARGET, SOURCE) < 0.3
    padding = torch.rand(ROWS, SOURCE) < 0.3
    for mask in (flat, deep, padding):
        mask[..., 0] = False  # every query sees some key
    return {
        "none": {},
        "bool_2d": {"attn_mask": flat},
        "bool_3d": {"attn_mask": deep},
        "float_2d": {"attn_mask": torch.randn(TARGET, SOURCE, dtype=dtype)},
        "float_3d": {"attn_mask": torch.randn(ROWS * HEADS, TARGET, SOURCE, dtype=dtype)},
        "padding": {"key_padding_mask": padding},
        "float_padding": {"key_padding_mask": torch.randn(ROWS, SOURCE, dtype=dtype)},
        "bool_2d_padding": {"attn_mask": flat, "key_padding_mask": padding},
        "float_3d_padding": {
            "attn_mask": torch.randn(ROWS * HEADS, TARGET, SOURCE, dtype=dtype),
            "key_padding_mask": torch.randn(ROWS, SOURCE, dtype=dtype),
        },
    }


def build(dtype, **kwargs):
    layer = Rank1MultiheadAttention(EMBED, HEADS, **{**FACTORS, **kwargs}, dtype=dtype)
    for parameter in (layer.in_proj_bias, layer.out_proj.bias):
        if parameter is not None:
            nn.init.normal_(parameter)
    return layer


def inputs(layer, dtype, source=SOURCE):
    """Return query, key and value with rows where the layer wants them."""
    shapes = [(TARGET, EMBED), (source, layer.kdim), (source, layer.vdim)]
    given = [torch.randn(length, ROWS, width, dtype=dtype) for length, width in shapes]
    return [x.transpose(0, 1) for x in given] if layer.batch_first else given


def row_parameters(layer, values, row):
    """Return the parameters of the plain attention for one row; additive factors turn into biases."""
    weights, biases = [], []
    joint = of_member(layer.in_proj_bias, row, ROWS, layer.members)
    for i, projection in enumerate("qkv"):
        if layer.in_proj_weight is None:
            weight = getattr(layer, f"{projection}_proj_weight")
        else:
            weight = layer.in_proj_weight[i * EMBED : (i + 1) * EMBED]
        bias = None if joint is None else joint[i * EMBED : (i + 1) * EMBED]
        s, r = (row_of(values, f"factors.{projection}_{side}", row) for side in ("input", "output"))
        weights.append(weight if layer.additive else materialised(weight, s, r))
        biases.append(shifted_bias(weight, bias, s, r) if layer.additive else bias)
    names = ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
    parameters = dict(zip(names, weights, strict=True))
    if layer.in_proj_weight is not None:
        parameters = {"in_proj_weight": torch.cat(weights)}
    s, r = (row_of(values, f"out_proj.{side}_factor", row) for side in ("input", "output"))
    weight, bias = layer.out_proj.weight, of_member(layer.out_proj.bias, row, ROWS, layer.members)
    parameters["out_proj.weight"] = weight if layer.additive else materialised(weight, s, r)
    bias = shifted_bias(weight, bias, s, r) if layer.additive else bias
    if bias is not None:
        parameters |= {"in_proj_bias": torch.cat(biases), "out_proj.bias": bias}
    if layer.bias_k is not None:
        parameters |= {"bias_k": layer.bias_k, "bias_v": layer.bias_v}
    return parameters


def row_masks(given, row):
    """Return the masks of one row."""
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    return {
        **({} if mask is None else {"attn_mask": mask[row * HEADS : (row + 1) * HEADS] if mask.dim() == 3 else mask}),
        **({} if padding is None else {"key_padding_mask": padding[row : row + 1]}),
    }


def loop(layer, kwargs, given, values, masks, **call):
    """Return output and weights of the plain attention, one row at a time."""
    kwargs = {name: value for name, value in kwargs.items() if name in PLAIN_ARGUMENTS}
    kwargs |= {"bias": True} if layer.additive else {}
    plain = nn.MultiheadAttention(EMBED, HEADS, **kwargs, dtype=given[0].dtype).train(layer.training)
    axis = 0 if layer.batch_first else 1
    answers = []
    for i in range(ROWS):
        rows = tuple(x.narrow(axis, i, 1) for x in given)
        answers.append(functional_call(plain, row_parameters(layer, values, i), rows, {**row_masks(masks, i), **call}))
    outputs, weights = zip(*answers, strict=True)
    return torch.cat(outputs, axis), None if weights[0] is None else torch.cat(weights)


def assert_equals_loop(layer, kwargs, noise, dtype, given=None, masks=None, **call):
    given, masks = given or inputs(layer, dtype), masks or {}
    (output, weights), values = forward_and_values(layer, noise, ROWS, *given, **masks, **call)
    expected, expected_weights = loop(layer, kwargs, given, values, masks, **call)
    assert_equal(output, expected)
    if expected_weights is None:
        assert weights is None
    else:
        assert_equal(weights, expected_weights)


@pytest.mark.parametrize(
    "call", [{}, {"average_attn_weights": False}, {"need_weights": False}], ids=["mean", "heads", "none"]
)
@pytest.mark.parametrize("dtype", DTYPES)
@BUILT
def test_layer_equals_loop(kwargs, dtype, call):
    assert_equals_loop(build(dtype, **kwargs), kwargs, "example", dtype, **call)


@pytest.mark.parametrize("noise", NOISES)
@BUILT
def test_noise_equals_loop(kwargs, noise):
    assert_equals_loop(build(torch.float64, **kwargs), kwargs, noise, torch.float64)


@pytest.mark.parametrize("noise", ["example", "location"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kwargs", OPTIONS.values(), ids=OPTIONS)
def test_options_equal_loop(kwargs, dtype, noise):
    assert_equals_loop(build(dtype, **kwargs), kwargs, noise, dtype)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("name", masks(torch.float32))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("build_name", ["plain", "bias_kv_zero_attn", "kdim_vdim_batch_first"])
@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask")
def test_masks_equal_loop(build_name, name, dtype, need_weights):
    kwargs = BUILDS[build_name]
    layer = build(dtype, **kwargs)
    assert_equals_loop(layer, kwargs, "example", dtype, masks=masks(dtype)[name], need_weights=need_weights)


def test_self_attention_with_a_causal_mask():
    layer = build(torch.float64, batch_first=True)
    x = torch.randn(ROWS, TARGET, EMBED, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(TARGET, dtype=torch.float64)
    for need_weights in (True, False):
        assert_equals_loop(
            layer,
            {"batch_first": True},
            "example",
            torch.float64,
            [x, x, x],
            {"attn_mask": mask},
            is_causal=True,
            need_weights=need_weights,
        )


@pytest.mark.parametrize("need_weights", [True, False])
def test_evaluation_without_gradients_keeps_the_factors(need_weights):
    """Torch's own attention has a fused path in exactly this situation."""
    layer = build(torch.float32, batch_first=True).eval()
    x = torch.randn(ROWS, TARGET, EMBED)
    with torch.no_grad():
        assert_equals_loop(layer, {"batch_first": True}, "example", torch.float32, [x, x, x], need_weights=need_weights)


@BUILT
def test_gradients_equal_those_of_the_loop(kwargs):
    layer = build(torch.float64, **kwargs)
    given = inputs(layer, torch.float64)
    (output, _), values = forward_and_values(layer, "example", ROWS, *given)
    cotangent = torch.randn_like(output)
    sources = list(layer.parameters())
    actual = torch.autograd.grad(output, sources, cotangent)
    expected = torch.autograd.grad(loop(layer, kwargs, given, values, {})[0], sources, cotangent)
    for one, other in zip(actual, expected, strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("need_weights", [True, False])
def test_everything_dropped_leaves_the_output_bias(need_weights):
    layer = build(torch.float64, dropout=1.0)
    output, _ = layer(*inputs(layer, torch.float64), need_weights=need_weights)
    expected = layer.out_proj.bias.repeat_interleave(ROWS // MEMBERS, 0).expand(TARGET, -1, -1)
    assert_equal(output, expected)
