"""The Gaussian embedding: its draws, its padding token, its KL, and tables that a decoder shares."""

import pytest
import torch
from scipy import stats
from torch import distributions as td
from torch import nn

import slimbayes as sb
from slimbayes.layers import GaussianEmbedding

TOKENS, WIDTH, MEMBERS = 7, 3, 2
F64 = torch.float64
each_estimator = pytest.mark.parametrize("estimator", ["reparameterization", "local", "flipout"])
per_row = pytest.mark.parametrize("estimator", ["local", "flipout"])
each_spread = pytest.mark.parametrize("k", [None, 2])


def build(estimator="flipout", members=MEMBERS, init_std=0.5, **kwargs):
    return GaussianEmbedding(TOKENS, WIDTH, members=members, estimator=estimator, init_std=init_std, **kwargs)


def sigma_of(layer):
    spread = layer.weight_posterior.spread
    return spread.log_scale.exp() if hasattr(spread, "log_scale") else spread.log_v.exp() @ spread.log_u.exp().T


def log_parameters(layer):
    return list(layer.weight_posterior.spread.parameters())


@pytest.mark.parametrize("init_std", [0.0486, 0.5])
def test_standard_deviations_start_around_init_std(init_std):
    layer = GaussianEmbedding(400, 50, init_std=init_std)
    values = layer.weight_posterior.spread.log_scale.detach().exp().flatten().double()
    assert stats.kstest(values.numpy(), stats.norm(init_std, 0.1 * init_std).cdf).pvalue > 1e-3


def test_defaults():
    layer = GaussianEmbedding(4, 2)
    assert (layer.members, layer.estimator, layer.sample_per) == (1, "reparameterization", "draw")


# ---------------------------------------------------------------------- draws


@each_estimator
@each_spread
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_moments_of_the_draws(noise, estimator, k):
    """Mean and standard deviation of 20 000 draws are within five standard errors of weight and scale."""
    layer, count = build(estimator, k=k, dtype=F64), 20_000
    layer.sampling.noise, layer.sampling.samples = noise, count // MEMBERS
    drawn = layer(torch.arange(TOKENS).expand(count, -1)).detach()
    scale = sigma_of(layer).detach()
    error = scale / count**0.5
    assert ((drawn.mean(0) - layer.weight).abs() < 5 * error).all()
    assert ((drawn.std(0) - scale).abs() < 5 * error / 2**0.5).all()
    # Tokens of one draw are independent of each other.
    standard = ((drawn - layer.weight.detach()) / scale).flatten(1)
    correlation = standard.T @ standard / count - torch.eye(TOKENS * WIDTH)
    assert correlation.fill_diagonal_(0).abs().max() < 5 / count**0.5


@per_row
@each_spread
@pytest.mark.parametrize("batch_dim", [0, 1])
def test_a_token_has_one_value_in_a_row(batch_dim, estimator, k):
    layer = build(estimator, k=k)
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


@pytest.mark.parametrize(("sample_per", "tables"), [("draw", 4), ("batch", 1)])
def test_with_plain_reparameterisation_all_rows_of_a_draw_see_one_table(sample_per, tables):
    layer = build("reparameterization", sample_per=sample_per)
    layer.sampling.samples = 2
    drawn = layer(torch.arange(TOKENS).expand(12, -1))
    assert len(drawn.unique(dim=0)) == tables
    for rows in drawn.chunk(tables):
        assert torch.equal(rows, rows[:1].expand_as(rows))


@per_row
def test_windows_of_one_row_share_its_draw(estimator):
    """Rows that were merged into the batch on the right of the model's own belong to one draw."""
    layer = build(estimator)
    layer.sampling.rows = 2
    drawn = layer(torch.tensor([[1, 2], [2, 1], [1, 2], [2, 1]]))
    assert torch.equal(drawn[0, 0], drawn[1, 1])
    assert torch.equal(drawn[2, 0], drawn[3, 1])
    assert not torch.equal(drawn[0, 0], drawn[2, 0])


@each_estimator
@each_spread
def test_a_layer_that_is_called_again_in_a_pass_keeps_its_draw(estimator, k):
    """A decoder that writes token by token, or an encoder for two sentences; new tokens are drawn as they come."""
    layer = build(estimator, k=k, members=1)
    layer.sampling.drawn = {}
    first, *steps = (
        torch.tensor([[1, 2, 1], [3, 4, 3]]),
        torch.tensor([2, 4]),
        torch.tensor([5, 3]),
        torch.tensor([5, 6]),
    )
    values = [layer(first), *(layer(step) for step in steps)]
    tables = [{}, {}]
    for tokens, found in [(first[:, i], values[0][:, i]) for i in range(3)] + list(zip(steps, values[1:], strict=True)):
        for row, table in enumerate(tables):
            expected = table.setdefault(tokens[row].item(), found[row])
            assert torch.equal(found[row], expected)
    assert [sorted(table) for table in tables] == [[1, 2, 5], [3, 4, 6]]
    assert len(torch.stack([value for table in tables for value in table.values()]).unique(dim=0)) == 6
    layer.sampling.drawn = {}
    assert not torch.equal(layer(first), values[0])


@each_estimator
@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 2, 3)])
def test_location(shape, estimator):
    layer = build(estimator)
    layer.sampling.samples = 0
    tokens = torch.randint(TOKENS, shape)
    assert torch.equal(layer(tokens), layer.weight[tokens])
    assert torch.equal(layer.weight_posterior.at_location(1), layer.weight)
    assert torch.equal(layer.weight_posterior.hold(MEMBERS, 0, None), torch.stack([layer.weight] * MEMBERS))


@each_estimator
@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 2, 3)])
def test_held_tables(shape, estimator):
    layer = build(estimator)
    tables = torch.randn(4, TOKENS, WIDTH)
    layer.sampling.held = {layer.weight_posterior.name: tables}
    tokens = torch.randint(TOKENS, shape)
    expected = torch.stack([tables[row // 2][tokens[row]] for row in range(8)])
    assert torch.equal(layer(tokens), expected)


@each_spread
def test_draws_are_weight_plus_scale_times_noise(k):
    layer = build(k=k)
    torch.manual_seed(3)
    tables = layer.weight_posterior.hold(MEMBERS, 2, None)
    torch.manual_seed(3)
    noise = torch.randn(2 * MEMBERS, TOKENS, WIDTH)
    torch.testing.assert_close(tables, layer.weight + sigma_of(layer) * noise)


# ---------------------------------------------------------------------- the padding token


@each_estimator
@pytest.mark.parametrize("padding_idx", [2, -1])
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_padding_token_has_neither_noise_nor_gradient(noise, padding_idx, estimator):
    layer = build(estimator, padding_idx=padding_idx)
    padding = padding_idx % TOKENS
    nn.init.normal_(layer.weight)
    layer.sampling.noise = noise
    drawn = layer(torch.arange(TOKENS).repeat(4, 1))
    assert torch.equal(drawn[:, padding], layer.weight[padding].expand(4, -1))
    assert (layer.weight_posterior.scale[padding] == 0).all()
    assert torch.equal(layer.weight_posterior.draw(1)[0, padding], layer.weight[padding])
    (drawn.square().sum() + layer.weight_posterior.kl()).backward()
    for grad in (layer.weight.grad, *(p.grad for p in log_parameters(layer))):
        assert (grad[padding] == 0).all()
        assert (grad[[i for i in range(TOKENS) if i != padding]] != 0).all()


@pytest.mark.parametrize("padding_idx", [None, 2])
@each_spread
@pytest.mark.parametrize("prior_std", [1.0, 0.3])
def test_kl_is_the_closed_form(prior_std, padding_idx, k):
    layer = build(prior_std=prior_std, padding_idx=padding_idx, k=k, dtype=F64)
    nn.init.normal_(layer.weight)
    prior = td.Normal(*torch.tensor([0.0, prior_std], dtype=F64))
    each = td.kl_divergence(td.Normal(layer.weight, sigma_of(layer)), prior).sum(1)
    expected = sum(kl for token, kl in enumerate(each) if token != padding_idx)
    torch.testing.assert_close(layer.weight_posterior.kl(), expected, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------- gradients


@each_estimator
@each_spread
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_gradients_are_those_of_the_reparameterised_table(noise, estimator, k):
    layer = build(estimator, padding_idx=0, k=k, dtype=F64)
    layer.sampling.noise = noise
    tokens = torch.randint(TOKENS, (4, 5))
    drawn = layer(tokens)
    cotangent = torch.randn_like(drawn)
    wanted = (layer.weight, *log_parameters(layer))
    actual = torch.autograd.grad(drawn, wanted, cotangent)
    scale = sigma_of(layer)[tokens]
    epsilon = ((drawn - layer.weight[tokens]) / scale).detach()
    trained = (tokens != 0).unsqueeze(-1)
    expected = torch.autograd.grad((layer.weight[tokens] + scale * epsilon) * trained, wanted, cotangent)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_sparse_gradients_of_the_means_have_the_dense_values():
    sparse, dense = build(sparse=True), build()
    dense.load_state_dict(sparse.state_dict())
    tokens = torch.tensor([[1, 2, 1], [4, 4, 2]])
    for layer in (sparse, dense):
        torch.manual_seed(1)
        layer(tokens).square().sum().backward()
    assert sparse.weight.grad.is_sparse
    torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)
    for ours, theirs in zip(log_parameters(sparse), log_parameters(dense), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


# ---------------------------------------------------------------------- a table that is a decoder's weight, too


class Tied(nn.Module):
    """Returns the table that each row looks up, and what its decoder says to unit vectors: the same, transposed."""

    def __init__(self, decoder_first, padding_idx=None):
        super().__init__()
        parts = {"embed": nn.Embedding(TOKENS, WIDTH, padding_idx), "decode": nn.Linear(WIDTH, TOKENS, bias=False)}
        for name in sorted(parts, reverse=not decoder_first):
            setattr(self, name, parts[name])
        self.decode.weight = self.embed.weight

    def forward(self, tokens):
        return self.embed(tokens), self.decode(torch.eye(WIDTH, dtype=F64).expand(len(tokens), -1, -1))


@pytest.mark.parametrize("decoder_first", [False, True])
@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("options", [{}, {"k": 2}], ids=["full", "2-tied"])
@pytest.mark.parametrize(
    ("estimator", "sample_per"),
    [
        ("reparameterization", "draw"),
        ("reparameterization", "batch"),
        ("flipout", "draw"),
        ("flipout", "batch"),
        ("local", "draw"),
    ],
)
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_a_row_sees_one_weight_in_the_embedding_and_in_the_decoder(
    decoder_first, padding_idx, options, estimator, sample_per, noise
):
    convert = sb.k_tied if options else sb.mean_field
    model = convert(
        Tied(decoder_first, padding_idx).double(), estimator=estimator, sample_per=sample_per, init_std=0.5, **options
    )
    assert len(list(model.stochastic())) == 1
    tables, decoders = model(torch.arange(TOKENS).expand(4, -1), samples=2, noise=noise)
    torch.testing.assert_close(tables, decoders.transpose(2, 3), rtol=1e-10, atol=1e-10)
    different = len(tables.flatten(0, 1).unique(dim=0))
    if estimator == "reparameterization" and noise == "example":
        assert different == (2 if sample_per == "draw" else 1)
    else:
        assert different > 2 if noise == "example" else different == 2
    if padding_idx is not None:
        assert torch.equal(tables[..., 2, :], model.net.embed.weight[2].expand(2, 4, -1))
    folded = model.member(0, sample=0)
    assert folded.embed.weight is folded.decode.weight


@pytest.mark.parametrize("decoder_first", [False, True])
@each_estimator
def test_a_decoder_trains_the_row_of_the_padding_token(decoder_first, estimator):
    """As in torch: looking the token up does not train it, predicting it does."""
    model = sb.mean_field(Tied(decoder_first, padding_idx=2).double(), estimator=estimator)
    embedded, decoded = model(torch.arange(TOKENS).expand(4, -1))
    (from_embedding,) = torch.autograd.grad(embedded.sum(), model.net.embed.weight, retain_graph=True)
    (from_decoder,) = torch.autograd.grad(decoded.sum(), model.net.embed.weight)
    assert from_embedding[:, 0].tolist() == [4.0, 4.0, 0.0, 4.0, 4.0, 4.0, 4.0]
    torch.testing.assert_close(from_decoder, torch.full_like(from_decoder, 4.0))


def test_moments_of_a_tied_table():
    """Flipout's signs leave the distribution as it is."""
    model = sb.mean_field(Tied(False).double(), estimator="local", init_std=0.5)
    with torch.no_grad():
        drawn = model(torch.arange(TOKENS).expand(10, -1), samples=2000)[0]
    posterior = model.net.embed.weight_posterior
    standard = (drawn[:, 0] - posterior.mean) / posterior.scale
    assert stats.kstest(standard.detach().flatten().numpy(), "norm").pvalue > 1e-3
    between_rows = (((drawn[:, 0] - posterior.mean) * (drawn[:, 1] - posterior.mean)) / posterior.scale**2).detach()
    assert (between_rows.mean(0).abs() < 5 * between_rows.std(0) / 2000**0.5).all()


# ---------------------------------------------------------------------- types and errors


@each_estimator
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_half_precision(noise, dtype, estimator):
    layer = build(estimator, padding_idx=0, dtype=dtype)
    layer.sampling.noise = noise
    drawn = layer(torch.arange(TOKENS).expand(2, -1))
    assert drawn.dtype == log_parameters(layer)[0].dtype == dtype
    assert torch.isfinite(drawn).all()
    assert torch.equal(drawn[:, 0], layer.weight[:1].expand(2, -1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build(max_norm=1.0), r"GaussianEmbedding has max_norm=1\.0"),
        (lambda: build(init_std=0.0), r"`init_std`.*got 0\.0"),
        (lambda: build(prior_std=-1.0), r"`prior_std`.*got -1\.0"),
        (lambda: build(estimator="plain"), r"`estimator`.*got 'plain'"),
        (lambda: GaussianEmbedding(4, 2, members=0), r"`members`.*got 0"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@each_estimator
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_input_without_the_rows_of_the_model_raises(noise, estimator):
    """Positions, say, that all rows share."""
    layer = build(estimator)
    layer.name, layer.sampling.noise, layer.sampling.samples, layer.sampling.rows = "positions", noise, 3, 6
    with pytest.raises(ValueError, match=r"positions got 4 rows.* 6 rows"):
        layer(torch.zeros(4, 3, dtype=torch.long))


# ---------------------------------------------------------------------- tables that are read by position


class Positions(nn.Module):
    """Reads positions as hand-written networks do, and looks tokens up beside."""

    def __init__(self, shape=(1, 8)) -> None:
        super().__init__()
        self.tokens, self.where, self.head = nn.Embedding(20, WIDTH), nn.Embedding(8, WIDTH), nn.Linear(WIDTH, 2)
        self.shape = shape

    def forward(self, tokens):
        positions = torch.arange(8).reshape(self.shape)
        return self.head((self.tokens(tokens) + self.where(positions)).tanh())


POSITIONAL = {
    "rank1": lambda net: sb.rank1(net, members=2, embedding="mean_field"),
    "mean_field": lambda net: sb.mean_field(net, init_std=0.3),
    "flipout": lambda net: sb.mean_field(net, init_std=0.3, estimator="flipout"),
    "k_tied local": lambda net: sb.k_tied(net, init_std=0.3, estimator="local"),
}


@pytest.mark.parametrize("method", POSITIONAL)
@pytest.mark.parametrize("shape", [(1, 8), (8,)])
@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_positions_are_looked_up_for_each_row(batch, shape, method):
    """Eight positions may be as many as the rows, or a multiple: nothing but a second batch tells them apart."""
    model, tokens = POSITIONAL[method](Positions(shape)), torch.randint(20, (batch, 8))
    assert model(tokens, samples=2).shape == (2 * model.members, batch, 8, 2)
    assert model.net.where.by_position is True
    assert model.net.tokens.by_position is False
    draw = model.draw(2)
    outputs = model(tokens, draw=draw)
    for d in range(2 * model.members):
        member = model.member(d // 2, sample=d % 2, draw=draw)
        torch.testing.assert_close(outputs[d], member(tokens), rtol=1e-5, atol=1e-6)
    assert model.predict(tokens, samples=3).draws.shape == (3 * model.members, batch, 8, 2)
    model.check(tokens)


@pytest.mark.parametrize("method", POSITIONAL)
@pytest.mark.parametrize("shape", [(1, 8), (8,)])
@pytest.mark.parametrize("order", [(False, True), (True, False)], ids=["none first", "given first"])
def test_positions_that_are_given_now_and_then(order, shape, method):
    """Before, the first pass decided for all: positions of padded sequences were refused after it, or no positions."""

    class Padded(Positions):
        def forward(self, tokens, positions=None):
            positions = torch.arange(8).reshape(self.shape) if positions is None else positions
            return self.head((self.tokens(tokens) + self.where(positions)).tanh())

    model, tokens = POSITIONAL[method](Padded(shape)), torch.randint(20, (3, 8))
    for given in order:
        args = (tokens, torch.randint(8, (3, 8))) if given else (tokens,)
        draw = model.draw(2)
        outputs = model(*args, draw=draw)
        for d in range(2 * model.members):
            member = model.member(d // 2, sample=d % 2, draw=draw)
            torch.testing.assert_close(outputs[d], member(*args), rtol=1e-5, atol=1e-6)
        assert model(*args, samples=2).shape == (2 * model.members, 3, 8, 2)


def test_rows_have_their_own_draws_of_a_table_read_by_position():
    model = sb.mean_field(Positions((8,)), init_std=0.3, estimator="flipout", include=["where"])
    tokens = torch.zeros(4, 8, dtype=torch.long)
    assert len(model(tokens)[0].unique(dim=0)) == 4
    assert len(model(tokens, noise="shared")[0].unique(dim=0)) == 1
    (model(tokens).sum() + model.kl()).backward()
    assert model.net.where.weight.grad.abs().min() > 0


def test_labels_of_the_batch_are_no_positions():
    class Labels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 2)

        def forward(self, labels):
            return self.head(self.table(labels))

    model, labels = sb.mean_field(Labels(), init_std=0.3, estimator="flipout"), torch.arange(6)
    assert model(labels, samples=2).shape == (2, 6, 2)
    assert model.net.table.by_position is False


def test_tables_whose_use_has_no_room_for_rows_are_named():
    class Relative(Positions):
        def forward(self, tokens):
            bias = self.where((torch.arange(8).unsqueeze(0) - torch.arange(8).unsqueeze(1)).abs())
            return self.head(self.tokens(tokens) + bias.sum(1))

    class Unsqueezed(Positions):
        def forward(self, tokens):
            return self.head(self.tokens(tokens) + self.where(torch.arange(8)).unsqueeze(0))

    tokens = torch.randint(20, (4, 8))
    for network in (Relative, Unsqueezed):
        with pytest.raises(ValueError, match=r"tables where are read by position.*exclude=\['where'\]"):
            sb.mean_field(network())(tokens)
        sb.mean_field(network(), exclude="where").check(tokens)
