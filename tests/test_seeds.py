"""A seed fixes a prediction, however it is cut into chunks: the numbers belong to the sample and the example."""

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from cases import METHODS, build
from compiled_kernels import with_fast
from slimbayes.sampling import BLOCK, Blocks, Part

try:
    from slimbayes._fast import row_noise
except ImportError:  # the folder may be deleted
    row_noise = None

SAMPLES, SIZE = 3, 45


def dense(width=40):
    return nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, 3))


def embedded():
    return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))


def dropping(dropout):
    return nn.Sequential(nn.Linear(5, 6), dropout, nn.Linear(6, 3))


MODELS = {
    "rank1": lambda: sb.rank1(dense(), members=2, dropout_rate=0.2),
    "rank1 of few numbers": lambda: sb.rank1(dense(4), members=2, dropout_rate=0.2),
    "clipped": lambda: sb.rank1(dense(), members=2, family="cauchy", clip=10.0),
    "student": lambda: sb.rank1(dense(), members=2, family="student_t", prior_family="cauchy"),
    "log_normal": lambda: sb.rank1(dense(), members=2, family="log_normal", factors="output"),
    "rank 2": lambda: sb.rank1(dense(), members=2, rank=2),
    "mean_field": lambda: sb.mean_field(dense(), init_std=0.1),
    "local": lambda: sb.mean_field(dense(160), init_std=0.1, estimator="local"),
    "k_tied local": lambda: sb.k_tied(dense(160), init_std=0.1, estimator="local"),
    "flipout": lambda: sb.mean_field(dense(), init_std=0.1, estimator="flipout"),
    "flipout per batch": lambda: sb.k_tied(dense(), init_std=0.1, estimator="flipout", sample_per="batch"),
    "embedding": lambda: sb.rank1(embedded(), members=2, embedding="mean_field"),
    "embedding of mean_field": lambda: sb.mean_field(embedded(), init_std=0.1, estimator="local"),
    "dropout": lambda: sb.mc_dropout(dense(), 0.3),
    "element": lambda: sb.mc_dropout(dense(), 0.3, unit="element"),
}


def model_of(name):
    torch.manual_seed(1)
    model = MODELS[name]().double()
    x = torch.randint(9, (SIZE, 2)) if "embedding" in name else torch.randn(SIZE, 5).double()
    return model, x


def predicted(model, x, **how):
    draws = model.predict(x, seed=3, **{"samples": SAMPLES, **how}).draws
    return draws.unflatten(0, (model.members, -1))


@pytest.mark.parametrize("noise", ["example", "independent", "shared"])
@pytest.mark.parametrize("name", MODELS)
def test_chunks_change_nothing(name, noise):
    model, x = model_of(name)
    whole = predicted(model, x, noise=noise, batch_size=SIZE)
    for chunks in ({"batch_size": 7}, {"max_memory": 2**13}, {}):
        torch.testing.assert_close(predicted(model, x, noise=noise, **chunks), whole, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(predicted(model, x[:20], noise=noise), whole[:, :, :20], rtol=1e-10, atol=1e-12)
    few = predicted(model, x, noise=noise, samples=2)
    torch.testing.assert_close(few, whole[:, :2], rtol=1e-10, atol=1e-12)
    assert (whole[:, 0] - whole[:, 1]).abs().amax() > 1e-3  # samples differ


@pytest.mark.parametrize("dropout", [nn.Dropout(0.4), nn.Dropout1d(0.4)], ids=lambda layer: type(layer).__name__)
def test_a_networks_own_dropout(dropout):
    model, x = sb.mc_dropout(dropping(dropout), place="own").double(), torch.randn(SIZE, 5).double()
    whole = predicted(model, x, batch_size=SIZE)
    for chunks in ({"batch_size": 7}, {"max_memory": 2**10}):
        torch.testing.assert_close(predicted(model, x, **chunks), whole, rtol=1e-10, atol=1e-12)


def test_without_a_seed_the_global_generator_decides():
    model, x = model_of("rank1")
    found = []
    for batch_size in (None, 7):
        torch.manual_seed(8)
        found.append(model.predict(x, samples=2, batch_size=batch_size).draws)
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)
    assert not torch.equal(model.predict(x, samples=2).draws, found[0])


def test_numbers_of_a_part_are_those_of_the_whole():
    """Each number is standard normal, and no two numbers of all samples, examples and layers are the same."""

    def draw(shape, generator):
        return torch.randn(*shape, 2, generator=generator, dtype=torch.float64)

    def numbers(name, members, *part):
        rows = members * part[1] * part[3]
        return Blocks(3, Part(*part), "cpu").for_rows(name, rows, draw, members).view(members, part[1], part[3], 2)

    whole = numbers("factor", 2, 0, 4, 0, 3 * BLOCK + 5)
    for sample, samples, example, examples in ((0, 4, 0, 1), (2, 2, 31, 2), (1, 1, BLOCK, BLOCK), (3, 1, 96, 5)):
        expected = whole[:, sample : sample + samples, example : example + examples]
        assert torch.equal(numbers("factor", 2, sample, samples, example, examples), expected)
    other = numbers("bias", 2, 0, 4, 0, 3 * BLOCK + 5)
    both = torch.cat([whole.flatten(), other.flatten()])
    assert both.unique().numel() == both.numel()
    assert abs(both.mean()) < 5 / both.numel() ** 0.5
    assert abs(both.var() - 1) < 5 * (2 / both.numel()) ** 0.5


# ------------------------------------------------------------------ two examples over many draws

JOINT = {
    "rank1": lambda: sb.rank1(nn.Linear(7, 1), members=1, dropout_rate=0.3, init="ones"),
    **{
        family: lambda family=family: sb.rank1(
            nn.Sequential(nn.Linear(7, 64), nn.Tanh(), nn.Linear(64, 1)), members=1, family=family, init="ones"
        )
        for family in ("student_t", "cauchy", "log_normal")
    },
    "mean_field": lambda: sb.mean_field(nn.Linear(7, 1), estimator="local", init_std=0.1),
    "k_tied": lambda: sb.k_tied(nn.Linear(7, 1), k=1, estimator="local", init_std=0.1),
}


@pytest.mark.parametrize("pass_of", ["forward", "predict"])
@pytest.mark.parametrize("name", JOINT)
def test_two_examples_are_uncorrelated_over_the_draws_of_a_pass(name, pass_of, monkeypatch):
    """Of n draws a correlation has the standard deviation 1 / sqrt(n), thrice that at most for shared magnitudes."""
    if row_noise is not None:
        monkeypatch.setattr(row_noise, "LEAST_OF_A_BLOCK", 1)
    draws = 5000
    model, x = JOINT[name](), torch.randn(8, 7)
    with torch.no_grad():
        if pass_of == "forward":
            outputs = model(x, samples=draws, generator=torch.Generator().manual_seed(0))
        else:
            outputs = model.predict(x, samples=draws, seed=0, likelihood="gaussian").draws
    correlation = np.corrcoef(outputs[..., 0].double().numpy().T)
    assert np.abs(correlation - np.eye(8)).max() < 3 * 5 / draws**0.5


@pytest.mark.skipif(not with_fast, reason="slimbayes._fast is deleted or switched off: rows draw noise of their own")
def test_draws_have_signs_of_their_own(monkeypatch):
    model = sb.rank1(nn.Linear(64, 1), members=4, dropout_rate=0.3, init="ones", factors="input")
    factor = model.net.input_factor
    drawn = []

    def keep(self, *args):
        drawn.append(of_factor(self, *args))
        return drawn[-1]

    of_factor = type(factor).drawn
    monkeypatch.setattr(type(factor), "drawn", keep)
    model(torch.ones(64, 64), samples=4)
    signs = row_noise.signs_of(drawn[-1].bits, 64).reshape(16, 64 * 64).double()
    off = signs @ signs.T / signs.shape[1] - torch.eye(16)
    assert off.abs().max() < 5 / signs.shape[1] ** 0.5


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_in_chunks(method):
    model, x = build(method, "mlp_3d")
    model = model.double()
    x = x.double()
    whole = model.predict(x, samples=2, seed=5).draws
    for chunks in ({"batch_size": 2}, {"max_memory": 1}):
        torch.testing.assert_close(model.predict(x, samples=2, seed=5, **chunks).draws, whole, rtol=1e-8, atol=1e-10)


def test_a_model_compiled_in_place_predicts_what_it_did_before():
    model, x = sb.rank1(nn.Linear(4, 3), members=2).eval(), torch.randn(5, 4)
    expected = model.predict(x, samples=2, seed=1).draws
    model.compile(backend="eager")
    assert torch.equal(model.predict(x, samples=2, seed=1).draws, expected)
