"""The learned noise of a regression is at the residuals' scale, however short the run."""

import pytest
import torch

from slimbayes.data.registry import load_data
from slimbayes.training import fit


def residuals(run, data):
    inputs, targets = data.train.fetch(torch.arange(len(data.train)))
    with torch.no_grad():
        mean = run.model()(*data.preparation(*inputs), samples=0)
    return targets - mean.view(mean.shape[0], *targets.shape)


def noise(run):
    return torch.nn.functional.softplus(run.model().likelihood.rho).item()


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("method", ["deterministic", {"name": "deep_ensemble", "members": 2}])
def test_it_is_the_best_for_the_weights(method, accumulate, tmp_path):
    # The weights hardly move, so that the residuals of all steps are those of the weights at the end.
    config = {"data": "diabetes", "net": "mlp", "method": method, "epochs": 1, "accumulate": accumulate}
    run = fit({**config, "optimiser": {"lr": 1e-7}}, tmp_path, quiet=True)
    expected = residuals(run, load_data("diabetes")).square().mean().sqrt().item()
    assert noise(run) == pytest.approx(expected, rel=1e-4)


def test_a_default_run_ends_with_the_noise_of_its_residuals(tmp_path):
    run = fit({"data": "diabetes", "net": "mlp", "method": "deterministic"}, tmp_path, quiet=True)
    expected = residuals(run, load_data("diabetes")).square().mean().sqrt().item()
    assert expected < 0.9
    assert noise(run) == pytest.approx(expected, rel=0.1)


def test_noise_that_is_stated_stays(tmp_path):
    config = {"data": "diabetes", "net": "mlp", "method": "deterministic", "epochs": 1}
    run = fit({**config, "likelihood": {"name": "gaussian", "noise": 0.5}}, tmp_path, quiet=True)
    assert run.model().likelihood.noise == 0.5
