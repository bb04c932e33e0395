"""Learning rates against torch's own schedules, and optimisers against torch's."""

import copy

import pytest
import torch
from torch.optim import lr_scheduler

import slimbayes as sb
from slimbayes.training.config import Optimiser, Schedule
from slimbayes.training.rates import build_optimiser, build_schedule

PER_EPOCH, EPOCHS = 5, 8


def rates(scheduler, optimiser):
    found = []
    for _ in range(PER_EPOCH * EPOCHS):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return found


def ours(**options):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.5)
    return rates(build_schedule(Schedule(**options), optimiser, PER_EPOCH, PER_EPOCH * EPOCHS), optimiser)


def theirs(make):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.5)
    return rates(make(optimiser), optimiser)


TORCH = {
    "constant": ({}, lambda o: lr_scheduler.ConstantLR(o, 1.0)),
    "step": (
        {"name": "step", "at": [2, 5], "factor": 0.3},
        lambda o: lr_scheduler.MultiStepLR(o, [2 * PER_EPOCH, 5 * PER_EPOCH], 0.3),
    ),
    "cosine": (
        {"name": "cosine", "final": 0.1},
        lambda o: lr_scheduler.CosineAnnealingLR(o, PER_EPOCH * EPOCHS, 0.05),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_as_torch_has_it(name):
    options, make = TORCH[name]
    assert ours(**options) == pytest.approx(theirs(make), rel=1e-9)


def test_warm_up_is_linear_and_then_over():
    found = ours(warmup=2)
    assert found[: 2 * PER_EPOCH] == pytest.approx([0.5 * (t + 1) / 10 for t in range(10)])
    assert set(found[10:]) == {0.5}


def test_the_cosine_begins_after_warm_up():
    found = ours(name="cosine", warmup=1)
    assert found[PER_EPOCH] == 0.5
    assert found[-1] < 0.002


OPTIMISERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.8, "nesterov": True}, {"momentum": 0.8}),
    "adam": (torch.optim.Adam, {"betas": (0.8, 0.99)}, {"betas": (0.8, 0.99)}),
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.999)}, {}),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name):
    kind, expected, options = OPTIMISERS[name]
    model = sb.rank1(torch.nn.Linear(3, 2), members=2)
    optimiser = build_optimiser(Optimiser(name=name, lr=0.3, weight_decay=0.1, factor_lr=0.01, **options), model, 9)
    assert type(optimiser) is kind
    assert expected.items() <= optimiser.defaults.items()
    by_parameter = {id(p): group for group in optimiser.param_groups for p in group["params"]}
    base, factor = by_parameter[id(model.net.weight)], by_parameter[id(model.net.input_factor.loc)]
    assert (base["lr"], base["weight_decay"]) == (0.3, 0.1)
    assert (factor["lr"], factor["weight_decay"]) == (0.01, 0.0)
    assert len(by_parameter) == len(list(model.parameters()))


def test_no_momentum_means_no_nesterov():
    model = sb.rank1(torch.nn.Linear(3, 2), members=2)
    assert not build_optimiser(Optimiser(name="sgd", momentum=0.0), model, 9).defaults["nesterov"]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_those_of_the_plain_loop_over_parameters(name):
    kind, _, options = OPTIMISERS[name]
    model = sb.rank1(torch.nn.Linear(3, 2), members=2)
    twin = copy.deepcopy(model)
    fused = build_optimiser(Optimiser(name=name, lr=0.1, **options), model, 9)
    plain = kind(twin.param_groups(0.1), 0.1, **OPTIMISERS[name][1], foreach=False)
    assert fused.defaults["fused"]
    for step in range(5):
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(step))
            q.grad = p.grad.clone()
        fused.step()
        plain.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
