"""The cyclical schedule at steps worked out by hand, and on a sampler."""

import math
import pickle

import pytest
import torch
from torch import nn

from slimbayes.mcmc import SGLD, CyclicalRate, cyclical_rate


@pytest.mark.parametrize(("steps", "cycles"), [(100, 4), (10, 3), (7, 7), (5, 1)])
def test_rates_follow_the_formula(steps, cycles):
    rate = CyclicalRate(steps, cycles)
    length = -(-steps // cycles)
    for k in range(1, steps + 1):  # the paper counts from 1
        expected = 0.5 * (math.cos(math.pi * math.fmod(k - 1, length) / length) + 1)
        assert rate(k - 1) == cyclical_rate(k - 1, steps, cycles) == pytest.approx(expected, rel=1e-12)
        assert rate.cycle(k - 1) == (k - 1) // length
    assert [step for step in range(steps) if rate(step) == 1] == list(range(0, steps, length))


def test_stages():
    # Ten steps in three cycles are four, four and two.
    rate = CyclicalRate(10, 3, exploration=0.5)
    assert [rate.sampling(step) for step in range(10)] == [False, False, True, True] * 2 + [False] * 2
    assert [step for step in range(10) if rate.last_of_cycle(step)] == [3, 7, 9]
    assert all(CyclicalRate(10, 3, exploration=0).sampling(step) for step in range(10))


def test_the_schedule_drives_a_sampler():
    theta = nn.Parameter(torch.zeros(500))
    rate = CyclicalRate(8, 2, exploration=0.5)
    sampler = SGLD([theta], lr=0.5, num_data=10)
    schedule = torch.optim.lr_scheduler.LambdaLR(sampler, rate)
    for step in range(8):
        before = theta.detach().clone()
        theta.grad = torch.zeros_like(theta)
        sampler.switch_noise(rate.sampling(step))
        sampler.step()
        schedule.step()
        # The standard error of a standard deviation of 500 is 3.2 %.
        expected = math.sqrt(2 * 0.5 * rate(step) / 10) if rate.sampling(step) else 0.0
        assert (theta - before).std().item() == pytest.approx(expected, rel=0.15)


def test_schedules_survive_pickling_and_their_own_name():
    rate = CyclicalRate(10, 3, 0.5)
    for copy in (pickle.loads(pickle.dumps(rate)), eval(repr(rate))):
        assert [copy(step) for step in range(10)] == [rate(step) for step in range(10)]
        assert repr(copy) == repr(rate)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: CyclicalRate(0), ["`steps`", "0", "len(loader)"]),
        (lambda: CyclicalRate(10, 0), ["`cycles`", "0", "such as 4"]),
        (lambda: CyclicalRate(3, 4), ["`cycles`", "4", "`steps` = 3", "fewer cycles"]),
        (lambda: CyclicalRate(10, 2, 1.0), ["`exploration`", "1.0", "such as 0.8"]),
        (lambda: CyclicalRate(10, 2, -0.1), ["`exploration`", "-0.1"]),
    ],
)
def test_errors_name_the_argument(build, words):
    with pytest.raises(ValueError, match="Expected argument") as error:
        build()
    for word in words:
        assert word in str(error.value)
