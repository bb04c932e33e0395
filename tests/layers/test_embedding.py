"""The mean-field embedding: its draws, its padding token and its KL."""

import math

import pytest
import torch
from torch import distributions as td
from torch import nn

from slimbayes.layers import MeanFieldEmbedding

TOKENS, WIDTH, MEMBERS = 7, 3, 2


def build(std=0.5, **kwargs):
    return MeanFieldEmbedding(TOKENS, WIDTH, members=MEMBERS, std=std, **kwargs)


def scale_of(layer):
    return torch.log1p(layer.rho.exp()) + 1e-7


@pytest.mark.parametrize("std", [0.0486, 0.5])
def test_rho_starts_around_the_inverse_softplus_of_std(std):
    """As in the reference: jitter of standard deviation 0.1 that is cut off at two of them."""
    jitter = MeanFieldEmbedding(400, 50, std=std).rho - math.log(math.expm1(std))
    assert jitter.abs().max() <= 0.2 + 1e-6
    assert jitter.mean().abs() < 5 * 0.1 / 20_000**0.5
    assert jitter.std().item() == pytest.approx(0.0880, rel=0.03)  # of a normal truncated at two standard deviations


@pytest.mark.parametrize("noise", ["example", "shared"])
def test_moments_of_the_draws(noise):
    """Mean and standard deviation of 20 000 draws are within five standard errors of weight and scale."""
    layer, count = build().double(), 20_000
    layer.sampling.noise, layer.sampling.samples = noise, count // MEMBERS
    drawn = layer(torch.arange(TOKENS).expand(count, -1)).detach()
    scale = scale_of(layer)
    error = scale / count**0.5
    assert ((drawn.mean(0) - layer.weight).abs() < 5 * error).all()
    assert ((drawn.std(0) - scale).abs() < 5 * error / 2**0.5).all()
    # Tokens of one draw are independent of each other.
    noise = ((drawn - layer.weight) / scale).flatten(1)
    correlation = noise.T @ noise / count - torch.eye(TOKENS * WIDTH)
    assert correlation.fill_diagonal_(0).abs().max() < 5 / count**0.5


@pytest.mark.parametrize("batch_dim", [0, 1])
def test_a_token_has_one_value_in_a_row(batch_dim):
    layer = build()
    layer.sampling.batch_dim = batch_dim
    tokens = torch.tensor([[1, 2, 1, 3, 2, 1], [3, 1, 1, 2, 5, 2], [2, 2, 2, 2, 2, 2], [0, 1, 2, 3, 4, 5]])
    drawn = layer(tokens if batch_dim == 0 else tokens.T)
    drawn = drawn if batch_dim == 0 else drawn.transpose(0, 1)
    for row in range(4):
        for i in range(6):
            for j in range(6):
                assert torch.equal(drawn[row, i], drawn[row, j]) == (tokens[row, i] == tokens[row, j]).item()
    everywhere = torch.stack([drawn[row][tokens[row] == 2][0] for row in range(4)])
    assert len(everywhere.unique(dim=0)) == 4


def test_windows_of_one_row_share_its_draw():
    """Rows that were merged into the batch on the right of the model's own belong to one draw."""
    layer = build()
    layer.sampling.rows = 2
    drawn = layer(torch.tensor([[1, 2], [2, 1], [1, 2], [2, 1]]))
    assert torch.equal(drawn[0, 0], drawn[1, 1])
    assert torch.equal(drawn[2, 0], drawn[3, 1])
    assert not torch.equal(drawn[0, 0], drawn[2, 0])


@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 2, 3)])
def test_location(shape):
    layer = build()
    layer.sampling.samples = 0
    tokens = torch.randint(TOKENS, shape)
    assert torch.equal(layer(tokens), layer.weight[tokens])
    assert torch.equal(layer.at_location(1), layer.weight)
    assert torch.equal(layer.hold(MEMBERS, 0, None), torch.stack([layer.weight] * MEMBERS))


@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 2, 3)])
def test_held_tables(shape):
    layer = build()
    tables = torch.randn(4, TOKENS, WIDTH)
    layer.sampling.held = {layer.name: tables}
    tokens = torch.randint(TOKENS, shape)
    expected = torch.stack([tables[row // 2][tokens[row]] for row in range(8)])
    assert torch.equal(layer(tokens), expected)


def test_draws_are_weight_plus_scale_times_noise():
    layer = build()
    torch.manual_seed(3)
    tables = layer.hold(MEMBERS, 2, None)
    torch.manual_seed(3)
    noise = torch.randn(2 * MEMBERS, TOKENS, WIDTH)
    torch.testing.assert_close(tables, layer.weight + scale_of(layer) * noise)


@pytest.mark.parametrize("padding_idx", [2, -1])
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_padding_token_has_neither_noise_nor_gradient(noise, padding_idx):
    layer = build(padding_idx=padding_idx)
    padding = padding_idx % TOKENS
    nn.init.normal_(layer.weight)
    layer.sampling.noise = noise
    tokens = torch.arange(TOKENS).repeat(4, 1)
    drawn = layer(tokens)
    assert torch.equal(drawn[:, padding], layer.weight[padding].expand(4, -1))
    assert (layer.scale[padding] == 0).all()
    (drawn.square().sum() + layer.kl()).backward()
    for grad in (layer.weight.grad, layer.rho.grad):
        assert (grad[padding] == 0).all()
        assert (grad[[i for i in range(TOKENS) if i != padding]] != 0).all()


@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("prior_std", [1.0, 0.3])
def test_kl_is_the_closed_form(prior_std, padding_idx):
    layer = build(prior_std=prior_std, padding_idx=padding_idx).double()
    nn.init.normal_(layer.weight)
    posterior = td.Normal(layer.weight, scale_of(layer))
    prior = td.Normal(*torch.tensor([0.0, prior_std], dtype=torch.float64))
    each = td.kl_divergence(posterior, prior).sum(1)
    expected = sum(kl for token, kl in enumerate(each) if token != padding_idx)
    torch.testing.assert_close(layer.kl(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("noise", ["example", "shared"])
def test_gradients_are_those_of_the_reparameterised_table(noise):
    layer = build(padding_idx=0).double()
    layer.sampling.noise = noise
    tokens = torch.randint(TOKENS, (4, 5))
    drawn = layer(tokens)
    cotangent = torch.randn_like(drawn)
    weight, rho = torch.autograd.grad(drawn, (layer.weight, layer.rho), cotangent)
    mean, noise = torch.zeros_like(weight), (drawn - layer.weight[tokens]).detach()
    scaled = torch.zeros_like(rho)
    for row in range(4):
        for place, token in enumerate(tokens[row].tolist()):
            if token != 0:
                mean[token] += cotangent[row, place]
                # d(scale * eps) / d rho = eps sigmoid(rho), eps = noise / scale
                slope = layer.rho[token].sigmoid() / scale_of(layer)[token]
                scaled[token] += cotangent[row, place] * noise[row, place] * slope
    torch.testing.assert_close(weight, mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(rho, scaled, rtol=1e-10, atol=1e-10)


def test_sparse_gradients_have_the_dense_values():
    sparse, dense = build(sparse=True), build()
    dense.load_state_dict(sparse.state_dict())
    tokens = torch.tensor([[1, 2, 1], [4, 4, 2]])
    for layer in (sparse, dense):
        torch.manual_seed(1)
        layer(tokens).square().sum().backward()
    for name in ("weight", "rho"):
        grad = getattr(sparse, name).grad
        assert grad.is_sparse
        torch.testing.assert_close(grad.to_dense(), getattr(dense, name).grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_half_precision(noise, dtype):
    layer = build(padding_idx=0, dtype=dtype)
    layer.sampling.noise = noise
    drawn = layer(torch.arange(TOKENS).expand(2, -1))
    assert drawn.dtype == layer.rho.dtype == dtype
    assert torch.isfinite(drawn).all()
    assert torch.equal(drawn[:, 0], layer.weight[:1].expand(2, -1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build(max_norm=1.0), r"MeanFieldEmbedding has max_norm=1\.0"),
        (lambda: build(std=0.0), r"`std`.*got 0\.0"),
        (lambda: build(prior_std=-1.0), r"`prior_std`.*got -1\.0"),
        (lambda: MeanFieldEmbedding(4, 2, members=0), r"`members`.*got 0"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("noise", ["example", "shared"])
def test_input_without_the_rows_of_the_model_raises(noise):
    """Positions, say, that all rows share: 12 of them could be dealt to 6 draws, but wrongly."""
    layer = build()
    layer.name, layer.sampling.noise, layer.sampling.samples, layer.sampling.rows = "positions", noise, 3, 6
    with pytest.raises(ValueError, match=r"positions got 4 rows.* 6 rows"):
        layer(torch.zeros(4, 3, dtype=torch.long))
