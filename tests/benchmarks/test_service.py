"""Prediction as a service: every form gives the right probabilities, and the figures are those of the timings."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from benchmarks import service
from benchmarks.networks import BenchNetwork, conv_net, dense_net
from benchmarks.service import WrongAnswer, check_distribution, check_same, run_service, service_table
from benchmarks.service_forms import FORMS, MODULES, PerExample, Plain, Served, build_modules

TINY = BenchNetwork("tiny", "tiny", lambda: dense_net(4), (4,), 8)
NETS = {"dense": (lambda: dense_net(4), (4,)), "conv": (lambda: conv_net(2), (3, 8, 8))}
COMPILERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("compiled", "exported")]
#: What torch's compilers say about themselves.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.mark.parametrize("form", ["eager", "onnx", *COMPILERS])
@pytest.mark.parametrize("net", ["dense", pytest.param("conv", marks=pytest.mark.slow)])
def test_every_form_gives_the_mixture_of_the_folded_members(net, form, tmp_path):
    torch._dynamo.reset()
    build, shape = NETS[net]
    model = sb.rank1(build(), members=3, dropout_rate=0.1).eval()
    with torch.no_grad():
        draw = model.draw()
    request = FORMS[form](Served(model, draw), torch.randn(5, *shape), tmp_path)
    members = [model.member(k, 0, draw=draw).eval() for k in range(3)]
    for batch in (1, 2, 5, 7):
        x = torch.randn(batch, *shape)
        with torch.no_grad():
            expected = sum(member(x).softmax(-1) for member in members) / 3
        torch.testing.assert_close(request(x), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", ["predict", "eager", "onnx", *COMPILERS])
def test_every_form_draws_noise_per_example(form, tmp_path):
    torch.manual_seed(0)
    torch._dynamo.reset()
    net = nn.Linear(1, 2, bias=False)
    nn.init.constant_(net.weight[0], 0.0)
    nn.init.constant_(net.weight[1], 1.0)
    model = sb.rank1(net, members=1, factors="input", init="ones", dropout_rate=0.1).eval()
    x = torch.ones(4000, 1)
    model(x)
    request = FORMS[form](PerExample(model), x, tmp_path)
    probs = request(x)
    factors = probs[:, 1].logit()  # the logits are 0 and the factor itself
    scale = model.net.input_factor.scale.item()
    assert factors.mean().item() == pytest.approx(1, abs=5 * scale / 4000**0.5)
    assert factors.std().item() == pytest.approx(scale, rel=0.06)  # 5 standard errors of a deviation
    assert not torch.equal(request(x), probs)
    assert [len(request(x[:batch])) for batch in (1, 2, 7)] == [1, 2, 7]


def test_modules():
    modules = build_modules(dense_net(4), members=3)
    assert tuple(modules) == MODULES
    assert [module.draws for module in modules.values()] == [1, 3, 3]
    assert not any(part.training for module in modules.values() for part in module.modules())
    x = torch.randn(5, 4)
    torch.testing.assert_close(modules["plain"](x), torch.softmax(modules["plain"].net(x), 1))


def test_a_plain_module_has_no_predict(tmp_path):
    results = run_service([TINY], [2], ["predict", "eager"], requests=1)
    pairs = [(one["module"], one["form"]) for one in results["results"]["tiny"]["2"]]
    assert pairs == [(MODULES[0], "eager"), (MODULES[1], "eager"), (MODULES[2], "predict"), (MODULES[2], "eager")]


def test_wrong_answers_are_found():
    x = torch.rand(4, 3)
    assert check_same(lambda x: x + 1e-6, lambda x: x, x) == pytest.approx(1e-6, rel=0.2)
    for wrong in (lambda x: x + 1e-4, lambda x: x * float("nan")):
        with pytest.raises(WrongAnswer, match="batch 4"):
            check_same(wrong, lambda x: x, x)


def test_wrong_noise_is_found():
    torch.manual_seed(0)
    x = torch.ones(2, 3)

    def noisy(x):
        return x + 0.1 * torch.randn(x.shape)

    assert check_distribution(noisy, noisy, x) < 7
    with pytest.raises(WrongAnswer, match="standard errors"):
        check_distribution(lambda x: noisy(x) + 0.2, noisy, x)
    with pytest.raises(WrongAnswer, match="same noise"):
        check_distribution(lambda x: x, noisy, x)
    with pytest.raises(WrongAnswer, match="shape"):
        check_distribution(lambda x: noisy(x)[:1], noisy, x)


@pytest.fixture
def results(monkeypatch):
    """A run whose timings are given, and in which one form cannot be made and another is wrong."""

    def broken(module, x, folder):
        raise RuntimeError("Export failed\nin many lines") from KeyError("no compiler")

    def wrong(module, x, folder):
        return lambda x: torch.zeros(len(x), 10)

    def measure(cases, rounds, **_):
        return {name: np.arange(1.0, rounds + 1) * (0.004 if "held" in name else 0.001) for name in cases}

    monkeypatch.setitem(service.FORMS, "broken", broken)
    monkeypatch.setitem(service.FORMS, "wrong", wrong)
    monkeypatch.setattr(service, "measure", measure)
    return run_service([TINY], [2, 3], ["eager", "broken", "wrong"], requests=5)


def test_figures_are_those_of_the_timings(results):
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    plain, held, *_ = results["results"]["tiny"]["2"]
    assert plain["p50"] == pytest.approx(0.003)
    assert plain["p99"] == pytest.approx(0.00496)  # a linear rule: 0.96 of the way from the fourth of 5 to the last
    assert plain["rows_per_second"] == pytest.approx(2 / 0.003)
    assert plain["ratio"]["median"] == 1
    assert held["ratio"]["median"] == pytest.approx(4)
    assert results["versions"]["torch"] == torch.__version__


def test_what_is_not_measured_has_a_reason(results):
    for rows in results["results"]["tiny"].values():
        reasons = {(one["module"], one["form"]): one["unavailable"] for one in rows if "unavailable" in one}
        assert len(reasons) == 6
        assert reasons["plain", "broken"] == "KeyError: 'no compiler'"
        assert reasons["plain", "wrong"].startswith("WrongAnswer: its probabilities differ")
        assert "same noise" in reasons["rank1 per example", "wrong"]


def test_tables(results):
    shown = service_table(results, markdown=True)
    lines = shown.splitlines()
    assert lines[2] == "| tiny | 2 | plain | eager | 667 | 3.00 | 4.96 | 1.00 | 1.00 |"
    assert lines[3] == "| tiny | 2 | rank1 held draw | eager | 167 | 12.00 | 19.84 | 4.00 | 1.00 |"
    assert shown.count("Not measured") == 6
    assert "4 members" in service_table(results)


def test_the_number_of_requests_follows_the_seconds(monkeypatch):
    asked = []

    def measure(cases, rounds, **_):
        asked.append(rounds)
        return {name: np.full(rounds, 0.001) for name in cases}

    monkeypatch.setattr(service, "measure", measure)
    ready = {(module, "eager"): lambda x: x for module in MODULES}
    # Three cases of 1 ms, each with one request that is not timed: 6 ms a round.
    for seconds, expected in ((0.6, 100), (0.01, 50), (600, 2000)):
        rows = service._time(ready, torch.ones(2, 1), None, seconds, seed=0)
        assert asked[-1] == rows[0]["requests"] == pytest.approx(expected, abs=1)


def test_threads_and_generator_are_put_back():
    threads, state, saved = torch.get_num_threads(), torch.get_rng_state(), []
    run_service([TINY], [2, 3], ["eager"], requests=1, threads=threads + 1, save=lambda results: saved.append(1))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert len(saved) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"networks": ["mlp_511"]}, "`networks`.*'mlp_512'"),
        ({"forms": ["onyx"]}, "`forms`.*'onnx'"),
        ({"batches": [0]}, "`batches`.*0"),
        ({"requests": 0}, "`requests`.*0"),
        ({"seconds": 0}, "`seconds`.*0"),
    ],
)
def test_run_service_says_what_is_wrong(options, words):
    with pytest.raises(ValueError, match=words):
        run_service(**options)


def test_a_missing_runtime_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="pip install.*onnxruntime"):
        FORMS["onnx"](Plain(nn.Linear(4, 3)), torch.randn(2, 4), tmp_path)
