"""Shifts of hourly series: the same as if the raw measurements had been lost or changed before their preparation."""

import numpy as np
import pytest
import torch

from slimbayes.data.dataset import DataSet, Examples, Task
from slimbayes.data.events import Scaling
from slimbayes.data.physionet import PhysionetHourly
from slimbayes.shifts import CONSTANTS, shifts_for

COUNT, HOURS, VARIABLES = 300, 48, 37


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    hours = 10 + 2 * torch.randn(COUNT, HOURS, VARIABLES, generator=generator)
    hours[..., 19] = 1.0  # as MechVent, which has only one value
    hours[torch.rand(hours.shape, generator=generator) < 0.8] = torch.nan
    context = torch.randn(COUNT, 8, generator=generator)
    values = Scaling.of_columns(hours.flatten(0, 1))
    preparation = PhysionetHourly(values.parts, Scaling.of_columns(context).parts)
    examples = Examples((hours, context), torch.zeros(COUNT))
    return DataSet("physionet2012", examples, None, examples, Task("bernoulli", 1, (HOURS, 82)), preparation)


def shifted(data, name, severity, rows=None):
    rows = torch.arange(COUNT) if rows is None else rows
    inputs, _ = data.test.fetch(rows)
    return shifts_for(data)[name](data.preparation(*inputs), severity, numbers=rows)[0]


def prepared_without(data, lost):
    """Prepare the raw hours after these measurements were never made."""
    hours, context = data.test.inputs
    return data.preparation(hours.masked_fill(lost, torch.nan), context)[0]


@pytest.mark.parametrize("severity", [1, 5])
def test_a_gap_is_as_if_nothing_had_been_measured(data, severity):
    x = shifted(data, "gap", severity)
    length = round(48 * CONSTANTS["gap"][severity - 1])
    silent = (x[..., VARIABLES : 2 * VARIABLES] == 0).all(-1)
    lost = torch.zeros(COUNT, HOURS, dtype=torch.bool)
    for row in range(COUNT):  # 37 variables at 20 %: no hour is silent by itself in nearly all records
        stretches = [start for start in range(HOURS - length + 1) if silent[row, start : start + length].all()]
        assert stretches
        lost[row, stretches[0] : stretches[0] + length] = True
    torch.testing.assert_close(x, prepared_without(data, lost.unsqueeze(-1)))


def test_missing_variables_are_as_if_never_measured(data):
    x = shifted(data, "missing", 2)
    before = prepared_without(data, torch.tensor(False))
    gone = (x[..., VARIABLES : 2 * VARIABLES] == 0).all(1) & (before[..., VARIABLES : 2 * VARIABLES] > 0).any(1)
    torch.testing.assert_close(x, prepared_without(data, gone.unsqueeze(1)))
    share = CONSTANTS["missing"][1]
    assert gone.float().mean().item() == pytest.approx(share, abs=4 * np.sqrt(share / (COUNT * VARIABLES)))


@pytest.mark.parametrize("name", ["noise", "drift"])
def test_changed_measurements_are_clipped_and_carried_forward(data, name):
    x = shifted(data, name, 5)
    before = prepared_without(data, torch.tensor(False))
    assert torch.equal(x[..., VARIABLES:], before[..., VARIABLES:])  # what was measured when, and the context
    assert torch.equal(x[..., 19], before[..., 19])  # no real value
    values, observed = x[..., :VARIABLES], x[..., VARIABLES : 2 * VARIABLES] > 0
    carried = torch.zeros(COUNT, VARIABLES)
    for hour in range(HOURS):
        carried = torch.where(observed[:, hour], values[:, hour], carried)
        assert torch.equal(values[:, hour], carried)
    low, high = before[..., :VARIABLES].flatten(0, 1).aminmax(dim=0)
    assert (values <= high + 1e-5).all()
    assert (values >= low - 1e-5).all()


def test_noise_has_its_variance_where_nothing_is_clipped(data):
    before = prepared_without(data, torch.tensor(False))
    inside = (before[..., VARIABLES : 2 * VARIABLES] > 0) & (before[..., :VARIABLES].abs() < 2.5)
    inside[..., 19] = False
    noise = (shifted(data, "noise", 1) - before)[..., :VARIABLES][inside]
    assert noise.std().item() == pytest.approx(CONSTANTS["noise"][0], rel=4 / np.sqrt(2 * len(noise)) + 0.001)


@pytest.mark.parametrize("name", ["missing", "noise", "drift", "gap"])
def test_a_patient_does_not_depend_on_the_batch(data, name):
    rows = torch.tensor([200, 7])
    assert torch.equal(shifted(data, name, 3, rows), shifted(data, name, 3)[rows])
