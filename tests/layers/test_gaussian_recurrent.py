"""Recurrences with Gaussian kernels equal plain torch ones, run on one sequence at a time with that row's weights."""

import pytest
import torch
from layer_oracle import TOLERANCES
from torch import nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import slimbayes as sb
from slimbayes import layers

# Said of layers with projections, plain ones too.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

F64 = torch.float64
TIME, ROWS, INPUTS, HIDDEN = 5, 6, 3, 4

NETS = {
    "LSTM": ("LSTM", {}),
    "GRU": ("GRU", {}),
    "RNN_tanh": ("RNN", {}),
    "RNN_relu": ("RNN", {"nonlinearity": "relu"}),
    "LSTM_two_layers_both_ways": ("LSTM", {"num_layers": 2, "bidirectional": True}),
    "GRU_two_layers_both_ways": ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "RNN_two_layers": ("RNN", {"num_layers": 2, "nonlinearity": "relu", "batch_first": True}),
    "LSTM_projected": ("LSTM", {"proj_size": 2}),
    "LSTM_projected_both_ways": ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
    "LSTM_no_bias": ("LSTM", {"bias": False}),
    "GRU_no_bias": ("GRU", {"bias": False, "num_layers": 2}),
}
each_net = pytest.mark.parametrize(("kind", "kwargs"), NETS.values(), ids=NETS)
OPTIONS = {"full": {}, "2-tied": {"k": 2}, "point bias": {"bayesian_bias": False}}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
each_estimator = pytest.mark.parametrize("estimator", ["reparameterization", "flipout", "local"])
each_count = pytest.mark.parametrize("draws", [1, 3])


def build(kind, kwargs, dtype=F64, draws=3, **options):
    """Return a layer that keeps what it draws."""
    layer = getattr(layers, f"Gaussian{kind}")(INPUTS, HIDDEN, **kwargs, dtype=dtype, init_std=0.3, **options)
    return prepare(layer, draws)


def prepare(layer, draws):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    layer.sampling.samples, layer.sampling.drawn = draws, {}
    return layer


def sigma_of(spread):
    return spread.log_scale.exp() if hasattr(spread, "log_scale") else spread.log_v.exp() @ spread.log_u.exp().T


def row_parameters(layer, row, rows):
    """Return the plain layer's parameters for one row, with gradients to means and standard deviations."""
    drawn, parameters = layer.sampling.drawn, {}

    def of_row(key):
        return drawn[key][row * len(drawn[key]) // rows].detach()

    for name in [name for names in layer._all_weights for name in names]:
        mean, key = getattr(layer, name), f"posteriors.{name}"
        if name not in layer.posteriors:
            parameters[name] = mean
            continue
        sigma = sigma_of(layer.posteriors[name].spread)
        if f"{key}/values" in drawn:
            epsilon = (of_row(f"{key}/values") - mean.detach()) / sigma.detach()
        else:
            epsilon = of_row(f"{key}/delta") / sigma.detach()
            # A bias has the output signs of its kernel.
            r = of_row(f"{key.replace('bias', 'weight')}/r")
            epsilon = epsilon * (r if name.startswith("bias") else torch.outer(r, of_row(f"{key}/s")))
        parameters[name] = mean + sigma * epsilon
    return parameters


def state_row(state, row):
    if state is None:
        return None
    return tuple(part[:, row : row + 1] for part in state) if isinstance(state, tuple) else state[:, row : row + 1]


def one_by_one(layer, kind, kwargs, sequences, hx=None):
    """Run the plain layer on each of ``(time, features)`` sequences; return outputs and final states."""
    plain = getattr(nn, kind)(INPUTS, HIDDEN, **{**kwargs, "batch_first": False}, dtype=sequences[0].dtype)
    outputs, states = [], []
    for row, sequence in enumerate(sequences):
        parameters = row_parameters(layer, row, len(sequences))
        output, state = functional_call(plain, parameters, (sequence.unsqueeze(1), state_row(hx, row)))
        outputs.append(output.squeeze(1))
        states.append(state if isinstance(state, tuple) else (state,))
    return outputs, [torch.cat(parts, 1) for parts in zip(*states, strict=True)]


def assert_same(layer, kind, kwargs, dtype, hx=None, gradients=False):
    batch_first = kwargs.get("batch_first", False)
    x = torch.randn(TIME, ROWS, INPUTS, dtype=dtype, requires_grad=True)
    output, state = layer(x.transpose(0, 1) if batch_first else x, hx)
    output = output.transpose(0, 1) if batch_first else output
    sequences = list(x.unbind(1))
    expected, states = one_by_one(layer, kind, kwargs, sequences, hx)
    expected = torch.stack(expected, 1)
    error = TOLERANCES[dtype]
    torch.testing.assert_close(output, expected, rtol=error, atol=error)
    state = state if isinstance(state, tuple) else (state,)
    for part, other in zip(state, states, strict=True):
        torch.testing.assert_close(part, other, rtol=error, atol=error)
    if gradients:
        cotangent = torch.randn_like(output)
        wanted = (x, *layer.parameters())
        for ours, theirs in zip(
            torch.autograd.grad(output, wanted, cotangent),
            torch.autograd.grad(expected, wanted, cotangent),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@each_net
@each_estimator
@each_count
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_each_row_is_a_plain_recurrence(kind, kwargs, estimator, draws, dtype):
    assert_same(build(kind, kwargs, dtype, draws, estimator=estimator), kind, kwargs, dtype)


@pytest.mark.parametrize("name", ["LSTM_projected_both_ways", "GRU_two_layers_both_ways", "RNN_relu", "LSTM_no_bias"])
@each_option
@each_estimator
@each_count
def test_gradients_of_means_and_standard_deviations(name, options, estimator, draws):
    kind, kwargs = NETS[name]
    layer = build(kind, kwargs, draws=draws, estimator=estimator, **options)
    assert_same(layer, kind, kwargs, F64, gradients=True)


@each_net
@each_estimator
@each_count
def test_what_is_drawn(kind, kwargs, estimator, draws):
    """One kernel for each draw; with Flipout one perturbation for each draw and signs for each row."""
    layer = build(kind, kwargs, draws=draws, estimator=estimator)
    x = torch.randn(ROWS, TIME, INPUTS, dtype=F64)
    layer(x if kwargs.get("batch_first") else x.transpose(0, 1))
    plain = getattr(nn, kind)(INPUTS, HIDDEN, **kwargs)
    assert list(layer.posteriors) == [name for name, _ in plain.named_parameters()]
    sizes = {}
    for name, parameter in plain.named_parameters():
        key = f"posteriors.{name}"
        if estimator == "reparameterization":
            sizes[f"{key}/values"] = (draws, *parameter.shape)
        else:
            sizes[f"{key}/delta"] = (draws, *parameter.shape)
            if parameter.dim() == 2:
                sizes[f"{key}/r"], sizes[f"{key}/s"] = (ROWS, parameter.shape[0]), (ROWS, parameter.shape[1])
    assert {key: tuple(value.shape) for key, value in layer.sampling.drawn.items()} == sizes


@each_estimator
@each_count
@pytest.mark.parametrize("name", ["LSTM_projected_both_ways", "GRU_two_layers_both_ways", "RNN_relu"])
def test_initial_states(name, estimator, draws):
    kind, kwargs = NETS[name]
    layer = build(kind, kwargs, draws=draws, estimator=estimator)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    hx = torch.randn(count, ROWS, layer.proj_size or HIDDEN, dtype=F64)
    if kind == "LSTM":
        hx = (hx, torch.randn(count, ROWS, HIDDEN, dtype=F64))
    assert_same(layer, kind, kwargs, F64, hx)


@each_estimator
@each_count
@pytest.mark.parametrize("name", ["LSTM_projected_both_ways", "LSTM_two_layers_both_ways", "GRU_two_layers_both_ways"])
def test_packed_sequences(name, estimator, draws):
    kind, kwargs = NETS[name]
    layer = build(kind, kwargs, draws=draws, estimator=estimator)
    lengths = [3, 5, 1, 5, 2, 4]
    sequences = [torch.randn(length, INPUTS, dtype=F64) for length in lengths]
    padded = nn.utils.rnn.pad_sequence(sequences)
    output, state = layer(pack_padded_sequence(padded, torch.tensor(lengths), enforce_sorted=False))
    expected, states = one_by_one(layer, kind, kwargs, sequences)
    unpacked, returned = pad_packed_sequence(output)
    assert returned.tolist() == lengths
    torch.testing.assert_close(unpacked, nn.utils.rnn.pad_sequence(expected), rtol=1e-10, atol=1e-10)
    for part, other in zip(state if isinstance(state, tuple) else (state,), states, strict=True):
        torch.testing.assert_close(part, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("estimator", ["flipout", "local"])
def test_rows_merged_into_the_batch_keep_the_signs_of_their_row(estimator):
    layer = build("LSTM", {}, estimator=estimator)
    layer.sampling.rows = ROWS // 2
    assert_same(layer, "LSTM", {}, F64)
    assert len(layer.sampling.drawn["posteriors.weight_hh_l0/s"]) == ROWS // 2


@pytest.mark.parametrize("estimator", ["reparameterization", "flipout"])
def test_one_draw_for_the_batch(estimator):
    layer = build("GRU", {}, estimator=estimator, sample_per="batch")
    assert_same(layer, "GRU", {}, F64)
    assert all(len(value) == 1 for name, value in layer.sampling.drawn.items() if name[-1] not in "rs")


@each_net
@each_estimator
def test_location_and_held_kernels(kind, kwargs, estimator):
    layer = build(kind, kwargs, estimator=estimator)
    plain = getattr(nn, kind)(INPUTS, HIDDEN, **kwargs, dtype=F64)
    x = torch.randn(ROWS, ROWS, INPUTS, dtype=F64)  # as many steps as rows, to confuse them
    axis = 0 if kwargs.get("batch_first") else 1
    names = [name for name, _ in plain.named_parameters()]
    layer.sampling.samples = 0
    expected = functional_call(plain, {name: getattr(layer, name) for name in names}, (x,))[0]
    torch.testing.assert_close(layer(x)[0], expected, rtol=1e-10, atol=1e-10)
    layer.sampling.held = {f"posteriors.{name}": posterior.draw(3) for name, posterior in layer.posteriors.items()}
    expected = [
        functional_call(plain, {name: layer.sampling.held[f"posteriors.{name}"][i] for name in names}, (rows,))[0]
        for i, rows in enumerate(x.chunk(3, axis))
    ]
    torch.testing.assert_close(layer(x)[0], torch.cat(expected, axis), rtol=1e-10, atol=1e-10)


@each_estimator
@each_count
def test_a_bias_that_is_a_buffer_is_no_parameter(estimator, draws):
    """Keras has one bias a gate; torch's second one is then a buffer of zeros."""
    plain = sb.nets.SequenceClassifier(vocabulary=7, embedding=INPUTS, hidden=HIDDEN).lstm.double()
    options = layers.GaussianOptions(estimator=estimator, init_std=0.3)
    layer = prepare(layers.GaussianLSTM.adopt(plain, options), draws)
    assert "bias_hh_l0" not in layer.posteriors
    layer.bias_hh_l0.fill_(0.1)
    assert_same(layer, "LSTM", {"batch_first": True}, F64, gradients=True)


@each_estimator
@each_count
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_dropout_between_layers_in_training_alone(kind, estimator, draws):
    """At a rate of one nothing reaches the second layer, which is deterministic."""
    kwargs = {"num_layers": 2, "dropout": 1.0}
    layer = build(kind, kwargs, draws=draws, estimator=estimator)
    assert_same(layer.train(), kind, kwargs, F64)
    layer.sampling.drawn = {}
    assert_same(layer.eval(), kind, {"num_layers": 2}, F64)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_common_kernel_runs_in_torchs_fused_one(kind, monkeypatch):
    """The loop over time is for rows that differ: with one draw it is not taken."""
    layer = build(kind, {}, draws=1)
    monkeypatch.setattr(layer, "_loop", None)
    layer(torch.randn(TIME, ROWS, INPUTS, dtype=F64))
    layer.sampling.samples = 0
    layer(torch.randn(TIME, ROWS, INPUTS, dtype=F64))
    layer.sampling.samples, layer.sampling.drawn = 2, {}
    with pytest.raises(TypeError):
        layer(torch.randn(TIME, ROWS, INPUTS, dtype=F64))


@each_estimator
def test_rows_that_cannot_be_dealt_to_the_draws(estimator):
    layer = build("LSTM", {}, estimator=estimator)
    with pytest.raises(ValueError, match=r"GaussianLSTM got 4 rows.*3 draws.*row_dim"):
        layer(torch.randn(TIME, 4, INPUTS, dtype=F64))
