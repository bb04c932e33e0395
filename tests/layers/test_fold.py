"""A folded layer is the plain torch layer of one draw."""

import copy

import pytest
import torch
from layer_oracle import DTYPES, FACTORS, MEMBERS, assert_equal, factors_of, fold_all
from torch import nn

from slimbayes import layers
from slimbayes.layers import GaussianEmbedding, MemberNorm

SAMPLES, BATCH = 2, 3

#: The torch class, its arguments, and the shapes of its inputs without and with rows ("B").
CASES = {
    "Linear": ("Linear", (5, 7), {}, [("B", 4, 5)]),
    "Linear_no_bias": ("Linear", (5, 7), {"bias": False}, [("B", 5)]),
    "Conv1d": ("Conv1d", (4, 6, 3), {"stride": 2, "groups": 2}, [("B", 4, 9)]),
    "Conv2d": ("Conv2d", (4, 6, (3, 2)), {"padding": "valid", "dilation": 2}, [("B", 4, 7, 5)]),
    "Conv2d_circular": ("Conv2d", (4, 6, 3), {"padding": 1, "padding_mode": "circular"}, [("B", 4, 6, 5)]),
    "Conv3d_replicate": (
        "Conv3d",
        (4, 2, 2),
        {"padding": "same", "padding_mode": "replicate", "groups": 2},
        [("B", 4, 3, 3, 3)],
    ),
    "RNN": ("RNN", (3, 4), {"nonlinearity": "relu"}, [(5, "B", 3)]),
    "GRU": ("GRU", (3, 4), {"num_layers": 2, "bidirectional": True, "batch_first": True}, [("B", 5, 3)]),
    "LSTM": ("LSTM", (3, 4), {"num_layers": 2, "proj_size": 2}, [(5, "B", 3)]),
    "Attention": ("MultiheadAttention", (8, 2), {}, [(3, "B", 8), (5, "B", 8), (5, "B", 8)]),
    "Attention_kdim": (
        "MultiheadAttention",
        (8, 2),
        {"kdim": 3, "vdim": 5, "batch_first": True, "add_bias_kv": True},
        [("B", 3, 8), ("B", 5, 3), ("B", 5, 5)],
    ),
}
#: Layers whose border sees zeros that an additive input factor does not reach.
BORDERED = {
    "Conv1d_padded": ("Conv1d", (4, 6, 3), {"padding": 1}, [("B", 4, 9)]),
    "Conv2d_same": ("Conv2d", (4, 6, 3), {"padding": "same"}, [("B", 4, 6, 5)]),
    "ConvTranspose1d": ("ConvTranspose1d", (4, 6, 3), {"stride": 2}, [("B", 4, 5)]),
    "ConvTranspose2d": ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "groups": 2}, [("B", 4, 3, 4)]),
    "ConvTranspose3d": ("ConvTranspose3d", (2, 3, 2), {"bias": False}, [("B", 2, 2, 3, 2)]),
}
OPTIONS = {
    "both": {},
    "input": {"factors": "input"},
    "output": {"factors": "output"},
    "rank_2": {"rank": 2},
    "shared_bias": {"member_bias": False},
    "clip": {"clip": 0.9},
    "point": {"family": "delta"},
    "log_normal": {"family": "log_normal"},
}
ADDITIVE = {
    "both": {"perturbation": "additive"},
    "input": {"perturbation": "additive", "factors": "input"},
    "output": {"perturbation": "additive", "factors": "output"},
}


def build(kind, args, kwargs, dtype, **options):
    layer = getattr(layers, f"Rank1{kind}")(*args, **kwargs, dtype=dtype, **{**FACTORS, **options}).eval()
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return layer


def first(output):
    return output[0] if isinstance(output, tuple) else output


def assert_folds(layer, shapes, dtype):
    """Fold every member at its location and at each of its held draws, and compare outputs."""
    axis = shapes[0].index("B")
    x = [torch.randn([BATCH if n == "B" else n for n in shape], dtype=dtype) for shape in shapes]
    draw = {name: factor.hold(MEMBERS, SAMPLES, None) for name, factor in factors_of(layer).items()}

    def tiled(copies):
        return [torch.cat([one] * copies, axis) for one in x]

    layer.sampling.samples = 0
    located = first(layer(*tiled(MEMBERS))).chunk(MEMBERS, axis)
    layer.sampling.held = draw
    drawn = first(layer(*tiled(MEMBERS * SAMPLES))).chunk(MEMBERS * SAMPLES, axis)
    layer.sampling.held = None

    def outcome(pick, member):
        plain = fold_all(copy.deepcopy(layer), pick, member)
        return first(plain(*x))

    for member in range(MEMBERS):
        assert_equal(outcome(lambda part, k=member: part.at_location(k), member), located[member])
        for sample in range(SAMPLES):
            row = member * SAMPLES + sample
            assert_equal(outcome(lambda part, row=row: draw[part.name][row], member), drawn[row])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("kind", "args", "kwargs", "shapes"), (CASES | BORDERED).values(), ids=[*CASES, *BORDERED])
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_folded_layer_equals_its_draw(kind, args, kwargs, shapes, options, dtype):
    assert_folds(build(kind, args, kwargs, dtype, **options), shapes, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", ADDITIVE.values(), ids=ADDITIVE)
@pytest.mark.parametrize(("kind", "args", "kwargs", "shapes"), CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_additive_fold_equals_its_draw(kind, args, kwargs, shapes, options, dtype):
    assert_folds(build(kind, args, kwargs, dtype, **options), shapes, dtype)


@pytest.mark.parametrize(("kind", "args", "kwargs", "shapes"), BORDERED.values(), ids=BORDERED)
def test_additive_output_factor_folds_whatever_the_border(kind, args, kwargs, shapes):
    assert_folds(build(kind, args, kwargs, torch.float64, **ADDITIVE["output"]), shapes, torch.float64)


@pytest.mark.parametrize(("kind", "args", "kwargs", "shapes"), BORDERED.values(), ids=BORDERED)
def test_additive_fold_of_a_zero_border_raises(kind, args, kwargs, shapes):
    layer = build(kind, args, kwargs, torch.float32, **ADDITIVE["both"])
    with pytest.raises(ValueError, match=rf"Rank1{kind} .*additive.*{kind} with its padding.*'multiplicative'"):
        layer.fold(lambda part: part.at_location(0), 0)


@pytest.mark.parametrize(("kind", "args"), [("LSTM", (3, 4)), ("MultiheadAttention", (8, 2))])
def test_additive_fold_without_a_bias_raises(kind, args):
    layer = build(kind, args, {"bias": False}, torch.float32, **ADDITIVE["both"])
    with pytest.raises(ValueError, match=rf"Rank1{kind} .*additive.*no bias.*bias=True"):
        layer.fold(lambda part: part.at_location(0), 0)


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize(("kind", "args", "kwargs", "shapes"), (CASES | BORDERED).values(), ids=[*CASES, *BORDERED])
def test_nothing_is_left_of_the_conversion(kind, args, kwargs, shapes, adopted):
    plain = getattr(nn, kind)(*args, **kwargs)
    cls = getattr(layers, f"Rank1{kind}")
    if adopted:
        layer = cls.adopt(copy.deepcopy(plain), layers.FactorOptions(**FACTORS))
    else:
        layer = cls(*args, **kwargs, **FACTORS)
    layer.name, layer.row_dim = "some.path", 0
    folded = fold_all(layer, lambda part: part.at_location(1), 1)
    assert {name: type(part) for name, part in folded.named_modules()} == {
        name: type(part) for name, part in plain.named_modules()
    }
    assert {name: p.shape for name, p in folded.state_dict().items()} == {
        name: p.shape for name, p in plain.state_dict().items()
    }
    for (name, part), other in zip(folded.named_modules(), plain.modules(), strict=True):
        assert set(part.__dict__) == set(other.__dict__), name
        assert set(part._modules) == set(other._modules), name


def test_folded_embedding_is_the_drawn_table():
    layer = GaussianEmbedding(6, 4, members=MEMBERS, padding_idx=2)
    mean, table = layer.weight.detach().clone(), layer.weight_posterior.hold(MEMBERS, 1, None).detach()
    located, drawn = copy.deepcopy(layer), copy.deepcopy(layer)
    located.fold(lambda part: part.at_location(1), 1)
    drawn.fold(lambda part: table[1], 1)
    plain = nn.Embedding(6, 4, padding_idx=2)
    for folded, expected in ((located, mean), (drawn, table[1])):
        assert type(folded) is nn.Embedding
        assert folded.__dict__.keys() == plain.__dict__.keys()
        assert folded.state_dict().keys() == plain.state_dict().keys()
        assert torch.equal(folded(torch.arange(6)), expected)


def test_folded_norm_is_the_members_own():
    norm = MemberNorm(nn.BatchNorm1d(4), MEMBERS)
    norm(torch.randn(12, 4))
    folded = norm.fold(lambda part: part, 1)
    assert type(folded) is nn.BatchNorm1d
    assert folded is norm.norms[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, ADDITIVE["both"]], ids=["multiplicative", "additive"])
@pytest.mark.parametrize("name", ["Linear", "Conv2d", "GRU", "Attention"])
def test_fold_keeps_half_precision(name, options, dtype):
    kind, args, kwargs, _ = CASES[name]
    layer = build(kind, args, kwargs, dtype, **options)
    draw = {name: factor.hold(MEMBERS, 1, None) for name, factor in factors_of(layer).items()}
    folded = fold_all(layer, lambda part: draw[part.name][1], 1)
    assert {p.dtype for p in folded.parameters()} == {dtype}


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("factors", ["both", "input", "output"])
@pytest.mark.parametrize(("kind", "args", "kwargs", "shapes"), (CASES | BORDERED).values(), ids=[*CASES, *BORDERED])
def test_neutral_factors_leave_the_weights_as_they_were(kind, args, kwargs, shapes, factors, rank):
    plain = getattr(nn, kind)(*args, **kwargs, dtype=torch.float64)
    options = layers.FactorOptions(members=MEMBERS, factors=factors, rank=rank, init="ones")
    layer = getattr(layers, f"Rank1{kind}").adopt(copy.deepcopy(plain), options)
    folded = fold_all(layer, lambda part: part.at_location(1), 1)
    for name, value in plain.state_dict().items():
        assert_equal(folded.state_dict()[name], value)
