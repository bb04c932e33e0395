"""Suites, their training steps, and a run of one."""

import json
import os

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from benchmarks import suite_run as bench
from benchmarks import suites
from benchmarks.suite_run import table
from benchmarks.suites import NUM_DATA, SUITES, Case, Suite, training_step

LR, EPS = 1e-3, 1e-8  # Adam's defaults


def adam_first_step(gradient):
    return -LR * gradient / (gradient.abs() + EPS)


def idle():
    return None


def toy(*names, build=lambda: idle):
    return Suite("toy", "nothing", tuple(Case(name, build) for name in names), batch=1, baseline=names[0])


def test_the_dense_suite_has_every_method_and_estimator():
    suite = SUITES["dense"]
    assert [case.name for case in suite.cases] == [
        "plain",
        "k_tied/reparameterization",
        "k_tied/local",
        "k_tied/flipout",
        "mean_field/reparameterization",
        "mean_field/local",
        "mean_field/flipout",
        "rank1",
        "batch_ensemble",
    ]
    assert (suite.baseline, suite.batch) == ("plain", 256)


def test_the_rows_of_the_dense_suite_ask_for_what_their_names_say(monkeypatch):
    asked = []
    for method in ("k_tied", "mean_field", "rank1", "batch_ensemble"):
        convert = lambda net, method=method, **options: asked.append((method, options)) or net  # noqa: E731
        monkeypatch.setattr(sb, method, convert, raising=False)
    for case in SUITES["dense"].cases:
        case.build()
    estimators = ("reparameterization", "local", "flipout")
    assert asked == [
        *(("k_tied", {"k": 2, "prior_std": 0.3, "estimator": name}) for name in estimators),
        *(("mean_field", {"prior_std": 0.3, "estimator": name}) for name in estimators),
        ("rank1", {"members": 1}),
        ("batch_ensemble", {"members": 1}),
    ]


@pytest.mark.parametrize(
    ("names", "picked"),
    [(None, ["plain", "a", "b"]), (["b"], ["plain", "b"]), (["b", "a", "plain"], ["plain", "a", "b"]), ([], ["plain"])],
)
def test_the_baseline_is_always_picked(names, picked):
    assert [case.name for case in toy("plain", "a", "b").pick(names)] == picked


def test_an_unknown_case_is_named():
    with pytest.raises(ValueError, match="`cases`.*'rank1'.*'rank2'.*Did you mean 'rank1'"):
        SUITES["dense"].pick(["batch_ensemble", "rank2"])


def test_a_plain_step_is_adam_on_the_mean_squared_error():
    net, x, y = nn.Linear(8, 3), torch.randn(5, 8), torch.randn(5, 3)
    weight, bias, error = net.weight.detach().clone(), net.bias.detach().clone(), net(x).detach() - y
    training_step(net, x, y)()
    torch.testing.assert_close(net.weight, weight + adam_first_step(error.T @ x / 5))
    torch.testing.assert_close(net.bias, bias + adam_first_step(error.mean(0)))


def test_a_bayesian_step_has_the_same_loss_and_the_kl():
    model = sb.rank1(nn.Linear(8, 3), members=1, prior_std=0.3)
    (layer,) = model.layers()
    location = layer.input_factor.loc.detach().clone()
    # No input, no gradient of the likelihood to the input factor: the KL's alone, (loc - 1) / prior_std^2 / N.
    training_step(model, torch.zeros(5, 8), torch.zeros(5, 3))()
    torch.testing.assert_close(
        layer.input_factor.loc.detach(), location + adam_first_step((location - 1) / 0.3**2 / NUM_DATA)
    )

    model = sb.batch_ensemble(nn.Linear(8, 3), members=1)
    (layer,) = model.layers()
    x, y = torch.randn(5, 8), torch.randn(5, 3)
    bias, error = layer.bias.detach().clone(), model(x).detach()[0] - y
    training_step(model, x, y)()
    torch.testing.assert_close(layer.bias.detach(), bias + adam_first_step(error.mean(0, keepdim=True)))


def test_the_second_step_forgets_the_gradient_of_the_first():
    net, x, y = nn.Linear(8, 3), torch.randn(5, 8), torch.randn(5, 3)
    step = training_step(net, x, y)
    step()
    error = net(x).detach() - y
    step()
    torch.testing.assert_close(net.bias.grad, error.mean(0))


def test_all_cases_start_from_the_same_network_and_rows(monkeypatch):
    built = []
    monkeypatch.setattr(suites, "training_step", lambda model, x, y: built.append((model, x, y)) or idle)
    bench.run("dense", ["rank1", "batch_ensemble"], rounds=1, seed=3)
    (plain, x, y), *others = built
    assert x.shape == y.shape == (256, 1024)
    assert not torch.equal(x, y)
    assert len(others) == 2
    for model, its_x, its_y in others:
        (layer,) = model.layers()
        assert torch.equal(layer.weight, plain.weight)
        assert torch.equal(its_x, x)
        assert torch.equal(its_y, y)


def test_threads_and_generator_are_put_back():
    during = []

    def build():
        during.append(torch.get_num_threads())
        torch.randn(3)
        return idle

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    results = bench.run(toy("plain", "a", build=build), rounds=1, threads=threads + 1)
    assert during == [threads + 1] * 2
    assert results["hardware"]["threads"] == results["settings"]["threads"] == threads + 1
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_a_case_that_cannot_be_built_is_not_skipped():
    def broken():
        raise AttributeError("no such method")

    suite = Suite("toy", "nothing", (Case("plain", lambda: idle), Case("broken", broken)), batch=1)
    threads = torch.get_num_threads()
    with pytest.raises(AttributeError, match="no such method"):
        bench.run(suite, rounds=1, threads=threads + 1)
    assert torch.get_num_threads() == threads


@pytest.fixture
def results(monkeypatch):
    """A run whose timings are given."""
    times = {"plain": np.array([0.01, 0.02, 0.04]), "a": np.array([0.02, 0.02, 0.06])}  # ratios 2, 1, 1.5
    monkeypatch.setattr(bench, "calibrate", lambda case: 4)
    monkeypatch.setattr(bench, "measure", lambda *_, **__: times)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.25, 0.0, 0.0))
    return bench.run(toy("plain", "a"), rounds=3, threads=1)


def test_results_are_json_with_settings_and_provenance(results):
    assert json.loads(json.dumps(results)) == results
    assert results["settings"] == {
        "cases": ["plain", "a"],
        "baseline": "plain",
        "rounds": 3,
        "repetitions": 4,
        "threads": 1,
        "batch": 1,
        "seed": 0,
    }
    assert (results["suite"], results["load_before"], results["warning"]) == ("toy", 0.25, None)
    assert results["versions"]["torch"] == torch.__version__
    assert results["results"]["plain"] == {
        "seconds": 0.02,
        "ratio": 1.0,
        "quartiles": [1.0, 1.0],
        "interval": [1.0, 1.0],
    }
    assert results["results"]["a"] == {
        "seconds": 0.02,
        "ratio": 1.5,
        "quartiles": [1.25, 1.75],
        "interval": [1.0, 2.0],
    }


def test_tables(results):
    lines = table(results).splitlines()
    assert lines[0].split() == ["case", "ms", "per", "step", "ratio", "quartiles", "95%", "interval"]
    assert lines[2] == "a      20.00        1.500  1.250 to 1.750  1.000 to 2.000"
    assert "3 interleaved rounds of 4 steps" in lines[-1]
    assert table(results, markdown=True).splitlines()[1:] == [
        "|---|---|---|---|---|",
        "| plain | 20.00 | 1.000 | 1.000 to 1.000 | 1.000 to 1.000 |",
        "| a | 20.00 | 1.500 | 1.250 to 1.750 | 1.000 to 2.000 |",
    ]


@pytest.mark.parametrize(
    ("load", "cores", "warned"), [(0.4, 2, False), (0.6, 2, True), (2.0, 64, False), (4.0, 64, True)]
)
def test_a_busy_machine_is_noted(monkeypatch, load, cores, warned):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    results = bench.run(toy("plain"), rounds=1)
    assert results["load_before"] == load
    assert (results["warning"] is not None) is warned
    assert not warned or f"{load:.2f}" in results["warning"]


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_a_machine_without_a_load_average_is_measured_all_the_same(monkeypatch, error):
    def unknown():
        raise error

    monkeypatch.setattr(os, "getloadavg", unknown)
    results = bench.run(toy("plain"), rounds=1)
    assert (results["load_before"], results["warning"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"suite": "dens"}, ["`suite`", "'dens'", "'dense'"]),
        ({"suite": "dense", "rounds": 0}, ["`rounds`", "0"]),
        ({"suite": "dense", "threads": 0}, ["`threads`", "0"]),
    ],
)
def test_run_says_what_is_wrong(options, words):
    with pytest.raises(ValueError, match="Expected argument") as error:
        bench.run(**options)
    assert all(word in str(error.value) for word in words)
