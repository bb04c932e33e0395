"""What conversion cannot see from inside a layer: rows out of order, layers called twice, odd networks."""

import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import slimbayes as sb
from cases import CASES, build

BATCH, WIDTH = 6, 8


class Concatenated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(WIDTH, 4)

    def forward(self, a, b):
        a, b = self.f(torch.cat([a, b])).chunk(2)
        return a - b


class Sorted(Concatenated):
    def forward(self, a, b):
        order = b.sum(1).argsort()
        return self.f(a[order])[order.argsort()]


class TimeOnTheLeft(Concatenated):
    def forward(self, a, b):
        both = torch.stack([a, b])  # (time, rows, width), merged with time first
        return self.f(both.flatten(0, 1)).unflatten(0, (2, -1)).mean(0)


class AcrossExamples(Concatenated):
    def forward(self, a, b):
        return self.f(a) / self.f(b).std(0)


class Positions(Concatenated):
    """Sees 24 positions where the batch has 24 rows."""

    def forward(self, a, b):
        return a.mean() + self.f(torch.linspace(-1, 1, 24).unsqueeze(1).expand(24, WIDTH))[: len(a)]


@pytest.mark.parametrize("network", [Concatenated, Sorted, TimeOnTheLeft, AcrossExamples])
@pytest.mark.parametrize("options", [{}, {"family": "delta", "init": "ones"}])
def test_rows_out_of_order_are_found(network, options):
    model = sb.rank1(network(), members=4, **options)
    with pytest.raises(ValueError, match="does not keep its rows in order.*[Cc]oncatenate along another axis"):
        model.check(torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH))


class TimeFirstInside(Concatenated):
    """Takes sequences batch first, and turns them round: 24 steps stand where the layers look for 24 rows."""

    def forward(self, a, b):
        return self.f(b.unsqueeze(1).expand(-1, 24, -1).transpose(0, 1)).mean(0) + a.mean()


class TimeFirstGRU(TimeFirstInside):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.GRU(WIDTH, 4, batch_first=True)

    def forward(self, a, b):
        return self.f(b.unsqueeze(1).expand(-1, 24, -1).transpose(0, 1))[0].mean(0) + a.mean()


CONVERSIONS = {
    "rank1": lambda net: sb.rank1(net, members=4),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=4),
    "mean_field": lambda net: sb.mean_field(net, estimator="flipout"),
    "k_tied": sb.k_tied,
    "mc_dropout": sb.mc_dropout,
}


@pytest.mark.parametrize("network", [Positions, TimeFirstInside, TimeFirstGRU])
@pytest.mark.parametrize("method", CONVERSIONS)
def test_a_layer_that_does_not_see_the_batch_is_named_in_the_first_pass(method, network):
    """Before, 24 positions were dealt out to 24 rows, or to 4, without a word: draws mixed in every output."""
    model = CONVERSIONS[method](network())
    for batch, samples in ((6, 1), (6, 4), (24, 1), (3, 2)):
        a, b = torch.randn(2, batch, WIDTH)
        for call in (model, model.predict, model.check):
            with pytest.raises(ValueError, match=r"Layer f got 24 rows.*(convert with another `batch_dim`|row_dim)"):
                call(a, b, **({} if call == model.check else {"samples": samples}))
    assert not model.rows_known


@pytest.mark.parametrize("first", ["a pass that failed", "a prediction", "a check"])
def test_tables_of_positions_are_found_whatever_comes_first(first):
    """Before, a pass that failed, and a prediction's estimate of its memory, ended the search for them."""

    class Located(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places, self.f = nn.Embedding(9, 4), nn.Embedding(8, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.f(self.tokens(x) + self.places(torch.arange(x.shape[1]))).mean(1)

    model = sb.mean_field(Located(), estimator="flipout", init_std=0.5)
    x = torch.randint(9, (4, 8))
    if first == "a prediction":
        assert model.predict(x, samples=2).draws.shape == (2, 4, 3)  # 8 positions, and 8 rows
    elif first == "a pass that failed":
        with pytest.raises(IndexError):
            model(x + 20)
        assert model(x).shape == (1, 4, 3)
    model.check(x)
    assert model.net.places.by_position


@pytest.mark.parametrize(("method", "network"), CASES)
def test_networks_that_keep_their_rows_pass(method, network):
    model, x = build(method, network)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    model.check(x)
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_layer_that_is_called_twice_keeps_its_draw():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(WIDTH, 4)
            self.gru = nn.GRU(WIDTH, 4, batch_first=True)

        def forward(self, x):
            whole, _ = self.gru(x)
            state, steps = None, []
            for t in range(x.shape[1]):
                step, state = self.gru(x[:, t : t + 1], state)
                steps.append(step)
            return {"linear": self.f(x) - self.f(x), "recurrent": whole - torch.cat(steps, 1)}

    model = sb.rank1(Twice(), dropout_rate=0.3)
    outputs = model(torch.randn(BATCH, 5, WIDTH), samples=2)
    assert not outputs["linear"].any()
    torch.testing.assert_close(outputs["recurrent"], torch.zeros_like(outputs["recurrent"]), rtol=0, atol=1e-6)
    once = sb.rank1(nn.Linear(WIDTH, 4), dropout_rate=0.3)
    x = torch.randn(BATCH, WIDTH)
    assert not torch.allclose(once(x), once(x))  # passes still differ


class Kept(nn.Module):
    """Keeps its last activation, as networks that are looked into do."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(WIDTH, 4)

    def forward(self, x):
        self.last = self.f(x)
        return self.last


def test_tensors_with_a_history_do_not_stop_conversion_or_folding():
    net, x = Kept(), torch.randn(BATCH, WIDTH)
    net(x)
    model = sb.rank1(net)
    outputs = model(x, samples=0)
    torch.testing.assert_close(model.member(1)(x), outputs[1])
    assert net.last.requires_grad


def test_pruned_weights_are_left_with_the_reason():
    net = nn.Sequential(prune.l1_unstructured(nn.Linear(WIDTH, 2), "weight", 0.5), nn.Linear(2, 9))
    model = sb.rank1(net)
    assert model.summary().converted == ["1"]
    assert "hook" in model.summary().left["0"]
    model.check(torch.randn(BATCH, WIDTH))


def test_arguments_that_the_model_would_shadow_are_named():
    class Noisy(Kept):
        def forward(self, x, noise=0.0):
            return self.f(x) + noise

    with pytest.warns(UserWarning, match="arguments named noise.*by position"):
        sb.rank1(Noisy())


class Remembering(nn.Module):
    """Keeps a number, a buffer and its last state from pass to pass, and fills a cache that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(WIDTH + 4, 4)
        self.passes, self.state = 0, None
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x, cache=None):
        self.passes += 1
        self.steps += 1
        state = x.new_zeros(len(x), 4) if self.state is None else self.state.detach()
        self.state = self.f(torch.cat([x, state], 1))
        if cache is not None:
            cache.kept.append(self.state)
        return self.state


class Cache:
    """What a network fills in its forward, as Hugging Face's caches of keys and values."""

    def __init__(self) -> None:
        self.kept: list = []


@pytest.mark.parametrize("method", CONVERSIONS)
def test_trying_the_network_leaves_what_it_remembers_and_fills(method):
    """Before, the first pass met the states, of one and of two rows, of passes that had tried the network."""
    model, x, cache = CONVERSIONS[method](Remembering()), torch.randn(BATCH, WIDTH), Cache()
    first, second = model(x, cache), model(x, cache=cache)
    assert model.rows_known
    assert model.net.passes == model.net.steps == len(cache.kept) == 2
    assert torch.equal(cache.kept[0], first.flatten(0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("method", CONVERSIONS)
def test_hooks_do_not_hear_the_passes_that_try_the_network(method):
    model, heard = CONVERSIONS[method](Concatenated()), []
    model.net.f.register_forward_hook(lambda module, inputs, output: heard.append(len(output)))
    model(torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH))
    assert heard == [2 * BATCH * model.members]


@pytest.mark.parametrize("method", CONVERSIONS)
def test_a_network_that_cannot_be_copied_answers(method):
    model, x = CONVERSIONS[method](nn.Sequential(nn.Linear(WIDTH, 4))).eval(), torch.randn(BATCH, WIDTH)
    model.net.writer = threading.Lock()
    first, again = (model(x, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, again)
    assert model.predict(x, samples=2, likelihood="categorical").probs.shape == (BATCH, 4)


def test_time_first_inside_is_found_whatever_the_network_returns_beside():
    """Before, states that it returns time first ended the search: with as many rows as steps, draws were mixed."""

    class Transposed(Concatenated):
        def forward(self, x):
            states = self.f(x.transpose(0, 1))
            return states.mean(0), states

    model = sb.mean_field(Transposed(), estimator="flipout")
    for batch, samples in ((12, 2), (24, 1), (5, 1)):
        with pytest.raises(ValueError, match="Layer f got 24 rows"):
            model(torch.randn(batch, 24, WIDTH), samples=samples)


class Picking(nn.Module):
    """Calls a layer for the tokens alone that are masked, of which the first example has none."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x):
        h, masked = self.f(x), x[..., 0] > 0
        return torch.zeros(*x.shape[:2], 4).masked_scatter(masked.unsqueeze(-1), self.head(h[masked]))


@pytest.mark.parametrize("method", CONVERSIONS)
def test_a_layer_that_sees_nothing_of_the_first_example_is_not_refused(method):
    model, x = CONVERSIONS[method](Picking()), torch.rand(4, 3, WIDTH)
    x[[0, 0, 0, 1, 1, 2, 2, 3], [0, 1, 2, 0, 1, 0, 1, 0], 0] = -1  # leaves 0, 1, 1 and 2: as many as there are rows
    assert model(x, samples=2).shape == (2 * model.members, 4, 3, 4)
    assert model.predict(x, samples=2, likelihood="gaussian").mean.shape == (4, 3, 4)


def test_the_layer_that_is_named_comes_with_the_rows_that_it_got():
    """Its first call had the batch, of which the message spoke before."""

    class Prototypes(Concatenated):
        def forward(self, x):
            return torch.cdist(self.f(x), self.f(torch.ones(24, WIDTH)))

    with pytest.raises(ValueError, match="Layer f got 24 rows"):
        sb.mean_field(Prototypes(), estimator="flipout")(torch.randn(BATCH, WIDTH))


def test_a_network_that_is_random_itself_is_not_accused_of_mixing_rows():
    class Jittered(Concatenated):
        def forward(self, x):
            return torch.nn.functional.dropout(self.f(x))  # whatever the mode

    model = sb.rank1(Jittered(), members=2)
    with pytest.raises(ValueError, match="random numbers of its own.*training=self.training"):
        model.check(torch.randn(BATCH, WIDTH))


def test_an_autocast_around_the_forward_ends_with_it():
    """Before, the context that Accelerate puts around ``model.forward`` was entered twice and stayed on for good."""
    model = sb.rank1(nn.Linear(6, 3), members=2)
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    model(torch.randn(4, 6))
    assert not torch.is_autocast_enabled("cpu")
