"""Annealing schedules at steps worked out by hand."""

import pickle

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes import schedules
from slimbayes.schedules import linear_annealing, stepwise_annealing


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (linear_annealing(4), {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0, 10**9: 1.0}),
        (
            stepwise_annealing(5e-5),
            {0: 0, 99: 0, 100: 0.005, 199: 0.005, 200: 0.01, 19_999: 0.995, 20_000: 1, 10**9: 1},
        ),
        (stepwise_annealing(5e-6), {99: 0, 100: 0.0005, 12_345: 0.0615, 199_999: 0.9995, 200_000: 1}),
        # The step that would pass 1 stops there.
        (stepwise_annealing(0.003), {100: 0.3, 399: 0.9, 400: 1, 500: 1}),
        (stepwise_annealing(0.25, every=1), {0: 0, 1: 0.25, 2: 0.5, 3: 0.75, 4: 1, 5: 1}),
        (stepwise_annealing(2, every=7), {6: 0, 7: 1}),
    ],
    ids=repr,
)
def test_values(schedule, expected):
    for step, weight in expected.items():
        assert schedule(step) == pytest.approx(weight, rel=1e-12)
        assert isinstance(schedule(step), float)


@pytest.mark.parametrize("schedule", [linear_annealing(4), stepwise_annealing(5e-5), stepwise_annealing(0.01, every=3)])
def test_schedules_survive_pickling_and_their_own_name(schedule):
    for copy in (pickle.loads(pickle.dumps(schedule)), eval(repr(schedule), vars(schedules))):
        assert repr(copy) == repr(schedule)
        assert [copy(step) for step in range(500)] == [schedule(step) for step in range(500)]


def test_the_objective_follows_the_schedule():
    model = sb.rank1(nn.Linear(2, 1).double())
    elbo = sb.ELBO(model, num_data=10, likelihood="gaussian", beta=stepwise_annealing(0.25, every=2))
    kl = model.kl().item()
    x, y = torch.randn(3, 2).double(), torch.randn(3, 1).double()
    for weight in (0, 0, 0.5, 0.5, 1):
        terms = elbo.terms(model(x), y)
        assert terms.beta == weight
        assert (terms.loss - terms.nll).item() == pytest.approx(weight * kl / 10, rel=1e-10)
        elbo.step()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: linear_annealing(0), ["`steps`", "0", "len(loader)"]),
        (lambda: stepwise_annealing(0), ["`slope`", "above 0", "5e-5"]),
        (lambda: stepwise_annealing(-5e-5), ["`slope`", "-5e-05"]),
        (lambda: stepwise_annealing(float("nan")), ["`slope`", "nan"]),
        (lambda: stepwise_annealing("5e-5"), ["`slope`", "'5e-5'"]),
        (lambda: stepwise_annealing(True), ["`slope`", "True"]),
        (lambda: stepwise_annealing(5e-5, every=0), ["`every`", "0", "optimiser steps"]),
        (lambda: stepwise_annealing(5e-5, every=2.5), ["`every`", "2.5"]),
    ],
)
def test_errors_name_the_argument(build, words):
    with pytest.raises(ValueError, match="Expected argument") as error:
        build()
    for word in words:
        assert word in str(error.value)
