"""A trained ensemble on scanned digits: sets cover, and a temperature mends its confidence."""

import math

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import slimbayes as sb
from slimbayes.calibration import coverage, set_size


@pytest.fixture(scope="module")
def held_out():
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = x.float() / 16
    torch.manual_seed(0)
    rows = torch.randperm(len(x))
    train, rest = rows[:300], rows[300:]
    model = sb.batch_ensemble(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), members=4)
    elbo = sb.ELBO(model, num_data=len(train), likelihood="categorical")
    optimiser = torch.optim.Adam(model.param_groups(lr=0.01))
    for _ in range(200):  # long enough to be too sure
        optimiser.zero_grad()
        elbo(model(x[train]), y[train]).backward()
        optimiser.step()
    return model.predict(x[rest]), y[rest]


@pytest.mark.parametrize("score", ["threshold", "aps"])
def test_coverage_on_real_data(held_out, score):
    calibration, test = sb.calibration_split(*held_out)
    sets = sb.ConformalClassifier(0.95, score).fit(*calibration).sets(test[0])
    error = math.sqrt(0.95 * 0.05 * 2 / len(test[1]))  # of the quantile and of the test share
    assert coverage(sets, test[1]).item() == pytest.approx(0.95, abs=4 * error)
    assert set_size(sets) < 3


@pytest.mark.parametrize("per", ["draw", "mixture"])
def test_temperature_lowers_the_loss_on_other_data(held_out, per):
    calibration, test = sb.calibration_split(*held_out)
    scaling = sb.TemperatureScaling(per).fit(*calibration)
    calibrated = scaling.apply(test[0])
    assert scaling.temperature > 1.2
    assert calibrated.log_likelihood(test[1]).mean() > test[0].log_likelihood(test[1]).mean()
    assert sb.ConformalClassifier(0.9).fit(calibrated, test[1]).examples == len(test[1])
