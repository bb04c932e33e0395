"""Interleaved timing, on a machine and a clock that the tests drive."""

import gc

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.interleaved import calibrate, measure, ratios


class Machine:
    """A clock that moves only when a case runs, by its cost times the machine's slowness."""

    def __init__(self):
        self.now, self.slowness, self.calls = 0.0, 1.0, []

    def clock(self):
        return self.now

    def case(self, name, cost):
        def call():
            self.calls.append(name)
            self.now += cost * self.slowness

        return call

    def cases(self, **costs):
        return {name: self.case(name, cost) for name, cost in costs.items()}


@pytest.fixture
def machine():
    return Machine()


@pytest.mark.parametrize(("cost", "count"), [(0.03, 1), (0.011, 2), (0.003, 8), (0.0003, 128)])
def test_a_timing_is_long_enough(machine, cost, count):
    assert calibrate(machine.case("step", cost), least=0.02, clock=machine.clock) == count


@pytest.mark.parametrize("hiccup", [1, 2, 3, 4, 5])
def test_neither_first_calls_nor_a_hiccup_pass_for_long_steps(machine, hiccup):
    step = machine.case("step", 0.003)

    def interrupted():
        step()
        machine.now += len(machine.calls) == hiccup

    assert calibrate(interrupted, least=0.02, clock=machine.clock) == 8


@pytest.mark.parametrize(("repetitions", "warmup"), [(1, 0), (1, 1), (4, 0), (3, 2)])
def test_seconds_are_those_of_one_timed_call(machine, repetitions, warmup):
    cases = machine.cases(a=0.5, b=2.0)
    times = measure(cases, rounds=3, repetitions=repetitions, warmup=warmup, clock=machine.clock)
    np.testing.assert_allclose(times["a"], [0.5] * 3, rtol=1e-12)
    np.testing.assert_allclose(times["b"], [2.0] * 3, rtol=1e-12)
    assert machine.calls.count("a") == machine.calls.count("b") == 3 * (repetitions + warmup)


def test_only_the_calls_after_the_warm_up_are_timed(machine):
    def cold_then_hot():
        machine.now += 10.0 if len(machine.calls) % 3 == 0 else 1.0  # every third call finds cold caches
        machine.calls.append("case")

    times = measure({"case": cold_then_hot}, rounds=4, repetitions=2, warmup=1, clock=machine.clock)
    assert times["case"].tolist() == [1.0] * 4


def orders(machine, seed):
    measure(machine.cases(a=1.0, b=1.0, c=1.0), rounds=40, warmup=0, seed=seed, clock=machine.clock)
    return [tuple(machine.calls[i : i + 3]) for i in range(0, 120, 3)]


def test_every_round_runs_every_case_once_in_an_order_of_its_own():
    rounds = orders(Machine(), seed=0)
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) == 6
    assert rounds == orders(Machine(), seed=0)
    assert rounds != orders(Machine(), seed=1)


def test_progress_counts_rounds(machine):
    seen = []
    measure(
        machine.cases(a=1.0, b=1.0), 3, progress=lambda done, total: seen.append((done, total)), clock=machine.clock
    )
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_garbage_collector_rests_and_comes_back(before, fails):
    during, was = [], gc.isenabled()

    def case():
        during.append(gc.isenabled())
        if fails:
            raise KeyboardInterrupt

    (gc.enable if before else gc.disable)()
    try:
        try:
            measure({"case": case}, rounds=2)
        except KeyboardInterrupt:
            assert fails
        assert gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()
    assert during == ([False] if fails else [False] * 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, ["`rounds`", "0"]),
        ({"rounds": 1, "repetitions": 0}, ["`repetitions`", "0"]),
        ({"rounds": 1, "warmup": -1}, ["`warmup`", "-1"]),
    ],
)
def test_measure_says_what_is_wrong(machine, options, words):
    with pytest.raises(ValueError, match="Expected") as error:
        measure(machine.cases(a=1.0), **options)
    assert all(word in str(error.value) for word in words)


def test_an_unknown_baseline_is_named():
    with pytest.raises(ValueError, match="`baseline`.*'plain'.*'plane'.*Did you mean 'plain'"):
        ratios({"plain": np.ones(2)}, "plane")


def test_slow_drifts_cancel(machine):
    def slower(done, total):
        machine.slowness = 1.0 + done  # from round to round, not within one

    cases = machine.cases(plain=1.0, method=1.5)
    times = measure(cases, rounds=9, progress=slower, clock=machine.clock)
    np.testing.assert_allclose(times["method"], 1.5 * np.arange(1, 10), rtol=1e-12)
    ratio = ratios(times, "plain")["method"]
    np.testing.assert_allclose([ratio.median, *ratio.quartiles, *ratio.interval], [1.5] * 5, rtol=1e-12)


def test_ratios_are_taken_round_by_round():
    plain, method = np.array([1.0, 10.0, 2.0, 4.0, 5.0]), np.array([3.0, 11.0, 8.0, 8.0, 25.0])
    ratio = ratios({"plain": plain, "method": method}, "plain")["method"]  # 3, 1.1, 4, 2, 5
    assert ratio.median == 3.0
    assert ratio.quartiles == (2.0, 4.0)
    assert ratios({"plain": plain}, "plain")["plain"] == (1.0, (1.0, 1.0), (1.0, 1.0))


@pytest.mark.parametrize("rounds", [11, 25, 51])
def test_the_interval_is_the_bootstrap_distribution_of_the_median(rounds):
    # A resample of an odd number of rounds has a median at or below the i-th smallest value when at least half of
    # its members are among the i smallest, each with probability i / rounds.
    values = np.random.default_rng(rounds).permutation(np.arange(1.0, rounds + 1))
    at_or_below = binom.sf(rounds // 2, rounds, np.arange(1, rounds + 1) / rounds)
    low, high = (1 + int(np.argmax(at_or_below >= level)) for level in (0.025, 0.975))
    assert ratios({"plain": np.ones(rounds), "method": values}, "plain")["method"].interval == (low, high)
