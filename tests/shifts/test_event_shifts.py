"""Shifts of events: which are left, in their order, with padding on the right; and what the network makes of it."""

import numpy as np
import pytest
import torch

from slimbayes.data.dataset import DataSet, Task
from slimbayes.data.events import EventExamples, Records, Scaling
from slimbayes.data.mimic import MimicEvents
from slimbayes.nets import RecordClassifier
from slimbayes.shifts import CONSTANTS, shifts_for

NAMES = ["a", "b", "c", "drug", "finding"]  # the last two have no values
SHIFTS = ["missing", "dropped", "noise", "drift", "gap"]
COUNT = 400


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    lengths = random.integers(0, 60, COUNT)
    lengths[:2] = 0, 1
    times = np.concatenate([np.sort(random.uniform(0, 24, length)) for length in lengths])
    variables = random.integers(1, 6, lengths.sum())
    values = np.where(variables < 4, random.normal(7, 2, lengths.sum()), 0)
    records = Records.of(lengths, times, variables, values, random.normal(size=(COUNT, 2)))
    scaling, context = records.scalings(torch.arange(COUNT), 3)
    preparation = MimicEvents(NAMES, scaling, context, 24.0, ["labevents"], 60)
    examples = EventExamples(records, torch.zeros(COUNT))
    task = Task("bernoulli", 1, (60,), vocabulary=6, context=2)
    return DataSet("mimic3", examples, None, examples, task, preparation)


def prepared(data, rows=None):
    return data.preparation(*data.test.fetch(torch.arange(COUNT) if rows is None else rows)[0])


def records_of(inputs):
    """Return each record's events as a list of (time, variable, value), after a check of the padding."""
    times, variables, values, _ = inputs
    result = []
    for time, variable, value in zip(times, variables, values, strict=True):
        length = int((variable > 0).sum())
        assert (variable[:length] > 0).all()
        assert not time[length:].any()
        assert not value[length:].any()
        columns = (part[:length].tolist() for part in (time, variable, value))
        result.append(list(zip(*columns, strict=True)))
    return result


@pytest.mark.parametrize("name", SHIFTS)
def test_padding_stays_on_the_right_and_order_is_kept(data, name):
    before, after = records_of(prepared(data)), records_of(shifts_for(data)[name](prepared(data), 3))
    for old, new in zip(before, after, strict=True):
        assert [event[0] for event in new] == sorted(event[0] for event in new)
        if name in ("noise", "drift"):
            assert [event[:2] for event in new] == [event[:2] for event in old]
            assert all(event in old for event in new if event[1] > 3)  # without a value
        else:
            assert set(new) <= set(old)
    assert before != after


@pytest.mark.parametrize("name", SHIFTS)
def test_a_record_does_not_depend_on_its_batch(data, name):
    shift = shifts_for(data)[name]
    rows = torch.tensor([33, 0, 250])
    whole = records_of(shift(prepared(data), 4, seed=1))
    some = shift(prepared(data, rows), 4, seed=1, numbers=rows)
    assert records_of(some) == [whole[row] for row in rows]
    assert torch.equal(some[3], prepared(data, rows)[3])


def test_events_are_dropped_at_their_rate(data):
    inputs = prepared(data)
    before, after = (sum(map(len, records_of(one))) for one in (inputs, shifts_for(data)["dropped"](inputs, 4)))
    share = CONSTANTS["dropped"][3]
    assert 1 - after / before == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / before))


def test_missing_variables_are_missing_altogether(data):
    before, after = records_of(prepared(data)), records_of(shifts_for(data)["missing"](prepared(data), 5))
    gone = []
    for old, new in zip(before, after, strict=True):
        kept = {event[1] for event in new}
        assert new == [event for event in old if event[1] in kept]
        gone += [variable not in kept for variable in {event[1] for event in old}]
    assert np.mean(gone) == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / len(gone)))


@pytest.mark.parametrize("severity", [1, 4])
def test_a_gap_is_one_stretch_of_time(data, severity):
    share = CONSTANTS["gap"][severity - 1]
    before, after = records_of(prepared(data)), records_of(shifts_for(data)["gap"](prepared(data), severity))
    lost_shares = []
    for old, new in zip(before, after, strict=True):
        lost = [event for event in old if event not in new]
        if lost:
            last = old[-1][0]
            assert lost[-1][0] - lost[0][0] <= share * last + 1e-4
            between = [event for event in new if lost[0][0] < event[0] < lost[-1][0]]
            assert not between
        if len(old) > 20:
            lost_shares.append(len(lost) / len(old))
    assert np.mean(lost_shares) == pytest.approx(share, abs=0.03)


def test_noise_has_its_variance(data):
    _, variables, before, _ = prepared(data)
    after = shifts_for(data)["noise"](prepared(data), 1)[2]
    inside = (variables > 0) & (variables < 4) & (before.abs() < 2.3)
    noise = (after - before)[inside]
    assert noise.std().item() == pytest.approx(0.1, rel=4 / np.sqrt(2 * len(noise)) + 0.001)


def test_the_network_cannot_tell_a_shifted_record_from_one_without_those_events(data):
    torch.manual_seed(0)
    net = RecordClassifier(6, 2, bags=24, embedding=4, hidden=6, dense=5)
    inputs = shifts_for(data)["dropped"](prepared(data, torch.arange(5)), 5)
    outputs = net(*inputs)
    for row, events in enumerate(records_of(inputs)):
        times, variables, values = zip(*events, strict=True) if events else ((0.0,), (0,), (0.0,))
        alone = [torch.tensor([times]), torch.tensor([variables]), torch.tensor([values]), inputs[3][row : row + 1]]
        torch.testing.assert_close(net(*alone)[0], outputs[row])


def test_all_events_may_be_lost(data):
    rows = torch.tensor([0, 0])
    for name in SHIFTS:
        times, variables, *_ = shifts_for(data)[name](prepared(data, rows), 5, numbers=rows)
        assert times.shape == (2, 1)
        assert not variables.any()


def test_variables_that_never_change_get_no_noise():
    scaling = Scaling([1.0], [1.0], [1.0], [1.0]).parts
    records = Records.of([2], [1.0, 2.0], [1, 1], [1.0, 1.0], np.zeros((1, 0)))
    examples = EventExamples(records, torch.zeros(1))
    empty = Scaling([], [], [], []).parts
    preparation = MimicEvents(["a"], scaling, empty, 24.0, ["labevents"], 9)
    data = DataSet("mimic3", examples, None, examples, Task("bernoulli", 1, (2,)), preparation)
    inputs = prepared(data, torch.arange(1))
    assert torch.equal(shifts_for(data)["noise"](inputs, 5)[2], inputs[2])
