"""Nested inputs and outputs, and where their batch is."""

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import slimbayes as sb
from slimbayes import batching

Pair = namedtuple("Pair", "x other")


@dataclasses.dataclass
class Output:
    x: Any
    other: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Tensor
    other: Any = None
    rows: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.x.shape[0])


#: Ways to put one tensor and something else into a nest, and to get the tensor out again.
NESTS = {
    "tensor": (lambda x: x, lambda nest: nest),
    "tuple": (lambda x: (x, None), lambda nest: nest[0]),
    "list": (lambda x: ["text", [x]], lambda nest: nest[1][0]),
    "named tuple": (lambda x: Pair(x, 3), lambda nest: nest.x),
    "dict": (lambda x: {"x": x, "flag": True}, lambda nest: nest["x"]),
    "ordered dict": (lambda x: OrderedDict(x=x), lambda nest: nest["x"]),
    "default dict": (lambda x: defaultdict(list, x=x), lambda nest: nest["x"]),
    "user dict": (lambda x: UserDict(x=x), lambda nest: nest["x"]),
    "read-only mapping": (lambda x: MappingProxyType({"x": x}), lambda nest: nest["x"]),
    "dataclass": (lambda x: Output({"deep": x}), lambda nest: nest.x["deep"]),
    "frozen dataclass": (lambda x: Frozen(x, "text"), lambda nest: nest.x),
    "result of torch": (lambda x: torch.max(x, -1), lambda nest: nest.values),
}


class Opens(nn.Module):
    """A network that takes its input out of a nest and puts its output into one."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)
        self.kind = kind

    def forward(self, nest: Any, **kwargs: Any) -> Any:
        put, get = NESTS[self.kind]
        x = nest if self.kind == "result of torch" else get(nest)
        return put(self.layer(x))


@pytest.mark.parametrize("kind", NESTS)
def test_nests_go_in_and_come_out_alike(kind: str) -> None:
    put, get = NESTS[kind]
    model = sb.rank1(Opens(kind), members=2)
    x = torch.randn(5, 2)
    given = x if kind == "result of torch" else put(x)
    outputs = model(given, samples=0)
    assert type(outputs) is type(put(x))
    for k in range(2):
        plain = model.member(k)(given)
        torch.testing.assert_close(get(outputs)[k], get(plain), rtol=1e-5, atol=1e-6)
    if isinstance(outputs, defaultdict):
        assert outputs.default_factory is list


@pytest.mark.parametrize("kind", NESTS)
def test_a_nest_is_left_as_it_was(kind: str) -> None:
    put, get = NESTS[kind]
    x = torch.randn(4, 2)
    nest = put(x)
    doubled = batching.map_leaves(lambda leaf: 2 * leaf, nest)
    torch.testing.assert_close(get(doubled).double(), 2 * get(nest).double(), rtol=0, atol=0)
    torch.testing.assert_close(get(nest), get(put(x)), rtol=0, atol=0)


def test_fields_that_a_dataclass_makes_itself_are_made_anew() -> None:
    grown = batching.map_leaves(lambda leaf: leaf.repeat(3, 1), Frozen(torch.zeros(2, 2)))
    assert grown.rows == 6


def test_what_is_no_tensor_passes_through() -> None:
    odd = object()
    nest = {"a": None, "b": 3, "c": "text", "d": odd, "e": torch.Size([1, 2])}
    assert batching.map_leaves(lambda leaf: leaf + 1, nest) == nest
    assert list(batching.tensors(nest)) == []


class Attends(nn.Module):
    """Mixes positions by a mask that has no batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x, mask=None, temperature=None):
        y = self.layer(x if mask is None else torch.einsum("ij,bjc->bic", mask, x))
        return y if temperature is None else y / temperature


def test_inputs_without_a_batch_are_shared() -> None:
    model, x, mask = sb.rank1(Attends(), members=2), torch.randn(3, 4, 2), torch.randn(4, 4)
    outputs = model(x, mask, temperature=torch.tensor(2.0), samples=0)
    for k in range(2):
        torch.testing.assert_close(outputs[k], model.member(k)(x, mask, 2.0), rtol=1e-5, atol=1e-6)


def test_batch_axis_settles_doubts() -> None:
    """A mask with as many positions as there are examples looks like a batch."""
    model, x, mask = sb.rank1(Attends(), members=2), torch.randn(4, 4, 2), torch.randn(4, 4)
    outputs = model(x, mask=sb.BatchAxis(mask, dim=None), samples=0)
    for k in range(2):
        torch.testing.assert_close(outputs[k], model.member(k)(x, mask), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [2, -1])
def test_batch_axis_may_be_any_axis(dim: int) -> None:
    class BatchLast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 3)

        def forward(self, x):
            return self.layer(x.permute(2, 0, 1))

    model, x = sb.rank1(BatchLast(), members=2), torch.randn(4, 2, 5)
    outputs = model(sb.BatchAxis(x, dim), samples=0)
    assert outputs.shape == (2, 5, 4, 3)
    for k in range(2):
        torch.testing.assert_close(outputs[k], model.member(k)(x), rtol=1e-5, atol=1e-6)


class SequenceFirst(nn.Module):
    """Time first; returns all steps, and the last one, whose batch axis is the first."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(2, 3)

    def forward(self, x, h=None):
        steps, h = self.rnn(x, h)
        return steps, steps[-1], h


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize(("time", "size"), [(4, 5), (5, 5), (7, 2)])
def test_batch_on_the_second_axis(time: int, size: int, state: bool) -> None:
    model = sb.rank1(SequenceFirst(), members=2, batch_dim=1)
    x = torch.randn(time, size, 2)
    extra = (torch.randn(1, size, 3),) if state else ()
    steps, last, h = model(x, *extra, samples=0)
    assert (steps.shape, last.shape, h.shape) == ((2, time, size, 3), (2, size, 3), (2, 1, size, 3))
    for k in range(2):
        for found, expected in zip((steps[k], last[k], h[k]), model.member(k)(x, *extra), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


class Packs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(2, 3, batch_first=True)

    def forward(self, packed):
        output, (h, _) = self.rnn(packed)
        return {"steps": pad_packed_sequence(output, batch_first=True)[0], "last": h[-1]}


@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_packed_sequences_are_repeated(enforce_sorted: bool) -> None:
    lengths = [5, 3, 1] if enforce_sorted else [1, 5, 3]
    packed = pack_padded_sequence(torch.randn(3, 5, 2), lengths, batch_first=True, enforce_sorted=enforce_sorted)
    model = sb.rank1(Packs(), members=2)
    outputs = model(packed, samples=0)
    for k in range(2):
        plain = model.member(k)(packed)
        for name in ("steps", "last"):
            torch.testing.assert_close(outputs[name][k], plain[name], rtol=1e-5, atol=1e-6)


def test_scalars_among_the_outputs_stay() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 3)

        def forward(self, x):
            y = self.layer(x)
            return y, y.square().mean()

    model = sb.rank1(WithLoss(), members=2)
    y, loss = model(torch.randn(4, 2), samples=0)
    torch.testing.assert_close(loss, y.square().mean())


@pytest.mark.parametrize("inputs", [(torch.zeros(5, 6, 2),), (torch.zeros(5, 6), {"lengths": torch.zeros(6)})])
def test_logits_as_many_as_rows_have_their_rows_in_front(inputs: Any) -> None:
    """No input is six steps long, so that an output of shape (6, 6) cannot be (time, rows)."""
    logits = torch.arange(36.0).view(6, 6)
    assert torch.equal(batching.split_draws(logits, 2, 6, 1, inputs), logits.view(2, 3, 6))
    assert torch.equal(batching.collect(logits, 2, 1, 6, 1, inputs=inputs)[0], logits[[0, 3, 1, 4, 2, 5]])
    with pytest.raises(ValueError, match=r"batch axis.*\(6, 6\)"):
        batching.split_draws(logits, 2, 6, 1, (torch.zeros(6, 6, 2),))


# ---------------------------------------------------------------------- dealing


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("members", [1, 3, 4])
def test_over_all_turns_every_member_meets_every_example_once(size: int, members: int) -> None:
    met = torch.zeros(members, size)
    for first in range(members):
        hands = batching.deal(torch.arange(size), 0, members, first).view(members, -1)
        rows = torch.arange(members).unsqueeze(1).expand_as(hands)
        # Of what a member holds, `collect` keeps one answer to each example; ask it which.
        member_of = batching.collect(rows.flatten(), members, 1, size, 0, first)[0]
        example_of = batching.collect(hands.flatten(), members, 1, size, 0, first)[0]
        assert example_of.tolist() == list(range(size))
        assert member_of.tolist() == [(first + b) % members for b in range(size)]
        met[member_of, example_of] += 1
    assert (met == 1).all()


@pytest.mark.parametrize(("size", "members", "samples"), [(6, 3, 1), (7, 3, 2), (2, 4, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_answers_come_back_in_the_order_of_the_batch(size: int, members: int, samples: int, axis: int) -> None:
    """A turn that is a tensor, as in compiled code, deals as the number does; rows of a member are sample by sample."""
    for first in range(members):
        x = torch.arange(float(size)).unsqueeze(1 - axis).expand(*((size, 9) if axis == 0 else (9, size)))
        hands = batching.deal(x, axis, members, first)
        assert torch.equal(batching.deal(x, axis, members, torch.tensor([first])), hands)
        each = hands.movedim(axis, 0).unflatten(0, (members, -1))
        rows = torch.cat([each[k] + 100 * k + 10 * j for k in range(members) for j in range(samples)]).movedim(0, axis)
        expected = torch.stack([x + 10 * j for j in range(samples)])
        member = (first + torch.arange(size)) % members
        expected = expected + 100 * (member.unsqueeze(1) if axis == 0 else member)
        for turn in (first, torch.tensor([first])):
            assert torch.equal(batching.collect(rows, members, samples, size, axis, turn), expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # at which torch looks itself
def test_turns_of_tensors_without_values_are_not_kept() -> None:
    model = sb.rank1(nn.Linear(8, 3), members=4, train_on="split").train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert model(torch.randn(8, 8)).shape == (1, 8, 3)
    assert model(torch.randn(8, 8)).isfinite().all()


def test_turns_met_in_inference_mode_serve_in_training() -> None:
    with torch.inference_mode():
        batching.collect(batching.deal(torch.arange(11.0), 0, 5, 3), 5, 1, 11, 0, 3)
    x = torch.arange(11.0).requires_grad_()
    batching.collect(batching.deal(x, 0, 5, 3), 5, 1, 11, 0, 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1] * 11


# ---------------------------------------------------------------------- errors


class Returns(nn.Module):
    def __init__(self, f) -> None:
        super().__init__()
        self.layer, self.f = nn.Linear(2, 3), f

    def forward(self, x):
        return self.f(self.layer(x))


def run(f=lambda y: y, x: Any = None, batch_dim: int = 0) -> Any:
    return sb.rank1(Returns(f), members=2, batch_dim=batch_dim)(torch.randn(4, 2) if x is None else x)


def pack(y: Tensor) -> PackedSequence:
    return pack_padded_sequence(y.unsqueeze(1), [1] * len(y), batch_first=True)


ERRORS = {
    "rank 0": (lambda: run(x=torch.tensor(1.5)), ["batch axis", "rank 0", "1.5", "reshape(1"]),
    "no tensor": (lambda: run(x="text"), ["at least one tensor", "Pass the batch"]),
    "shared tensor only": (lambda: run(x=sb.BatchAxis(torch.zeros(2), None)), ["at least one tensor"]),
    "empty": (lambda: run(x=torch.zeros(0, 2)), ["at least one example", "empty"]),
    "axis out of range": (lambda: sb.BatchAxis(torch.zeros(4, 2), 2), ["`dim`", "(4, 2)", "got 2", "None"]),
    "axis of another size": (
        lambda: run(x=(torch.zeros(4, 2), sb.BatchAxis(torch.zeros(4, 3), 1))),
        ["batch of 4", "axis 1", "(4, 3)", "`dim`"],
    ),
    "output without batch": (lambda: run(lambda y: y.mean(0)), ["8 rows", "axis 0", "(3,)", "batch_dim"]),
    "output transposed": (lambda: run(lambda y: y.T), ["8 rows", "axis 0", "(3, 8)", "batch_dim"]),
    "recurrent state": (
        lambda: sb.rank1(nn.GRU(2, 3, batch_first=True), members=2)(torch.zeros(4, 5, 2)),
        ["8 rows", "axis 0", "(1, 8, 3)", "h.transpose(0, 1)"],
    ),
    "output packed": (lambda: run(pack), ["PackedSequence", "pad_packed_sequence"]),
    "output ambiguous": (lambda: run(lambda y: y[-1] @ y[-1].T, torch.zeros(8, 4, 2), 1), ["both", "(8, 8)"]),
}


@pytest.mark.parametrize("case", ERRORS)
def test_wrong_nests_are_named(case: str) -> None:
    call, words = ERRORS[case]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    for word in words:
        assert word in str(error.value)


def test_as_many_logits_as_rows() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.RNN(2, 3), nn.Linear(3, 4)

        def forward(self, x):
            return self.head(self.rnn(x)[0][-1])

    model, x = sb.rank1(Classifier(), members=4, batch_dim=1), torch.randn(5, 1, 2)
    outputs = model(x, samples=0)
    for k in range(4):
        torch.testing.assert_close(outputs[k], model.member(k)(x), rtol=1e-5, atol=1e-6)
    assert model.predict(torch.randn(5, 3, 2), batch_size=1).probs.shape == (3, 4)
    assert model.predict(x, batch_size=1).batch_dim == 1
