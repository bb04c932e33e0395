"""Dense and convolutional layers with Gaussian weights equal plain torch layers, run with each row's own weight."""

import pytest
import torch
from layer_oracle import TOLERANCES, materialised
from torch import nn
from torch.func import functional_call

from slimbayes import layers

F64 = torch.float64
DRAWS, BATCH = 3, 4
ROWS = DRAWS * BATCH

#: The torch class, its arguments, and the shape of one row of its input.
CASES = {
    "Linear": ("Linear", (5, 7), {}, (5,)),
    "Linear_no_bias": ("Linear", (5, 7), {"bias": False}, (5,)),
    "Linear_positions": ("Linear", (5, 7), {}, (2, 3, 5)),
    "Conv1d": ("Conv1d", (4, 6, 3), {"padding": 1}, (4, 9)),
    "Conv1d_groups_dilation": ("Conv1d", (4, 6, 3), {"groups": 2, "dilation": 2, "bias": False}, (4, 9)),
    "Conv2d": ("Conv2d", (4, 6, 3), {"stride": 2}, (4, 7, 6)),
    "Conv2d_rectangular": ("Conv2d", (4, 6, (3, 1)), {"padding": (1, 0), "stride": (1, 2)}, (4, 5, 6)),
    "Conv2d_circular": ("Conv2d", (4, 6, 3), {"padding": 1, "padding_mode": "circular"}, (4, 5, 6)),
    "Conv2d_same_even": ("Conv2d", (4, 6, 2), {"padding": "same", "padding_mode": "reflect"}, (4, 5, 6)),
    "Conv2d_depthwise": ("Conv2d", (4, 8, 3), {"groups": 4}, (4, 5, 6)),
    "Conv3d": ("Conv3d", (2, 4, 2), {"groups": 2, "padding": "same", "padding_mode": "replicate"}, (2, 3, 3, 3)),
    "ConvTranspose1d": ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "groups": 2}, (4, 5)),
    "ConvTranspose2d": ("ConvTranspose2d", (4, 6, (3, 2)), {"stride": 2, "padding": 1, "output_padding": 1}, (4, 5, 4)),
    "ConvTranspose2d_dilation": ("ConvTranspose2d", (4, 6, 3), {"dilation": 2, "groups": 2, "bias": False}, (4, 4, 4)),
    "ConvTranspose3d": ("ConvTranspose3d", (2, 3, 2), {"stride": (1, 2, 1)}, (2, 3, 3, 3)),
}
each_case = pytest.mark.parametrize(("kind", "args", "kwargs", "shape"), CASES.values(), ids=CASES)
OPTIONS = {"full": {}, "2-tied": {"k": 2}, "point bias": {"bayesian_bias": False}}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def build(kind, args, kwargs, dtype=F64, draws=DRAWS, **options):
    """Return a layer that keeps what it draws, and the torch layer of the same arguments."""
    layer = getattr(layers, f"Gaussian{kind}")(*args, **kwargs, dtype=dtype, init_std=0.3, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    layer.sampling.samples, layer.sampling.drawn = draws, {}
    return layer, getattr(nn, kind)(*args, **kwargs, dtype=dtype)


def kept(layer, part, what):
    """Return what a part drew, written as sigma * epsilon so that gradients reach sigma, or None."""
    posterior = getattr(layer, part)
    if posterior is None:
        return None
    value = layer.sampling.drawn[f"{part}/{what}"].detach()
    noise = value - posterior.mean.detach() if what == "values" else value
    perturbation = sigma_of(posterior, layer) * (noise / sigma_of(posterior, layer).detach())
    return posterior.mean + perturbation if what == "values" else perturbation


def sigma_of(posterior, layer):
    """Return sigma of the log parameters; of a k-tied weight, as the matrix of appendix D.3."""
    spread = posterior.spread
    if hasattr(spread, "log_scale"):
        return spread.log_scale.exp()
    matrix = (spread.log_v.exp().unsqueeze(1) * spread.log_u.exp()).sum(-1)
    outputs_last = layer.output_dim == 1
    shape = [n for axis, n in enumerate(posterior.mean.shape) if axis != layer.output_dim]
    matrix = matrix.view(-1, *shape)
    return matrix.transpose(0, 1) if outputs_last else matrix


def apply(plain, weight, bias, x, *args):
    return functional_call(plain, {"weight": weight} if bias is None else {"weight": weight, "bias": bias}, (x, *args))


def one_by_one(layer, plain, x, *args):
    """Run the plain layer once for each draw, with that draw's weight and bias."""
    weights, biases = kept(layer, "weight_posterior", "values"), kept(layer, "bias_posterior", "values")
    answers = []
    for draw, rows in enumerate(x.chunk(len(weights))):
        bias = layer.bias if biases is None else biases[draw]
        answers.append(apply(plain, weights[draw], bias, rows, *args))
    return torch.cat(answers)


def row_by_row(layer, plain, x, *args):
    """Run the plain layer on one row at a time with the weight mean + delta ∘ (r s^T), r and s on channels."""
    deltas, shifts = kept(layer, "weight_posterior", "delta"), kept(layer, "bias_posterior", "delta")
    s, r = (layer.sampling.drawn[f"weight_posterior/{sign}"] for sign in "sr")
    groups, transposed = getattr(plain, "groups", 1), layer.output_dim == 1
    answers = []
    for row in range(len(x)):
        draw, signs = row * len(deltas) // len(x), row * len(s) // len(x)
        weight = layer.weight + materialised(deltas[draw], s[signs], r[signs], groups, transposed)
        bias = layer.bias if shifts is None else layer.bias + shifts[draw] * r[signs]
        answers.append(apply(plain, weight, bias, x[row : row + 1], *args))
    return torch.cat(answers)


def assert_same(layer, oracle, plain, shape, dtype, *args):
    x = torch.randn(ROWS, *shape, dtype=dtype, requires_grad=True)
    y = layer(x, *args)
    expected = oracle(layer, plain, x, *args)
    error = TOLERANCES[dtype]
    torch.testing.assert_close(y, expected, rtol=error, atol=error)
    if dtype == F64:
        cotangent = torch.randn_like(y)
        wanted = (x, *layer.parameters())
        for ours, theirs in zip(
            torch.autograd.grad(y, wanted, cotangent), torch.autograd.grad(expected, wanted, cotangent), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@each_case
@each_option
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_reparameterisation_is_a_loop_over_draws(kind, args, kwargs, shape, options, dtype):
    layer, plain = build(kind, args, kwargs, dtype, **options)
    assert_same(layer, one_by_one, plain, shape, dtype)
    assert len(layer.sampling.drawn["weight_posterior/values"]) == DRAWS


@each_case
@each_option
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_flipout_is_a_loop_over_rows(kind, args, kwargs, shape, options, dtype):
    layer, plain = build(kind, args, kwargs, dtype, estimator="flipout", **options)
    assert_same(layer, row_by_row, plain, shape, dtype)
    assert len(layer.sampling.drawn["weight_posterior/delta"]) == DRAWS
    assert len(layer.sampling.drawn["weight_posterior/s"]) == ROWS
    for sign in "sr":
        assert layer.sampling.drawn[f"weight_posterior/{sign}"].unique().tolist() == [-1, 1]


@each_case
def test_local_is_flipout_where_a_row_meets_the_weight_more_than_once(kind, args, kwargs, shape):
    layer, plain = build(kind, args, kwargs, estimator="local")
    if len(shape) > 1:
        assert_same(layer, row_by_row, plain, shape, F64)
    else:
        layer(torch.randn(ROWS, *shape, dtype=F64))
        assert list(layer.sampling.drawn) == ["weight_posterior/local"]  # noise on outputs, and no weight


@pytest.mark.parametrize("estimator", ["flipout", "local"])
@each_case
def test_rows_merged_into_the_batch_keep_the_signs_of_their_row(kind, args, kwargs, shape, estimator):
    layer, plain = build(kind, args, kwargs, estimator=estimator)
    layer.sampling.rows = ROWS // 2
    assert_same(layer, row_by_row, plain, shape, F64)
    assert len(layer.sampling.drawn["weight_posterior/s"]) == ROWS // 2


@pytest.mark.parametrize(
    ("estimator", "oracle"), [("reparameterization", one_by_one), ("flipout", row_by_row)], ids=["plain", "flipout"]
)
@each_case
def test_one_draw_for_the_batch(kind, args, kwargs, shape, estimator, oracle):
    layer, plain = build(kind, args, kwargs, estimator=estimator, sample_per="batch")
    assert_same(layer, oracle, plain, shape, F64)
    assert all(len(value) == 1 for name, value in layer.sampling.drawn.items() if name[-1] not in "sr")


@pytest.mark.parametrize("estimator", ["reparameterization", "flipout", "local"])
@each_case
def test_location_and_held_weights(kind, args, kwargs, shape, estimator):
    layer, plain = build(kind, args, kwargs, estimator=estimator)
    x = torch.randn(ROWS, *shape, dtype=F64)
    layer.sampling.samples = 0
    torch.testing.assert_close(layer(x), apply(plain, layer.weight, layer.bias, x), rtol=1e-10, atol=1e-10)
    parts = [part for part in ("weight_posterior", "bias_posterior") if getattr(layer, part) is not None]
    layer.sampling.held = {part: getattr(layer, part).draw(DRAWS) for part in parts}
    weights, biases = layer.sampling.held["weight_posterior"], layer.sampling.held.get("bias_posterior")
    expected = [
        apply(plain, weights[i], None if biases is None else biases[i], rows) for i, rows in enumerate(x.chunk(DRAWS))
    ]
    torch.testing.assert_close(layer(x), torch.cat(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("estimator", "oracle"), [("reparameterization", one_by_one), ("flipout", row_by_row)], ids=["plain", "flipout"]
)
@pytest.mark.parametrize("size", [(10, 9), (11, 10)])
def test_output_size_of_a_transposed_convolution(estimator, oracle, size):
    kind, args, kwargs = "ConvTranspose2d", (4, 6, 3), {"stride": 2, "padding": (1, 1)}
    layer, plain = build(kind, args, kwargs, estimator=estimator)
    shape = (4, (size[0] + 1) // 2, (size[1] + 1) // 2)
    assert_same(layer, oracle, plain, shape, F64, size)
    assert layer(torch.randn(ROWS, *shape, dtype=F64), output_size=size).shape[2:] == size


@pytest.mark.parametrize(
    ("estimator", "oracle"), [("reparameterization", one_by_one), ("flipout", row_by_row)], ids=["plain", "flipout"]
)
def test_sequence_first_inputs_of_a_dense_layer(estimator, oracle):
    layer, plain = build("Linear", (5, 7), {}, estimator=estimator)
    layer.sampling.batch_dim = 1
    x = torch.randn(2, ROWS, 5, dtype=F64)
    y = layer(x)
    torch.testing.assert_close(y.transpose(0, 1), oracle(layer, plain, x.transpose(0, 1)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("estimator", ["reparameterization", "flipout", "local"])
@each_case
def test_rows_that_cannot_be_dealt_to_the_draws(kind, args, kwargs, shape, estimator):
    layer, _ = build(kind, args, kwargs, estimator=estimator)
    if estimator == "local" and len(shape) == 1:
        return
    with pytest.raises(ValueError, match=rf"Gaussian{kind} got 4 rows.*3 draws.*row_dim"):
        layer(torch.randn(4, *shape, dtype=F64))
    if kind != "Linear":
        with pytest.raises(ValueError, match=rf"Gaussian{kind} expected a batch.*even of one"):
            layer(torch.randn(*shape, dtype=F64))
