"""The oracle of the layer tests: what each row's draw must be, and plain torch layers run on one row at a time."""

import torch
from torch.func import functional_call

from slimbayes.layers import BayesianLayer, Factor

SEED = 11
MEMBERS = 3
#: Draws are to differ visibly from their locations, and locations from one.
FACTORS = {"members": MEMBERS, "dropout_rate": 0.1}
NOISES = ("example", "shared", "location", "held", "merged")
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}
DTYPES = tuple(TOLERANCES)


def assert_equal(actual, expected):
    tolerance = TOLERANCES[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def factors_of(layer):
    """Return the factors by name, in the order in which a forward pass draws them."""
    named = [(name, part) for name, part in layer.named_modules() if isinstance(part, Factor)]
    return dict(sorted(named, key=lambda item: item[0].startswith("out_proj")))


def layer_dtype(layer):
    return next(layer.parameters()).dtype


def set_noise(layer, noise, rows):
    """Ask a layer for a kind of noise; return the number of draws that it makes of each member."""
    sampling, members = layer.sampling, layer.members
    if noise == "shared":
        sampling.noise, sampling.samples = "shared", 2
        return 2
    if noise == "location":
        sampling.samples = 0
        return 1
    if noise == "merged":  # two rows of this layer belong to each row of the model, as windows of an image do
        sampling.rows = rows // 2
    return rows // members // (2 if noise == "merged" else 1)


def values_of_rows(layer, noise, rows):
    """Return, by name, the values that the factors must have for each row after ``manual_seed(SEED)``."""
    each = set_noise(layer, noise, rows)
    torch.manual_seed(SEED)
    values = {}
    for name, factor in factors_of(layer).items():
        loc = factor.loc.unsqueeze(1)
        shape = (factor.loc.shape[0], each, *factor.loc.shape[1:])
        value = loc.expand(shape)
        if noise == "held":
            value = torch.rand(shape, dtype=loc.dtype) + 0.5
        elif noise != "location" and factor.rho is not None:
            scale = torch.log1p(factor.rho.exp()) + 1e-7
            value = loc + scale.unsqueeze(1) * torch.randn(shape, dtype=loc.dtype)
        if factor.clip is not None and noise != "held":
            value = value.clamp(-factor.clip, factor.clip)
        value = value.flatten(0, 1)
        values[name] = value.repeat_interleave(rows // value.shape[0], 0)
    if noise == "held":
        layer.sampling.held = dict(values)
    return values


def forward_and_values(layer, noise, rows, *args, **kwargs):
    """Return the layer's output and the values of its factors for each row."""
    values = values_of_rows(layer, noise, rows)
    torch.manual_seed(SEED)
    return layer(*args, **kwargs), values


def materialised(weight, s, r, groups=1, transposed=False):
    """Return W ∘ sum_j r_j s_j^T (Eq. 1), group by group; s and r are ``([rank,] channels)`` or None."""
    split = weight.chunk(groups)
    inputs, outputs = (0, 1) if transposed else (1, 0)
    some = s if s is not None else r
    rank = 1 if some.dim() == 1 else some.shape[0]
    parts = []
    for g, part in enumerate(split):
        n_in, n_out = part.shape[inputs], part.shape[outputs]
        total = torch.zeros_like(part)
        for j in range(rank):
            s_j = part.new_ones(n_in) if s is None else s.reshape(rank, -1)[j, g * n_in : (g + 1) * n_in]
            r_j = part.new_ones(n_out) if r is None else r.reshape(rank, -1)[j, g * n_out : (g + 1) * n_out]
            outer = torch.outer(s_j, r_j) if transposed else torch.outer(r_j, s_j)
            total = total + part * outer.reshape(*outer.shape, *[1] * (part.dim() - 2))
        parts.append(total)
    return torch.cat(parts)


def shifted_bias(weight, bias, s, r):
    """Return the bias of a dense map under an additive perturbation: W (x + s) + r + b."""
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    return bias + (0 if s is None else weight @ s) + (0 if r is None else r)


def of_member(bias, row, rows, members):
    """Return the bias of a row's member."""
    return bias if bias is None or bias.dim() == 1 else bias[row // (rows // members)]


def row_of(values, name, row):
    return values[name][row] if name in values else None


def loop(layer, plain, x, values, *args, axis=0):
    """Run the plain layer on one row at a time, with that row's weights materialised.

    Args:
        layer: The rank-1 layer, read for its parameters alone.
        plain: A layer of the torch class, built with the same arguments.
        x: The layer's input.
        values: Values of the factors for each row.
        *args: Further arguments of the layer's forward.
        axis: Axis of the rows.
    """
    groups, transposed = getattr(plain, "groups", 1), hasattr(plain, "output_padding") and plain.transposed
    rows, answers = x.shape[axis], []
    for i in range(rows):
        s, r = row_of(values, "input_factor", i), row_of(values, "output_factor", i)
        bias = of_member(layer.bias, i, rows, layer.members)
        row, weight = x.narrow(axis, i, 1), layer.weight
        channels = [1, -1, *[1] * (x.dim() - 2)] if hasattr(plain, "in_channels") else [-1]
        if layer.additive:
            row = row if s is None else row + s.view(channels)
        else:
            weight = materialised(weight, s, r, groups, transposed)
        parameters = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        y = functional_call(plain, parameters, (row, *args))
        answers.append(y + r.view(channels) if layer.additive and r is not None else y)
    return torch.cat(answers, axis)


def fold_all(layer, pick, member):
    """Fold a layer and the Bayesian layers inside it, as ``BayesianModel.member`` does."""
    folded = layer
    for part in [part for part in layer.modules() if isinstance(part, BayesianLayer)]:
        plain = part.fold(pick, member)
        folded = plain if part is layer else folded
    return folded
