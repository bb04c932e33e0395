"""Prediction in chunks: the same numbers as all at once, within a bound on memory."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import slimbayes as sb
from slimbayes import _chunks

MEMBERS = 3


def mlp(**options) -> sb.BayesianModel:
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 4))
    return sb.rank1(net, **{"members": MEMBERS, "dropout_rate": 0.3, **options})


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...]


class Nested(nn.Module):
    """Takes a dict, a mask that all share and a keyword; returns a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, inputs, mask, *, scale):
        hidden = self.first(torch.einsum("ij,bjc->bic", mask, inputs["x"])).tanh()
        return Output(self.second(hidden.mean(1)) * scale, (hidden,))


class Packed(nn.Module):
    """Takes a packed sequence."""

    def __init__(self, pad_to: int | None = None) -> None:
        super().__init__()
        self.rnn, self.pad_to = nn.GRU(2, 3, batch_first=True), pad_to

    def forward(self, packed):
        steps, h = self.rnn(packed)
        return pad_packed_sequence(steps, batch_first=True, total_length=self.pad_to)[0], h[-1]


class SequenceFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.RNN(2, 7), nn.Linear(7, 2)

    def forward(self, x):
        steps = self.rnn(x)[0]
        return self.head(steps), steps[-1]


def sequences() -> Tensor:
    lengths = torch.tensor([1, 5, 3, 2, 5, 4, 1])
    return pack_padded_sequence(torch.randn(7, 5, 2), lengths, batch_first=True, enforce_sorted=False)


#: Network, options, inputs and keyword inputs of seven examples.
CASES = {
    "tensor": (
        lambda: nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4)),
        {},
        lambda: ((torch.randn(7, 2),), {}),
    ),
    # The mask has two positions: as many as a chunk of two has examples.
    "nested": (Nested, {}, lambda: (({"x": torch.randn(7, 2, 2)}, torch.randn(2, 2)), {"scale": torch.randn(7, 1)})),
    # The mask has seven positions: as many as there are examples.
    "declared": (
        Nested,
        {},
        lambda: (({"x": torch.randn(7, 7, 2)}, sb.BatchAxis(torch.randn(7, 7), None)), {"scale": torch.randn(7, 1)}),
    ),
    "packed": (lambda: Packed(5), {}, lambda: ((sequences(),), {})),
    "sequence first": (SequenceFirst, {"batch_dim": 1}, lambda: ((torch.randn(5, 7, 2),), {})),
}


def case(name: str) -> tuple[sb.BayesianModel, tuple, dict]:
    build, options, inputs = CASES[name]
    model = sb.rank1(build(), **{"members": MEMBERS, "dropout_rate": 0.3, **options})
    args, kwargs = inputs()
    return model, args, kwargs


def assert_same(found, expected) -> None:
    found, expected = list(sb.batching.tensors(found)), list(sb.batching.tensors(expected))
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("name", CASES)
def test_chunks_at_the_location_equal_the_whole(name: str, batch_size: int) -> None:
    model, args, kwargs = case(name)
    whole = model.eval()(*args, **kwargs, samples=0)
    assert_same(model.predict(*args, **kwargs, samples=0, batch_size=batch_size).draws, whole)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
@pytest.mark.parametrize("name", CASES)
def test_shared_draws_are_one_function_in_all_chunks(name: str, batch_size: int) -> None:
    model, args, kwargs = case(name)
    generator = torch.Generator().manual_seed(11)
    whole = model.eval()(*args, **kwargs, samples=2, noise="shared", generator=generator)
    chunked = model.predict(*args, **kwargs, samples=2, noise="shared", batch_size=batch_size, seed=11)
    assert_same(chunked.draws, whole)


@pytest.mark.parametrize("max_memory", [1, 500, 2000, 10**6])
@pytest.mark.parametrize("name", CASES)
def test_shared_draws_do_not_depend_on_the_memory(name: str, max_memory: int) -> None:
    model, args, kwargs = case(name)
    generator = torch.Generator().manual_seed(11)
    whole = model.eval()(*args, **kwargs, samples=5, noise="shared", generator=generator)
    bounded = model.predict(*args, **kwargs, samples=5, noise="shared", max_memory=max_memory, seed=11)
    assert_same(bounded.draws, whole)


@pytest.mark.parametrize("noise", ["example", "shared"])
@pytest.mark.parametrize("samples", [1, 4])
def test_chunked_samples_stay_member_major(noise: str, samples: int) -> None:
    """Members that lie far apart: every draw must be near its own member's location."""
    model, x = mlp(dropout_rate=1e-8, init_spread=2.0), torch.randn(5, 2)
    locations = model.predict(x, samples=0).draws
    draws = model.predict(x, samples=samples, noise=noise, max_memory=1).draws
    expected = locations.repeat_interleave(samples, 0)
    torch.testing.assert_close(draws, expected, rtol=0.02, atol=0.02)
    assert (locations[0] - locations[1]).abs().max() > 0.2


def test_samples_of_a_member_differ_between_chunks() -> None:
    model, x = mlp(), torch.randn(5, 2)
    draws = model.predict(x, samples=4, max_memory=1).draws.unflatten(0, (MEMBERS, 4))
    for one in range(4):
        for other in range(one):
            assert (draws[:, one] - draws[:, other]).abs().amin(0).max() > 0


def seen_rows(model: sb.BayesianModel, *args, **kwargs) -> list[int]:
    rows: list[int] = []
    hook = model.net.register_forward_pre_hook(lambda net, inputs: rows.append(inputs[0].shape[0]))
    try:
        model.predict(*args, **kwargs)
    finally:
        hook.remove()
    return rows


@pytest.mark.parametrize("samples", [0, 1, 5])
@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_no_chunk_has_more_rows_than_asked_for(samples: int, batch_size: int) -> None:
    model = mlp()
    rows = seen_rows(model, torch.randn(20, 2), samples=samples, batch_size=batch_size)
    each = MEMBERS * max(samples, 1)
    assert max(rows) == each * min(batch_size, 20)
    assert sum(rows) == each * 20


@pytest.mark.parametrize(
    ("rows_allowed", "samples", "largest"),
    [(600, 5, 600), (60, 5, 60), (59, 5, 45), (15, 5, 15), (14, 5, 12), (7, 5, 6), (1, 5, 3), (7, 0, 6)],
)
def test_the_bound_on_memory_bounds_rows(rows_allowed: int, samples: int, largest: int) -> None:
    """The widest activation has 16 floats, and four of them count for a row: 256 bytes."""
    model = mlp()
    rows = seen_rows(model, torch.randn(40, 2), samples=samples, max_memory=256 * rows_allowed)
    probe, *chunks = rows
    assert probe == MEMBERS
    assert max(chunks) == largest
    assert sum(chunks) == MEMBERS * max(samples, 1) * 40


@pytest.mark.parametrize(("width", "samples"), [(2**13, 1), (2**13, 8), (2**17, 1)])
def test_on_a_cpu_the_cache_bounds_rows_long_before_memory_does(width: int, samples: int) -> None:
    """A layer's output of a chunk is no larger than the cache's share, unless that would be few rows."""
    net = nn.Sequential(nn.Linear(2, width, bias=False), nn.Linear(width, 1, bias=False))
    model = sb.rank1(net, members=MEMBERS, factors="input", include=["0"])
    _, *chunks = seen_rows(model, torch.randn(100, 2), samples=samples)
    output = 4 * width  # bytes of a row in single precision
    assert max(chunks) <= max(_chunks.CACHE // output, _chunks.LEAST_ROWS)
    assert sum(chunks) == MEMBERS * samples * 100
    assert len(chunks) < sum(chunks) / 16  # and no chunk is so small that calls take most of the time


def test_a_seed_decides_everything_and_leaves_the_global_state_alone() -> None:
    model, x = mlp(), torch.randn(5, 2)
    state = torch.get_rng_state()
    once = model.predict(x, samples=2, seed=5).draws
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.predict(x, samples=2, seed=5).draws, once)
    assert torch.equal(model.predict(x, samples=2, generator=torch.Generator().manual_seed(5)).draws, once)
    assert not torch.equal(model.predict(x, samples=2, seed=6).draws, once)


@pytest.mark.parametrize("training", [True, False])
def test_prediction_is_in_evaluation_mode_and_puts_flags_back(training: bool) -> None:
    model, x = mlp(), torch.randn(5, 2)
    model.train(training)
    model.net[2].train(not training)  # a dropout layer that somebody set by hand
    before = {name: module.training for name, module in model.named_modules()}
    first, second = (model.predict(x, samples=0) for _ in range(2))
    assert torch.equal(first.draws, second.draws)
    assert not first.draws.requires_grad
    assert {name: module.training for name, module in model.named_modules()} == before


def test_flags_are_put_back_after_a_failure() -> None:
    model = mlp().train()
    with pytest.raises(ValueError, match="channels"):
        model.predict(torch.randn(5, 3))
    assert all(module.training for module in model.modules())
    assert not model.net._forward_hooks


def test_scalars_are_averaged_by_examples() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x):
            y = self.layer(x)
            return y, y.mean()

    model, x = sb.rank1(WithLoss(), members=2), torch.randn(7, 2)
    y, loss = model.predict(x, samples=0, batch_size=3).draws
    torch.testing.assert_close(loss, y.mean())


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("time", [1, 2, 3, 4])
def test_the_batch_axis_is_told_from_axes_of_a_chunks_length(batch_size: int, time: int) -> None:
    """Steps have time first, the attention and the logit have the batch first; sizes coincide."""

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(4, 2), nn.Linear(4, 1)

        def forward(self, x):
            steps, weights = self.attention(x, x, x)
            return steps, steps[-1], weights, self.head(steps[-1])

    model, x = sb.rank1(Attends(), members=5, batch_dim=1), torch.randn(time, 12, 4)
    assert_same(model.predict(x, samples=0, batch_size=batch_size).draws, model.eval()(x, samples=0))


def test_chunks_of_different_padding_are_refused() -> None:
    model = sb.rank1(Packed(), members=2)
    with pytest.raises(ValueError, match=r"apart from the examples.*`batch_size`.*total_length"):
        model.predict(sequences(), batch_size=1)


X = torch.zeros(4, 2)
ERRORS = {
    "NaN": ({"x": torch.tensor([[0.0, 1.0], [math.nan, math.nan]])}, ["`predict`", "NaN", "2 of them", "(1, 0)"]),
    "batch size 0": ({"x": X, "batch_size": 0}, ["`batch_size`", "got 0"]),
    "batch size 2.5": ({"x": X, "batch_size": 2.5}, ["`batch_size`", "got 2.5"]),
    "memory 0": ({"x": X, "max_memory": 0}, ["`max_memory`", "got 0"]),
    "samples -1": ({"x": X, "samples": -1}, ["`samples`", "got -1", "Use 0"]),
    "noise": ({"x": X, "noise": "shard"}, ["`noise`", "'shard'", "Did you mean 'shared'"]),
    "seed and generator": ({"x": X, "seed": 3, "generator": torch.Generator()}, ["`seed`", "`generator`", "seed=3"]),
    "empty": ({"x": X[:0]}, ["at least one example", "empty"]),
    "empty in chunks": ({"x": X[:0], "batch_size": 2}, ["at least one example", "empty"]),
    "rank 0": ({"x": torch.tensor(2.0)}, ["rank 0", "2.0"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_arguments_are_named(name: str) -> None:
    arguments, words = ERRORS[name]
    options = dict(arguments)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        mlp().predict(options.pop("x"), **options)
    for word in words:
        assert word in str(error.value)


def test_nan_is_found_in_nests() -> None:
    model, _, kwargs = case("nested")
    x = torch.zeros(7, 2, 2)
    x[6, 1, 0] = math.nan
    with pytest.raises(ValueError, match=r"NaN.*\(6, 1, 0\)"):
        model.predict({"x": x}, torch.eye(2), **kwargs)
