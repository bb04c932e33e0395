"""The KL of all factors at once against that of each factor, made by torch.distributions and autograd."""

import copy
import math

import pytest
import torch
from torch import distributions as td
from torch import nn

import slimbayes as sb
from slimbayes.layers.base import Stochastic
from slimbayes.layers.rank1 import Factor, FactorOptions

FAMILIES = ("normal", "log_normal", "cauchy")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


def factors_of(model: nn.Module) -> list[Factor]:
    return [module for module in model.modules() if isinstance(module, Factor)]


def by_part(model: nn.Module, member_kl: str = "sum") -> torch.Tensor:
    each = [module.kl() for module in model.modules() if isinstance(module, Stochastic)]
    return sum(getattr(divergence, member_kl)() for divergence in each)


@pytest.mark.parametrize("member_kl", ["sum", "mean"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_sum_over_parts(family, rank, dtype, member_kl):
    """With two ranks, input and output factors have different prior means."""
    model = sb.rank1(network(), members=3, family=family, rank=rank, dropout_rate=0.05).to(dtype)
    parameters = [p for part in factors_of(model) for p in part.parameters()]
    ours, expected = model.kl(member_kl), by_part(model, member_kl)
    assert ours.dtype == dtype
    exact = dtype == torch.float64
    torch.testing.assert_close(ours, expected, rtol=1e-12 if exact else 1e-6, atol=0)
    gradients = [torch.autograd.grad(3 * kl, parameters) for kl in (ours, expected)]
    for own, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-10 if exact else 1e-5, atol=1e-12 if exact else 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_values_of_the_closed_forms(family):
    distribution = {"normal": td.Normal, "log_normal": td.LogNormal, "cauchy": td.Cauchy}[family]
    loc, scale = torch.tensor([0.3, -1.0, 2.0]).double(), torch.tensor([1e-7, 0.5, 40.0]).double()
    total = sb.families.get_family(family).kl(loc, scale, 0.7, 0.2).sum()
    expected = td.kl_divergence(distribution(loc, scale), distribution(0.7 + 0 * loc, 0.2 + 0 * loc)).sum()
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_first_and_second_order(family):
    family = sb.families.get_family(family)
    loc, rho = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    rho.data[0, 0] = 25.0  # where torch's softplus is its argument

    def kl(loc, rho):
        return family.kl(loc, sb.families.softplus_scale(rho), 0.7, 0.2)

    assert torch.autograd.gradcheck(kl, (loc, rho))
    assert torch.autograd.gradgradcheck(kl, (loc, rho))


def test_gradients_in_batches():
    model = sb.rank1(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), members=2)
    factors = [parameter for name, parameter in model.named_parameters() if name.endswith(("loc", "rho"))]
    each = torch.autograd.grad(model.kl(), factors)
    batched = torch.autograd.grad(model.kl(), factors, torch.tensor([1.0, 3.0]), is_grads_batched=True)
    for one, several in zip(each, batched, strict=True):
        torch.testing.assert_close(several, torch.stack([one, 3 * one]))


def test_equal_distributions_pay_nothing():
    options = FactorOptions(members=2, prior_std=0.5, init="ones", dropout_rate=0.2)  # sqrt(0.2 / 0.8) = 0.5
    factor = Factor(50, options, dtype=torch.float64)
    factor.rho.data.fill_(math.log(math.expm1(0.5 - 1e-7)))
    assert factor.kl().tolist() == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_factors_have_a_kl_in_float32(dtype):
    model = sb.rank1(network(), members=3, dropout_rate=0.05).to(dtype)
    wide = copy.deepcopy(model).float()
    ours, expected = model.kl(), wide.kl()
    assert ours.dtype == torch.float32
    error = torch.finfo(dtype).eps  # of each scale, in which the KL is no steeper than 1
    assert ours.item() == pytest.approx(expected.item(), rel=2 * error)
    ours.backward()
    expected.backward()
    for half, full in zip(factors_of(model), factors_of(wide), strict=True):
        assert half.rho.grad.dtype == dtype
        torch.testing.assert_close(half.loc.grad.float(), full.loc.grad, rtol=4 * error, atol=4 * error)
        torch.testing.assert_close(half.rho.grad.float(), full.rho.grad, rtol=4 * error, atol=4 * error)


def test_frozen_parameters_and_saved_gradients():
    model = sb.rank1(network(), members=2)
    first, *_, last = factors_of(model)
    first.rho.requires_grad_(False)
    last.loc.requires_grad_(False)
    kl = model.kl()
    kl.backward(retain_graph=True)
    once = first.loc.grad.clone()
    first.loc.grad.zero_()  # must not reach what the next pass needs
    kl.backward()
    assert torch.equal(first.loc.grad, once)
    assert first.rho.grad is None
    assert last.loc.grad is None
    assert last.rho.grad is not None


def test_a_changed_network_is_seen_at_once():
    model = sb.rank1(network(), members=2)
    before = model.kl()
    other = sb.rank1(network(), members=3, family="student_t", prior_family="normal").net[0]
    model.net.append(other)
    torch.testing.assert_close(model.kl(), before + by_part(other))
    del model.net[-1]
    torch.testing.assert_close(copy.deepcopy(model).double().kl().float(), before)
    model.net[0] = nn.Linear(5, 7)
    torch.testing.assert_close(model.kl(), by_part(model))


@pytest.mark.parametrize(
    ("options", "terms"),
    [
        ({}, 1),
        ({"family": "delta"}, 1),
        ({"rank": 2}, 2),
        ({"prior_scale": "trainable"}, 4),
        ({"prior_scale": "trainable", "scale_prior": "half_cauchy"}, 4),
        ({"scale_prior": "inverse_gamma"}, 1),
        ({"prior_family": "cauchy"}, 1),
        ({"family": "student_t"}, 1),
        ({"family": "delta", "prior_family": "normal"}, 1),
    ],
)
def test_what_is_one_term_and_what_is_not(options, terms):
    model = sb.rank1(network(), members=2, **options)
    keys = {factor.kl_key() for factor in factors_of(model)}
    assert len(keys) == terms
    if "student_t" not in options.values() and "scale_prior" not in options:  # neither Monte Carlo nor penalties
        torch.testing.assert_close(model.kl(), by_part(model), rtol=1e-6, atol=0)


def test_steps_aside_for_transforms():
    model = sb.rank1(network(), members=2).double()
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    class Divergence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self) -> torch.Tensor:
            return self.model.kl()

    module = Divergence()

    def kl(parameters):
        return torch.func.functional_call(module, {f"model.{name}": p for name, p in parameters.items()})

    gradients = torch.func.grad(kl)(parameters)
    direction = {name: torch.ones_like(p) for name, p in parameters.items()}
    _, along = torch.func.jvp(kl, (parameters,), (direction,))
    torch.testing.assert_close(along, sum(gradient.sum() for gradient in gradients.values()))
    model.kl().backward()
    for name, parameter in model.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(gradients[name], expected)
