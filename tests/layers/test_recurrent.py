"""Recurrent layers equal plain torch ones with materialised kernels, run on one sequence at a time."""

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
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from slimbayes import layers

# Said of the plain layer that is the oracle.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

TIME, ROWS, INPUTS, HIDDEN = 5, 4 * MEMBERS, 3, 4

NETS = {
    "LSTM": ("LSTM", {}),
    "GRU": ("GRU", {}),
    "RNN_tanh": ("RNN", {}),
    "RNN_relu": ("RNN", {"nonlinearity": "relu"}),
    "LSTM_two_layers_both_ways": ("LSTM", {"num_layers": 2, "bidirectional": True}),
    "GRU_two_layers_both_ways": ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "RNN_both_ways": ("RNN", {"bidirectional": True}),
    "RNN_two_layers": ("RNN", {"num_layers": 2, "nonlinearity": "relu", "batch_first": True}),
    "LSTM_batch_first": ("LSTM", {"batch_first": True}),
    "LSTM_projected": ("LSTM", {"proj_size": 2}),
    "LSTM_projected_both_ways": ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
    "LSTM_no_bias": ("LSTM", {"bias": False}),
    "GRU_no_bias": ("GRU", {"bias": False, "num_layers": 2}),
    "RNN_no_bias": ("RNN", {"bias": False}),
}
OPTIONS = {
    "input": {"factors": "input"},
    "output": {"factors": "output"},
    "rank_3": {"rank": 3},
    "rank_2_input": {"rank": 2, "factors": "input"},
    "additive": {"perturbation": "additive"},
    "additive_output": {"perturbation": "additive", "factors": "output"},
    "shared_bias": {"member_bias": False},
    "clip": {"clip": 0.9},
    "one_member": {"members": 1},
    "point": {"family": "delta"},
}
CASES = pytest.mark.parametrize(("kind", "kwargs"), NETS.values(), ids=NETS)
KINDS = pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])


def build(kind, kwargs, dtype, **options):
    """Return a rank-1 layer whose members' biases differ."""
    layer = getattr(layers, f"Rank1{kind}")(INPUTS, HIDDEN, **kwargs, dtype=dtype, **{**FACTORS, **options})
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            nn.init.normal_(parameter)
    return layer


def row_parameters(layer, values, row, rows):
    """Return the parameters of the plain layer for one row; additive factors turn into biases."""
    parameters = {}
    for name, weight in layer.named_parameters():
        if not name.startswith("weight"):
            continue
        kernel = name.removeprefix("weight_")
        if kernel.startswith("hr"):
            parameters[name] = weight
            continue
        s, r = (row_of(values, f"factors.{kernel}_{side}", row) for side in ("input", "output"))
        bias = of_member(getattr(layer, f"bias_{kernel}", None), row, rows, layer.members)
        if layer.additive:
            parameters[name], parameters[f"bias_{kernel}"] = weight, shifted_bias(weight, bias, s, r)
        else:
            parameters[name] = materialised(weight, s, r)
            if bias is not None:
                parameters[f"bias_{kernel}"] = bias
    return parameters


def state_rows(state, row):
    """Return one row of an initial state, which has its rows on axis 1."""
    if state is None:
        return None
    return tuple(part[:, row : row + 1] for part in state) if isinstance(state, tuple) else state[:, row : row + 1]


def loop(layer, kind, kwargs, sequences, values, hx=None):
    """Return the outputs (a list of ``(time, features)``) and final states, one sequence at a time."""
    kwargs = {**kwargs, "bias": True} if layer.additive else kwargs
    plain = getattr(nn, kind)(INPUTS, HIDDEN, **{**kwargs, "batch_first": False, "dropout": 0.0})
    plain = plain.to(sequences[0].dtype)
    outputs, states = [], []
    for i, sequence in enumerate(sequences):
        parameters = row_parameters(layer, values, i, len(sequences))
        output, state = functional_call(plain, parameters, (sequence.unsqueeze(1), state_rows(hx, i)))
        outputs.append(output.squeeze(1))
        states.append(state if isinstance(state, tuple) else (state,))
    return outputs, [torch.cat(part, 1) for part in zip(*states, strict=True)]


def assert_states_equal(state, expected):
    state = state if isinstance(state, tuple) else (state,)
    assert len(state) == len(expected)
    for part, other in zip(state, expected, strict=True):
        assert_equal(part, other)


def initial_state(layer, rows, dtype):
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    hidden = torch.randn(count, rows, layer.proj_size or HIDDEN, dtype=dtype)
    return (hidden, torch.randn(count, rows, HIDDEN, dtype=dtype)) if layer.mode == "LSTM" else hidden


def assert_equals_loop(layer, kind, kwargs, noise, dtype, with_state=False):
    """Compare on a batch of sequences of equal length."""
    axis = 0 if layer.batch_first else 1
    x = torch.randn(*((ROWS, TIME) if layer.batch_first else (TIME, ROWS)), INPUTS, dtype=dtype)
    hx = initial_state(layer, ROWS, dtype) if with_state else None
    (output, state), values = forward_and_values(layer, noise, ROWS, x, hx)
    outputs, states = loop(layer, kind, kwargs, x.unbind(axis), values, hx)
    assert_equal(output, torch.stack(outputs, axis))
    assert_states_equal(state, states)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_state", [False, True])
@CASES
def test_layer_equals_loop(kind, kwargs, with_state, dtype):
    assert_equals_loop(build(kind, kwargs, dtype), kind, kwargs, "example", dtype, with_state)


@pytest.mark.parametrize("noise", NOISES)
@KINDS
def test_noise_equals_loop(kind, noise):
    kwargs = {"num_layers": 2, "bidirectional": True}
    assert_equals_loop(build(kind, kwargs, torch.float64), kind, kwargs, noise, torch.float64)


@pytest.mark.parametrize("noise", ["example", "location"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@KINDS
def test_options_equal_loop(kind, options, bias, dtype, noise):
    kwargs = {"bias": bias}
    assert_equals_loop(build(kind, kwargs, dtype, **options), kind, kwargs, noise, dtype)


@CASES
def test_gradients_equal_those_of_the_loop(kind, kwargs):
    layer = build(kind, kwargs, torch.float64)
    axis = 0 if layer.batch_first else 1
    x = torch.randn(*((ROWS, TIME) if layer.batch_first else (TIME, ROWS)), INPUTS, dtype=torch.float64)
    (output, _), values = forward_and_values(layer, "example", ROWS, x)
    cotangent = torch.randn_like(output)
    sources = list(layer.parameters())
    actual = torch.autograd.grad(output, sources, cotangent)
    outputs, _ = loop(layer, kind, kwargs, x.unbind(axis), values)
    expected = torch.autograd.grad(torch.stack(outputs, axis), sources, cotangent)
    for one, other in zip(actual, expected, strict=True):
        assert_equal(one, other)


LENGTHS = {
    "sorted": ([5, 5, 4, 4, 4, 3, 3, 2, 2, 1, 1, 1], True),
    "sorted_not_enforced": ([5, 4, 4, 4, 3, 3, 3, 2, 2, 2, 1, 1], False),
    "unsorted": ([1, 5, 2, 4, 3, 2, 5, 1, 3, 4, 2, 3], False),
    "ties_alone": ([4] * ROWS, False),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize(("lengths", "enforce_sorted"), LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [NETS["LSTM_projected_both_ways"], NETS["GRU_two_layers_both_ways"], NETS["RNN_relu"]],
)
def test_packed_equals_loop(kind, kwargs, lengths, enforce_sorted, with_state, dtype):
    layer = build(kind, kwargs, dtype)
    sequences = [torch.randn(length, INPUTS, dtype=dtype) for length in lengths]
    padded = nn.utils.rnn.pad_sequence(sequences)
    packed = pack_padded_sequence(padded, torch.tensor(lengths), enforce_sorted=enforce_sorted)
    hx = initial_state(layer, ROWS, dtype) if with_state else None
    (output, state), values = forward_and_values(layer, "example", ROWS, packed, hx)
    outputs, states = loop(layer, kind, kwargs, sequences, values, hx)

    assert isinstance(output, PackedSequence)
    assert torch.equal(output.batch_sizes, packed.batch_sizes)
    for mine, given in (
        (output.sorted_indices, packed.sorted_indices),
        (output.unsorted_indices, packed.unsorted_indices),
    ):
        assert mine is given
    answers, found = pad_packed_sequence(output)
    assert found.tolist() == lengths
    assert_equal(answers, nn.utils.rnn.pad_sequence(outputs))
    assert_states_equal(state, states)


@KINDS
def test_dropout_falls_between_layers(kind):
    """With everything dropped, the second layer sees zeros and the first layer's state is untouched."""
    layer = build(kind, {"num_layers": 2, "dropout": 1.0}, torch.float64)
    x = torch.randn(TIME, ROWS, INPUTS, dtype=torch.float64)
    (output, state), values = forward_and_values(layer, "held", ROWS, x)

    first = getattr(nn, kind)(INPUTS, HIDDEN, dtype=torch.float64)
    second = getattr(nn, kind)(HIDDEN, HIDDEN, dtype=torch.float64)
    hidden = state[0] if kind == "LSTM" else state
    for i in range(ROWS):
        parameters = row_parameters(layer, values, i, ROWS)
        lower = {name: p for name, p in parameters.items() if name.endswith("l0")}
        upper = {name.replace("l1", "l0"): p for name, p in parameters.items() if name.endswith("l1")}
        below, _ = functional_call(first, lower, (x[:, i : i + 1],))
        above, _ = functional_call(second, upper, (torch.zeros(TIME, 1, HIDDEN, dtype=torch.float64),))
        assert_equal(output[:, i : i + 1], above)
        assert_equal(hidden[:, i], torch.cat([below[-1], above[-1]]))


@KINDS
def test_dropout_is_off_in_evaluation(kind):
    kwargs = {"num_layers": 2, "dropout": 0.9}
    layer = build(kind, kwargs, torch.float64).eval()
    assert_equals_loop(layer, kind, kwargs, "held", torch.float64)
