"""Gaussian attention equals plain torch attention with the weights of each row, one row at a time."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.func import functional_call

import slimbayes as sb
from slimbayes.layers import GaussianMultiheadAttention

ROWS, TARGET, SOURCE, EMBED, HEADS = 6, 3, 5, 8, 2
BUILDS = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "separate": {"kdim": 3, "vdim": 5},
    "no_bias": {"bias": False, "batch_first": True},
    "extra_keys": {"add_bias_kv": True, "add_zero_attn": True},
}


@contextmanager
def during(sampling, **state):
    """Set the state of a forward pass for a layer on its own."""
    before = dict(vars(sampling))
    vars(sampling).update(state)
    try:
        yield
    finally:
        vars(sampling).update(before)


def inputs(layer, dtype=torch.float64):
    query = torch.randn(TARGET, ROWS, EMBED, dtype=dtype)
    key, value = torch.randn(SOURCE, ROWS, layer.kdim, dtype=dtype), torch.randn(SOURCE, ROWS, layer.vdim, dtype=dtype)
    return tuple(x.transpose(0, 1) if layer.batch_first else x for x in (query, key, value))


def effective(posterior, drawn, row, draws):
    """Return mean + delta ∘ (r s^T) of one row, from what the pass has kept."""
    delta = drawn[f"{posterior.name}/delta"][row // (ROWS // draws)]
    r, s = drawn[f"{posterior.name}/r"][row], drawn[f"{posterior.name}/s"][row]
    return posterior.mean + delta * r.unsqueeze(1) * s, r


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("kwargs", BUILDS.values(), ids=BUILDS)
def test_flipout_answers_each_row_with_one_weight(kwargs, draws, k):
    layer = GaussianMultiheadAttention(EMBED, HEADS, **kwargs, k=k, estimator="flipout", init_std=0.3).double()
    x = inputs(layer)
    with during(layer.sampling, samples=draws, noise="example", rows=ROWS, drawn={}):
        output, _ = layer(*x, need_weights=False)
        drawn = dict(layer.sampling.drawn)
    plain = nn.MultiheadAttention(EMBED, HEADS, **kwargs).double()
    for row in range(ROWS):
        weights = {name: p.detach() for name, p in layer.named_parameters() if name in dict(plain.named_parameters())}
        signs = []
        for name in layer.kernel_names():
            if name != "in_proj_bias":
                weights[name], r = effective(layer.posterior(name), drawn, row, draws)
                signs.append(r)
        weights["out_proj.weight"], out_signs = effective(layer.out_proj.weight_posterior, drawn, row, draws)
        if layer.in_proj_bias is not None:
            draw = row // (ROWS // draws)
            shift = drawn[f"{layer.posterior('in_proj_bias').name}/delta"][draw]
            weights["in_proj_bias"] = layer.in_proj_bias + shift * torch.cat(signs)
            shift = drawn[f"{layer.out_proj.bias_posterior.name}/delta"][draw]
            weights["out_proj.bias"] = layer.out_proj.bias + shift * out_signs
        own = tuple(part.narrow(layer.row_axis, row, 1) for part in x)
        expected, _ = functional_call(plain, weights, own, {"need_weights": False})
        torch.testing.assert_close(output.narrow(layer.row_axis, row, 1), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kwargs", BUILDS.values(), ids=BUILDS)
def test_held_weights_equal_plain_attention_for_each_draw(kwargs):
    layer = GaussianMultiheadAttention(EMBED, HEADS, **kwargs, init_std=0.3).double()
    posteriors = [*layer.posteriors.values(), layer.out_proj.weight_posterior]
    posteriors += [] if layer.out_proj.bias is None else [layer.out_proj.bias_posterior]
    held = {posterior.name: posterior.hold(1, 2, None) for posterior in posteriors}
    x = inputs(layer)
    with during(layer.sampling, samples=2, noise="shared", rows=ROWS, held=held, drawn={}):
        output, _ = layer(*x)
    plain = nn.MultiheadAttention(EMBED, HEADS, **kwargs).double()
    for draw in range(2):
        weights = {name: p.detach() for name, p in layer.named_parameters() if name in dict(plain.named_parameters())}
        weights |= {name: held[posterior.name][draw] for name, posterior in layer.posteriors.items()}
        weights["out_proj.weight"] = held[layer.out_proj.weight_posterior.name][draw]
        if layer.out_proj.bias is not None:
            weights["out_proj.bias"] = held[layer.out_proj.bias_posterior.name][draw]
        own = tuple(part.narrow(layer.row_axis, draw * ROWS // 2, ROWS // 2) for part in x)
        expected, _ = functional_call(plain, weights, own)
        got = output.narrow(layer.row_axis, draw * ROWS // 2, ROWS // 2)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_every_projection_of_a_transformer_is_random():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2)
    model = sb.mean_field(encoder, estimator="flipout")
    matrices = sum(p.numel() for name, p in encoder.named_parameters() if "norm" not in name)
    assert sum(p.numel() for p in model.added_parameters()) == matrices
    assert model.summary().after == sb.count_parameters(encoder) + matrices
