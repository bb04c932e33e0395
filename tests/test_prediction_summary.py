"""Predictions without their draws: every figure is that of the draws, and what needs draws says so."""

import json
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import slimbayes as sb
from cases import METHODS, build
from slimbayes import _chunks
from slimbayes.prediction import PredictionSummary

CLASSES = ("class_log_probs", "log_probs", "probs", "label", "confidence", "entropy", "expected_entropy")
CLASSES += ("mutual_information", "disagreement")
REALS = ("mean", "std", "aleatoric_std", "epistemic_std")
NEED_DRAWS = {
    "draws": lambda p: p.draws,
    "outputs": lambda p: p.outputs,
    "draw_log_probs": lambda p: p.draw_log_probs,
    "member_probs": lambda p: p.member_probs,
    "moments": lambda p: p.moments,
    "quantile": lambda p: p.quantile(0.5),
    "interval": lambda p: p.interval(0.9),
    "log_likelihood": lambda p: p.log_likelihood(torch.zeros(len(p))),
}


class Steps(nn.Module):
    """The classes of each of three steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 12)

    def forward(self, x):
        return self.layer(x).unflatten(-1, (3, 4))


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs))


#: Likelihood, network, and the figures that there are.
READINGS = {
    "categorical": (sb.Categorical(), lambda: mlp(3), CLASSES),
    "steps": (sb.Categorical(), Steps, CLASSES),
    "classes first": (sb.Categorical(class_dim=2), Steps, CLASSES),
    "bernoulli": (sb.Bernoulli(), lambda: mlp(1), CLASSES),
    "several labels": (sb.Bernoulli(), lambda: mlp(3), CLASSES),
    "ordinal": (sb.Ordinal(levels=4), lambda: mlp(1), CLASSES),
    "fixed noise": (sb.Gaussian(noise=0.5), lambda: mlp(2), REALS),
    "learned noise": (sb.Gaussian(initial=0.7), lambda: mlp(1), REALS),
    "noise of each output": (sb.Gaussian(outputs=2), lambda: mlp(2), REALS),
    "predicted noise": (sb.Gaussian(noise="predicted"), lambda: mlp(2), REALS),
    "student_t": (sb.StudentT(df=5.0), lambda: mlp(1), REALS),
    "poisson": (sb.Poisson(), lambda: mlp(1), REALS),
    "negative_binomial": (sb.NegativeBinomial(), lambda: mlp(1), REALS),
    "cox": (sb.Cox(), lambda: mlp(1), REALS),
    "none": (None, lambda: mlp(3), CLASSES + REALS),
    "none, one number": (None, lambda: mlp(1), REALS),
}


@pytest.fixture
def small(monkeypatch) -> None:
    """Draws are few no more: seven examples of 100 are summarised at once."""
    monkeypatch.setattr(_chunks, "KEPT", 99)
    monkeypatch.setattr(_chunks, "SUMMARISED", 0)


def model_of(name: str, members: int = 3) -> sb.BayesianModel:
    likelihood, net, _ = READINGS[name]
    model = sb.rank1(net(), members=members, prior_std=0.5, init_spread=1.0)
    model.likelihood = likelihood
    return model


@pytest.mark.parametrize("noise", ["example", "shared"])
@pytest.mark.parametrize("members", [3, 1])
@pytest.mark.parametrize("name", READINGS)
def test_every_figure_is_that_of_the_draws(small, name: str, members: int, noise: str) -> None:
    model, x = model_of(name, members), torch.randn(100, 2)
    how = {"samples": 4, "noise": noise, "seed": 5, "batch_size": 7}
    kept, summary = model.predict(x, keep_draws=True, **how), model.predict(x, **how)
    assert type(kept) is sb.Prediction
    assert type(summary) is PredictionSummary
    assert len(summary) == len(kept) == 100
    for figure in READINGS[name][2]:
        expected = getattr(kept, figure)
        torch.testing.assert_close(getattr(summary, figure), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(getattr(summary[[5, 50]], figure), expected[[5, 50]], rtol=1e-5, atol=1e-5)
    for figure in {*CLASSES, *REALS} - {*READINGS[name][2]}:
        errors = []
        for p in (kept, summary):
            with pytest.raises(ValueError, match=r"\. ") as error:
                getattr(p, figure)
            errors.append(str(error.value))
        assert re.sub(r"\d+", "N", errors[0]) == re.sub(r"\d+", "N", errors[1])  # apart from the sizes of chunks


@pytest.mark.parametrize("method", METHODS)
def test_every_method(small, method: str) -> None:
    model, x = build(method, "mlp_3d")
    x = x.repeat(8, 1, 1)
    how = {"samples": 3, "seed": 5, "batch_size": 6, "likelihood": "categorical"}
    kept, summary = model.predict(x, keep_draws=True, **how), model.predict(x, **how)
    assert type(summary) is PredictionSummary
    torch.testing.assert_close(summary.probs, kept.probs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(summary.mutual_information, kept.mutual_information, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NEED_DRAWS)
def test_what_needs_draws_names_the_remedy(small, name: str) -> None:
    summary = model_of("learned noise").predict(torch.randn(100, 2))
    with pytest.raises(ValueError, match=rf"{name}.*predict\(x, keep_draws=True\)"):
        NEED_DRAWS[name](summary)


def test_calibration_names_the_remedy(small) -> None:
    summary = model_of("categorical").predict(torch.randn(100, 2))
    with pytest.raises(ValueError, match="keep_draws=True"):
        sb.calibration_split(summary, torch.zeros(100).long())


def test_few_draws_are_kept_and_summaries_can_be_asked_for(monkeypatch) -> None:
    model, x = model_of("categorical"), torch.randn(10, 2)
    how = {"samples": 2, "seed": 1}
    monkeypatch.setattr(_chunks, "KEPT", 3 * 2 * 10 * 3)  # draws, examples, classes
    assert type(model.predict(x, **how)) is sb.Prediction
    monkeypatch.setattr(_chunks, "KEPT", 3 * 2 * 10 * 3 - 1)
    assert type(model.predict(x, **how)) is PredictionSummary
    assert model.predict(x, keep_draws=True, **how).draws.shape == (6, 10, 3)
    monkeypatch.undo()
    assert type(model.predict(x, keep_draws=False, **how)) is PredictionSummary
    with pytest.raises(TypeError, match="`keep_draws` to be True, False or None"):
        model.predict(x, keep_draws=1)


@pytest.mark.parametrize("likelihood", [sb.Quantile(levels=[0.1, 0.5, 0.9]), lambda outputs, targets: outputs[..., 0]])
def test_where_there_is_no_figure_the_draws_are_kept(small, likelihood) -> None:
    model, x = sb.rank1(mlp(3), members=2), torch.randn(100, 2)
    p = model.predict(x, likelihood=likelihood, batch_size=7)
    assert p.draws.shape == (2, 100, 3)
    with pytest.raises(ValueError, match="nothing to keep: keep_draws=True"):
        model.predict(x, likelihood=likelihood, keep_draws=False)


def test_draws_are_kept_if_their_weights_are_larger_than_the_memory(small) -> None:
    model, x = sb.mean_field(mlp(3)), torch.randn(100, 2)
    numbers = 2 * 8 + 8 + 8 * 3 + 3
    how = {"samples": 4, "noise": "shared", "seed": 2, "batch_size": 7}
    bounded = model.predict(x, max_memory=4 * 4 * numbers - 1, **how)
    summary = model.predict(x, max_memory=4 * 4 * numbers, **how)
    assert type(bounded) is sb.Prediction
    assert type(summary) is PredictionSummary
    torch.testing.assert_close(summary.probs, bounded.probs)


def test_sequence_first(small) -> None:
    net = nn.RNN(2, 7)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = net, nn.Linear(7, 4)

        def forward(self, x):
            return self.head(self.rnn(x)[0])

    model, x = sb.rank1(Tagger(), members=2, batch_dim=1), torch.randn(3, 50, 2)
    how = {"samples": 2, "seed": 5, "batch_size": 8, "likelihood": "categorical"}
    kept, summary = model.predict(x, keep_draws=True, **how), model.predict(x, **how)
    assert summary.probs.shape == (3, 50, 4)
    assert len(summary) == len(kept) == 50
    torch.testing.assert_close(summary.entropy, kept.entropy)
    torch.testing.assert_close(summary[10:20].probs, kept[10:20].probs)


def test_outputs_with_examples_elsewhere_keep_their_draws(small) -> None:
    class BatchFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 4)

        def forward(self, x):
            return self.head(x).transpose(0, 1)

    model, x = sb.rank1(BatchFirst(), members=2, batch_dim=1), torch.randn(3, 50, 2)
    p = model.predict(x, likelihood="categorical", batch_size=8)
    assert p.draws.shape == (2, 50, 3, 4)


def test_a_graph_is_summarised_as_one(small) -> None:
    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 3)

        def forward(self, x, edges):
            return self.layer(x).index_add(0, edges[1], self.layer(x)[edges[0]])

    model, x = sb.rank1(Convolution(), members=2), torch.randn(60, 2)
    edges = sb.BatchAxis(torch.randint(60, (2, 90)), index=True)
    how = {"samples": 3, "seed": 5}
    kept, summary = model.predict(x, edges, keep_draws=True, **how), model.predict(x, edges, **how)
    assert type(summary) is PredictionSummary
    assert len(summary) == len(kept) == 60
    torch.testing.assert_close(summary.mutual_information, kept.mutual_information)


def test_the_first_nan_is_counted_from_the_first_example(small) -> None:
    class Logarithm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1, bias=False)

        def forward(self, x):
            return self.layer(x).relu() * 0 + x.log()

    model, x = sb.deterministic(Logarithm()), torch.ones(100, 1)
    x[61] = -1
    with pytest.raises(ValueError, match="nan for example 61 "):
        model.predict(x, batch_size=7)


def test_summaries_move_and_show_what_they_hold(small) -> None:
    p = model_of("learned noise").predict(torch.randn(100, 2))
    assert repr(p) == "PredictionSummary(100 examples: mean, aleatoric_std, epistemic_std)"
    assert torch.equal(p.to("cpu").mean, p.mean)
    assert p.to("cpu").likelihood is not p.likelihood
    assert p[:3].mean.shape == (3, 1)
    with pytest.raises(TypeError, match=r"p\[:1\]"):
        p[0]


PROGRAM = """
import json, resource, torch, slimbayes as sb
torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
model = sb.rank1(torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)), members=4)
x = torch.randn(1_000_000, 4)
model.predict(x[:1000], samples=4, seed=0)
before = peak()
p = model.predict(x, samples=4, seed=0, likelihood="categorical")
held = sum(values.nbytes for values in p.figures.values()) / 2**20
print(json.dumps({"held": held, "grown": peak() - before}))
"""


@pytest.mark.slow
def test_memory_of_a_million_examples() -> None:
    """16 draws of 10 logits of a million examples are 610 MiB; kept, they made the peak grow by 2054 MiB."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["held"] == pytest.approx(4 * 12 * 1_000_000 / 2**20)  # log-probabilities and two more figures
    assert found["grown"] < 500, found  # measured: 405
