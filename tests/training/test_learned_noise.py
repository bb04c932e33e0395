"""The learned noise of a regression: trained at the residuals' scale, and predicted with as its mixture needs it."""

import numpy as np
import pytest
import torch

from slimbayes._seeds import Purpose, mix
from slimbayes.data.registry import load_data
from slimbayes.training import fit


def residuals(run, data, part="train"):
    examples = getattr(data, part)
    inputs, targets = examples.fetch(torch.arange(len(examples)))
    with torch.no_grad():
        mean = run.model()(*data.preparation(*inputs), samples=0)
    return targets - mean.view(mean.shape[0], *targets.shape)


def noise(run):
    return torch.nn.functional.softplus(run.model().likelihood.rho).item()


def trained_noise(run):
    return torch.nn.functional.softplus(run.checkpoints.state()["rho"]).item()


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("method", ["deterministic", {"name": "deep_ensemble", "members": 2}])
def test_it_trains_with_the_best_for_the_weights(method, accumulate, tmp_path):
    # The weights hardly move, so that the residuals of all steps are those of the weights at the end.
    config = {"data": "diabetes", "net": "mlp", "method": method, "epochs": 1, "accumulate": accumulate}
    run = fit({**config, "optimiser": {"lr": 1e-7}}, tmp_path, quiet=True)
    expected = residuals(run, load_data("diabetes")).square().mean().sqrt().item()
    assert trained_noise(run) == pytest.approx(expected, rel=1e-4)


def test_a_default_run_ends_with_the_noise_of_its_residuals(tmp_path):
    run = fit({"data": "diabetes", "net": "mlp", "method": "deterministic"}, tmp_path, quiet=True)
    expected = residuals(run, load_data("diabetes")).square().mean().sqrt().item()
    assert expected < 0.9
    assert noise(run) == pytest.approx(expected, rel=0.1)


def test_noise_that_is_stated_stays(tmp_path):
    config = {"data": "diabetes", "net": "mlp", "method": "deterministic", "epochs": 1}
    run = fit({**config, "likelihood": {"name": "gaussian", "noise": 0.5}}, tmp_path, quiet=True)
    assert run.model().likelihood.noise == 0.5


@pytest.mark.parametrize(("validation", "part"), [(44, "validation"), (19, "train"), (0, "train")])
def test_one_network_predicts_with_its_error_on_examples_that_chose(validation, part, tmp_path):
    options = {"name": "diabetes", "validation": validation}
    run = fit({"data": options, "net": "mlp", "method": "deterministic", "epochs": 3}, tmp_path, quiet=True)
    data = load_data(**options)
    assert noise(run) == pytest.approx(residuals(run, data, part).square().mean().sqrt().item(), rel=1e-5)


def test_each_output_has_its_own(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 2))
    path = tmp_path / "two.npz"
    np.savez(path, x_train=x, y_train=x + generator.normal(size=x.shape) * [0.1, 1.0])
    data = {"name": "arrays", "path": str(path), "task": "gaussian", "validation": 60}
    config = {"data": data, "net": "mlp", "method": "deterministic", "likelihood": {"name": "gaussian", "outputs": 2}}
    run = fit({**config, "epochs": 2}, tmp_path / "run", quiet=True)
    found = torch.nn.functional.softplus(run.model().likelihood.rho)
    squares = residuals(run, load_data(**data), "validation").square().flatten(0, 1)
    torch.testing.assert_close(found, squares.mean(0).sqrt(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["deterministic", "mc_dropout"])
def test_other_scales_converge_too(method, tmp_path):
    """Of a default run, in whose 20 steps Adam moves it by 0.02."""
    config = {"data": "diabetes", "net": "mlp", "method": method, "likelihood": "student_t"}
    run = fit(config, tmp_path, quiet=True)
    model, examples = run.model(), load_data("diabetes").validation
    inputs, targets = examples.fetch(torch.arange(len(examples)))
    seed = mix(0, Purpose.PREDICTIVE_NOISE, 0)
    prediction = model.predict(*run.preparation(*inputs), samples=model.default_samples, seed=seed)
    outputs, targets = model.likelihood.read(prediction.draws, targets, prediction.batch_dim)
    assert noise(run) == pytest.approx(model.likelihood.best_scale(outputs, targets, mixed=True).item(), rel=1e-5)
    assert noise(run) < 0.75
    model.likelihood.set_scale(torch.tensor(trained_noise(run)))
    assert trained_noise(run) == pytest.approx(model.likelihood.best_scale(outputs, targets).item(), rel=0.15)


def test_a_dispersion_that_is_not_there_does_not_widen_intervals(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(3000, 2))
    y = generator.poisson(np.exp(2 + 0.5 * x[:, 0]))
    np.savez(tmp_path / "visits.npz", x_train=x[:1800], y_train=y[:1800], x_test=x[1800:], y_test=y[1800:])
    data = {"name": "arrays", "path": str(tmp_path / "visits.npz"), "task": "poisson", "validation": 600}
    config = {"data": data, "net": "mlp", "method": "deterministic", "likelihood": "negative_binomial", "epochs": 20}
    run = fit({**config, "optimiser": {"lr": 0.005}}, tmp_path / "run", quiet=True)
    examples = load_data(**data).test
    inputs, targets = examples.fetch(torch.arange(len(examples)))
    low, high = run.model().predict(*run.preparation(*inputs)).interval(0.9)
    covered = ((targets.view_as(low) >= low) & (targets.view_as(low) <= high)).double().mean().item()
    assert noise(run) < 0.05
    # At most 0.06 more than 0.9, as counts are whole: both ends may have the probability of a count near 8.
    assert 0.88 < covered < 0.96


@pytest.mark.parametrize(("method", "epochs"), [("deterministic", 300), ("rank1", 30), ("mc_dropout", 30)])
def test_intervals_cover_what_they_say(method, epochs, tmp_path):
    """Of 90% intervals; the tolerance is three standard errors, of 4000 test rows and of a noise from 1000 rows."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(5150, 8))
    y = x @ generator.normal(size=8) + generator.normal(size=5150)
    parts = dict(zip(("train", "validation", "test"), np.split(np.arange(5150), [150, 1150]), strict=True))
    path = tmp_path / "rows.npz"
    arrays = {f"{name}_{part}": values[rows] for part, rows in parts.items() for name, values in (("x", x), ("y", y))}
    np.savez(path, **arrays)
    options = {"name": "arrays", "path": str(path), "task": "gaussian"}
    config = {"data": options, "net": "mlp", "method": method, "epochs": epochs, "batch_size": 32}
    run = fit(config, tmp_path / "run", quiet=True)
    data = load_data(**options)
    inputs, targets = data.test.fetch(torch.arange(len(data.test)))
    low, high = run.model().predict(*data.preparation(*inputs), samples=10, seed=0).interval(0.9)
    covered = ((targets.view_as(low) >= low) & (targets.view_as(low) <= high)).double().mean().item()
    # d coverage / d log(noise) is 2 * 1.645 * phi(1.645) = 0.34; log(noise) has a standard error of 1 / sqrt(2000).
    error = (0.9 * 0.1 / 4000 + 0.34**2 / 2000) ** 0.5
    assert covered == pytest.approx(0.9, abs=3 * error)
