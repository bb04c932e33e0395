"""What edward2 and TensorFlow Probability computed, to 1e-5."""

import pytest
import torch
from torch import nn

from slimbayes.divergence import kl_divergence
from slimbayes.families import get_family
from slimbayes.layers import Factor, Rank1Conv1d, Rank1Conv2d, Rank1Linear, Rank1LSTM

MEMBERS = 3
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


class Case:
    """The arrays of one golden case, as tensors."""

    def __init__(self, golden, name):
        self.arrays = {key.removeprefix(f"{name}/"): a for key, a in golden.items() if key.startswith(f"{name}/")}

    def __getitem__(self, key):
        return torch.from_numpy(self.arrays[key])

    def parameter(self, *names):
        """Return the parameter of the first name that the case has."""
        return self[next(f"p:{name}:0" for name in names if f"p:{name}:0" in self.arrays)]

    def fill(self, factor, name):
        with torch.no_grad():
            factor.loc.copy_(self.parameter(f"{name}/mean", name))
            if factor.rho is not None:
                factor.rho.copy_(self.parameter(f"{name}/stddev"))


def fill_layer(layer, case, kernel):
    with torch.no_grad():
        layer.weight.copy_(kernel)
        layer.bias.copy_(case.parameter("ensemble_bias", "bias"))
    case.fill(layer.input_factor, "alpha")
    case.fill(layer.output_factor, "gamma")


def options(case):
    """Return the factor options under which edward2 took the KL."""
    if "kl_at_raw_sd" not in case.arrays:
        return {"members": MEMBERS, "family": "delta"}
    _, _, mean, std = case["kl_at_raw_sd"].tolist()
    return {"members": MEMBERS, "prior_mean": mean, "prior_std": std}


def dense(case):
    layer = Rank1Linear(5, 7, **options(case))
    fill_layer(layer, case, case.parameter("kernel").T)
    return layer


def conv1d(case):
    layer = Rank1Conv1d(4, 5, 3, **options(case))
    fill_layer(layer, case, case.parameter("kernel").permute(2, 1, 0))
    return layer


def conv2d(case, **kwargs):
    kernel = case.parameter("kernel").permute(3, 2, 0, 1)
    layer = Rank1Conv2d(kernel.shape[1], kernel.shape[0], tuple(kernel.shape[2:]), **kwargs, **options(case))
    fill_layer(layer, case, kernel)
    return layer


LAYERS = {
    "dense": dense,
    "batch_ensemble_dense": dense,
    "conv1d_valid": conv1d,
    "conv2d_same_stride1": lambda case: conv2d(case, padding="same"),
    "conv2d_valid_stride2": lambda case: conv2d(case, stride=(2, 1)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_feedforward_layers(golden, name):
    case = Case(golden, name)
    x, y = case["x"].movedim(-1, 1), case["y"].movedim(-1, 1)  # channels last in TensorFlow
    torch.testing.assert_close(LAYERS[name](case)(x), y, **TOLERANCE)


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "batch_ensemble_dense"])
def test_kl_of_the_layers(golden, name):
    case = Case(golden, name)
    raw, expected, _, _ = case["kl_at_raw_sd"].tolist()
    layer = LAYERS[name](case)
    factors = [part for part in layer.modules() if isinstance(part, Factor)]
    for factor in factors:
        nn.init.constant_(factor.rho, raw)
    total = sum(factor.kl().sum() for factor in factors)
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_point_mass_has_no_kl(golden):
    layer = dense(Case(golden, "batch_ensemble_dense"))
    assert layer.input_factor.kl().tolist() == layer.output_factor.kl().tolist() == [0.0] * MEMBERS


def test_lstm(golden):
    case = Case(golden, "lstm")
    layer = Rank1LSTM(4, 6, batch_first=True, members=MEMBERS)
    with torch.no_grad():  # both order the gates input, forget, cell, output
        layer.weight_ih_l0.copy_(case.parameter("kernel").T)
        layer.weight_hh_l0.copy_(case.parameter("recurrent_kernel").T)
        layer.bias_ih_l0.copy_(case.parameter("bias"))
        layer.bias_hh_l0.zero_()
    for kernel, prefix in (("ih", ""), ("hh", "recurrent_")):
        case.fill(layer.factors[f"{kernel}_l0_input"], f"{prefix}alpha")
        case.fill(layer.factors[f"{kernel}_l0_output"], f"{prefix}gamma")
    y, (h, c) = layer(case["x"])
    torch.testing.assert_close(y, case["y"], **TOLERANCE)
    torch.testing.assert_close(h[0], case["h"], **TOLERANCE)
    torch.testing.assert_close(c[0], case["c"], **TOLERANCE)


@pytest.mark.parametrize(
    ("family", "expected"), [("normal", "normal"), ("log_normal", "lognormal"), ("cauchy", "cauchy")]
)
def test_kl_of_the_families(golden, family, expected):
    case, known = Case(golden, "kl"), get_family(family)
    q, p = known.distribution(case["mq"], case["sq"]), known.distribution(case["mp"], case["sp"])
    torch.testing.assert_close(kl_divergence(q, p), case[expected], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("family", "at", "expected"),
    [("half_cauchy", "halfcauchy_logprob_at", "halfcauchy_logprob"), ("student_t", "mq", "studentt3_logprob")],
)
def test_densities_of_the_families(golden, family, at, expected):
    case = Case(golden, "kl")
    distribution = get_family(family).distribution(case["mp"], case["sp"])
    torch.testing.assert_close(distribution.log_prob(case[at]), case[expected], rtol=1e-10, atol=1e-10)
