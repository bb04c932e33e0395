"""One model in several threads, and calls of a model within calls: every pass has a state of its own."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
import torch
from torch import nn

import slimbayes as sb
from cases import METHODS, build

THREADS = 8


@pytest.fixture(autouse=True)
def _switch_often():
    """Let Python change threads a thousand times as often as it would."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def requests(method):
    """Return what threads ask for: noise, samples and seed."""
    noises = ("example", "shared", "independent")
    every = [{"noise": noise, "samples": 1 + i % 3, "seed": i} for i, noise in enumerate(noises * 4)]
    return [*every, *[{"samples": 0}] * 4]


@pytest.mark.parametrize("method", METHODS)
def test_threads_get_what_they_would_get_alone(method):
    model, x = build(method, "mlp_3d")
    model(x)  # in training mode, which each prediction leaves and comes back to
    asked = requests(method)
    alone = [model.predict(x, **how).draws for how in asked]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(lambda how: model.predict(x, **how).draws, asked * 3))
    for i, found in enumerate(together):
        assert torch.equal(found, alone[i % len(asked)]), asked[i % len(asked)]
    assert model.sampling.rows is None
    assert all(module.training for module in model.modules())


def test_predictions_of_many_shapes_do_not_hear_each_others_probes():
    """Each shape is new to the model, which then watches a pass of one example by hooks."""
    model = sb.rank1(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), members=2).eval()
    inputs = [torch.randn(6, 1 + i % 7, 4) for i in range(28)]
    alone = [model.predict(x, seed=i, samples=2).draws for i, x in enumerate(inputs)]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(lambda i: model.predict(inputs[i], seed=i, samples=2).draws, range(28)))
    assert all(map(torch.equal, together, alone))
    assert not any(module._forward_hooks for module in model.modules())


def test_a_layer_outside_a_pass_raises_while_another_thread_has_one():
    inside, outside = [], []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            with ThreadPoolExecutor(1) as pool:
                inside.append(pool.submit(called_alone).result())
            return self.layer(x)

    def called_alone():
        try:
            model.net.layer(torch.ones(2, 3))
        except RuntimeError as error:
            return str(error)

    model = sb.rank1(Watched(), members=2)
    model(torch.ones(4, 3))
    outside.append(called_alone())
    assert all("outside a forward pass" in text for text in (*inside, *outside))
    assert len(inside) == 3  # the first pass comes after two that try the network


class Calling(nn.Module):
    """Calls something between its two layers, which in a model are called by two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 2)
        self.calls: list = []

    def forward(self, x):
        h = self.first(x).tanh()
        for call in self.calls:
            call()
        return self.second(h)


@pytest.mark.parametrize("make", [sb.rank1, sb.mean_field, sb.mc_dropout], ids=lambda make: make.__name__)
@pytest.mark.parametrize("noise", ["example", "shared"])
def test_a_model_within_itself(make, noise):
    """The inner call finds its own state, and the outer one goes on with the one it had."""
    model, other = make(Calling()).eval(), make(Calling()).eval()
    x, y = torch.randn(4, 3), torch.randn(7, 3)

    def of(model, x, samples):
        return model(x, samples=samples, noise=noise, generator=torch.Generator().manual_seed(1))

    def inner():
        calls, net.calls = net.calls, []
        inner_found.append((of(model, y, 3), of(other, y, 2), model.predict(y, samples=2, noise=noise, seed=4).draws))
        net.calls = calls

    expected = (
        of(model, x, 2),
        (of(model, y, 3), of(other, y, 2), model.predict(y, samples=2, noise=noise, seed=4).draws),
    )
    net, inner_found = model.net, []
    net.calls = [inner]
    assert torch.equal(of(model, x, 2), expected[0])
    assert all(map(torch.equal, inner_found[0], expected[1]))


def test_stored_draws_of_a_prediction_are_not_those_of_one_around_it():
    """A prediction that a network makes during another takes its stored draws from the first on."""
    model, x = build("swag", "resnet")
    model.eval()
    alone = model.predict(x, samples=3, seed=1).draws
    within = []

    def call(*_):
        hook.remove()
        within.append(model.predict(x, samples=3, seed=1).draws)

    hook = model.net.networks[0].register_forward_hook(call)
    assert torch.equal(model.predict(x, samples=3, seed=1).draws, alone)
    assert torch.equal(within[0], alone)


def test_a_generator_that_is_left_half_way_changes_nothing():
    model, x = sb.rank1(nn.Linear(3, 2), members=2), torch.randn(4, 3)

    def answers():
        for seed in range(3):
            yield model(x, generator=torch.Generator().manual_seed(seed))

    started = answers()
    first = next(started)
    between = model(x, samples=3, generator=torch.Generator().manual_seed(5))
    assert torch.equal(first, model(x, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(between, model(x, samples=3, generator=torch.Generator().manual_seed(5)))
    started.close()
    assert model.sampling.rows is None


class Cascade(nn.Module):
    """Predicts with another model in its forward."""

    def __init__(self, inner: sb.BayesianModel) -> None:
        super().__init__()
        self.inner, self.head = [inner], nn.Linear(4, 3)  # in a list: it is not to be converted

    def forward(self, x):
        return self.head(self.inner[0].predict(x, samples=2, seed=0, likelihood="gaussian").mean)


def test_a_network_that_predicts_with_another_model_answers():
    """Before, a prediction waited for itself: both models were tried under one lock."""
    inner = sb.mean_field(nn.Linear(4, 4), init_std=0.1)
    model, x = sb.rank1(Cascade(inner), members=2, dropout_rate=0.1), torch.randn(5, 4)
    found: list = []
    threads = [
        Thread(target=lambda: found.append(model.predict(x, samples=2, seed=1).draws), daemon=True)
        for _ in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert len(found) == THREADS
    features = inner.predict(x, samples=2, seed=0, likelihood="gaussian").mean
    alone = model.predict(x, samples=2, seed=1).draws
    assert all(torch.equal(one, alone) for one in found)
    torch.testing.assert_close(model(x, samples=0)[1], model.member(1).head(features))
