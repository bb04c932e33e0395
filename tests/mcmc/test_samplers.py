"""Samplers step by step: against torch's optimisers, against the formulas, and resumed."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.mcmc import PSGLD, SGHMC, SGLD

X, Y = torch.linspace(-1, 1, 12).double().reshape(6, 2), torch.linspace(0, 1, 6).double()
KINDS = [SGLD, SGHMC, PSGLD]


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def train(net: nn.Module, optimiser, steps: int = 20, schedule=None) -> list[torch.Tensor]:
    for _ in range(steps):
        optimiser.zero_grad()
        (net(X)[:, 0] - Y).square().mean().backward()
        optimiser.step()
        if schedule is not None:
            schedule.step()
    return [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("off", ["temperature", "noise"])
@pytest.mark.parametrize(
    ("build", "oracle"),
    [
        (lambda p, **o: SGLD(p, 0.1, 50, **o), lambda p, decay: torch.optim.SGD(p, 0.1, weight_decay=decay)),
        (
            lambda p, **o: SGHMC(p, 0.1, 50, momentum_decay=0.2, **o),
            lambda p, decay: torch.optim.SGD(p, 0.1, momentum=0.8, weight_decay=decay),
        ),
    ],
    ids=["sgld", "sghmc"],
)
def test_without_noise_a_sampler_is_sgd(build, oracle, off):
    plain = network()
    expected = train(plain, oracle(plain.parameters(), decay=1 / (50 * 2.0**2)))
    for prior in ({"prior_std": 2.0}, {"weight_decay": 1 / (50 * 2.0**2)}):
        net = network()
        sampler = build(net.parameters(), **prior, temperature=0.0 if off == "temperature" else 1.0)
        sampler.switch_noise(off != "noise")
        state = torch.get_rng_state()
        torch.testing.assert_close(train(net, sampler), expected, rtol=1e-11, atol=1e-13)
        assert torch.equal(torch.get_rng_state(), state)  # no noise is drawn


def test_without_noise_and_prior_psgld_is_rmsprop():
    plain, net = network(), network()
    oracle = torch.optim.RMSprop(plain.parameters(), 0.01, alpha=0.9, eps=1e-3)
    (plain(X)[:, 0] - Y).square().mean().backward()
    for p in plain.parameters():  # the mean squared gradient is where the squares start
        oracle.state[p] = {"step": torch.zeros(()), "square_avg": torch.full_like(p, p.grad.square().mean())}
    expected = train(plain, oracle)
    sampler = PSGLD(net.parameters(), 0.01, 50, decay=0.9, eps=1e-3, temperature=0.0)
    torch.testing.assert_close(train(net, sampler), expected, rtol=1e-11, atol=1e-13)


def test_full_friction_makes_sghmc_sgld():
    one, other = network(), network()
    sgld = SGLD(one.parameters(), 0.1, 50, prior_std=1.0, generator=torch.Generator().manual_seed(1))
    sghmc = SGHMC(
        other.parameters(), 0.1, 50, momentum_decay=1.0, prior_std=1.0, generator=torch.Generator().manual_seed(1)
    )
    torch.testing.assert_close(train(other, sghmc), train(one, sgld), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_two_steps_by_hand(kind):
    lr, num_data, temperature, mean, std = 0.2, 30, 0.5, 1.0, 0.4
    theta = nn.Parameter(torch.tensor([0.3, -2.0], dtype=torch.float64))
    options = {"decay": 0.9, "eps": 0.1} if kind is PSGLD else {"momentum_decay": 0.3} if kind is SGHMC else {}
    group = {"params": [theta], "prior_mean": mean, "prior_std": std}
    sampler = kind(
        [group], lr, num_data, temperature=temperature, generator=torch.Generator().manual_seed(7), **options
    )
    value, velocity, square = theta.detach().clone(), torch.zeros(2).double(), torch.full((2,), (1.0**2 + 0.5**2) / 2)
    noise = torch.Generator().manual_seed(7)
    for gradient in (torch.tensor([1.0, -0.5]).double(), torch.tensor([0.2, 3.0]).double()):
        theta.grad = gradient
        sampler.step()
        xi = torch.randn(2, generator=noise, dtype=torch.float64)
        whole = num_data * gradient + (value - mean) / std**2  # gradient of U
        eps = lr / num_data
        if kind is SGLD:  # Welling & Teh, with their step size 2 * eps
            value = value - (2 * eps) / 2 * whole + (2 * eps * temperature) ** 0.5 * xi
        elif kind is SGHMC:  # Chen et al., Eq. 15
            velocity = 0.7 * velocity - eps * whole + (2 * 0.3 * eps * temperature) ** 0.5 * xi
            value = value + velocity
        else:  # Li et al., Algorithm 1, with their step size 2 * eps, V started at the mean squared gradient
            square = 0.9 * square + 0.1 * gradient**2
            scale = 1 / (0.1 + square**0.5)
            value = value - eps * scale * whole + (2 * eps * scale * temperature) ** 0.5 * xi
        torch.testing.assert_close(theta.detach(), value, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumes_bit_by_bit(kind):
    def build(net, seed):
        groups = [{"params": net[0].parameters(), "lr": 0.05}, {"params": net[2].parameters(), "temperature": 0.1}]
        return kind(groups, lr=0.02, num_data=10, prior_std=1.0, generator=torch.Generator().manual_seed(seed))

    whole = network()
    sampler = build(whole, 1)
    train(whole, sampler, steps=3)
    stored = io.BytesIO()
    torch.save([whole.state_dict(), sampler.state_dict(), sampler.generator.get_state()], stored)
    expected = train(whole, sampler, steps=3)

    stored.seek(0)
    weights, state, noise = torch.load(stored)
    resumed = network()
    resumed.load_state_dict(weights)
    again = build(resumed, 2)
    again.load_state_dict(state)
    again.generator.set_state(noise)
    for one, other in zip(train(resumed, again, steps=3), expected, strict=True):
        assert torch.equal(one, other)


def test_noise_comes_from_the_generator_or_else_the_global_one():
    def end(seed, generator):
        net = network()
        torch.manual_seed(seed)
        return train(net, SGLD(net.parameters(), 0.1, 10, generator=generator))[0]

    assert torch.equal(end(1, None), end(1, None))
    assert not torch.equal(end(1, None), end(2, None))
    assert torch.equal(end(1, torch.Generator().manual_seed(5)), end(2, torch.Generator().manual_seed(5)))


def test_groups_have_options_of_their_own_and_frozen_parameters_stay():
    still, sampled, frozen = (nn.Parameter(torch.ones(1000)) for _ in range(3))
    sampler = SGLD([{"params": [still], "temperature": 0.0}, {"params": [sampled, frozen]}], lr=0.5, num_data=4)
    sampler.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "num_data": 8})
    still.grad, sampled.grad = torch.zeros(1000), torch.zeros(1000)
    sampler.switch_noise(False)
    sampler.switch_noise(True)
    sampler.step()
    assert torch.equal(still, torch.ones(1000))
    assert torch.equal(frozen, torch.ones(1000))
    # sqrt(2 lr / N) = 0.5; the standard error of a standard deviation of 1000 is 0.011.
    assert sampled.std().item() == pytest.approx(0.5, abs=0.05)
    assert [group["num_data"] for group in sampler.param_groups] == [4, 4, 8]


def test_momenta_are_resampled_at_the_temperature():
    theta = nn.Parameter(torch.zeros(20_000))
    sampler = SGHMC([theta], lr=0.1, num_data=10, temperature=4.0)
    sampler.resample_momentum()
    momentum = sampler.state[theta]["momentum"]
    # Standard errors: 2 / sqrt(20000) = 0.014 of the mean, 0.01 of the standard deviation.
    assert momentum.mean().item() == pytest.approx(0.0, abs=0.06)
    assert momentum.std().item() == pytest.approx(2.0, abs=0.05)
    assert torch.equal(theta, torch.zeros(20_000))
    sampler.switch_noise(False)
    sampler.resample_momentum()
    assert torch.equal(sampler.state[theta]["momentum"], torch.zeros(20_000))


def test_a_schedule_moves_the_step_size_of_a_momentum_that_stays():
    # Wenzel et al., Algorithm 1, with h = sqrt(lr / N) of each step.
    theta = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    sampler = SGHMC([theta], 0.1, 50, momentum_decay=0.2, temperature=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(sampler, lambda step: 1 / (step + 1))
    position, momentum = 2.0, 0.0
    for step in range(5):
        theta.grad = theta.detach().clone()
        sampler.step()
        schedule.step()
        h = (0.1 / (step + 1) / 50) ** 0.5
        momentum = 0.8 * momentum - h * 50 * position
        position += h * momentum
        assert theta.item() == pytest.approx(position, rel=1e-12)


def test_a_closure_is_called_with_gradients_before_the_step():
    theta = nn.Parameter(torch.tensor([2.0]))
    sampler = SGLD([theta], 0.25, 10, temperature=0.0)

    def closure():
        sampler.zero_grad()
        loss = theta.square().sum()
        loss.backward()
        return loss

    assert sampler.step(closure).item() == 4.0
    assert theta.item() == 1.0


def test_copies_sample_too():
    net = network()
    sampler = SGLD(net.parameters(), 0.1, 10, generator=torch.Generator().manual_seed(1))
    for twin in (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)):
        for parameter in twin.param_groups[0]["params"]:
            parameter.grad = torch.zeros_like(parameter)
        twin.step()
        assert twin.generator is None


def test_the_groups_of_a_model_are_taken():
    model = sb.rank1(network(), members=2)
    elbo = sb.ELBO(model, num_data=6, likelihood="gaussian")
    sampler = SGLD(model.param_groups(lr=1e-3, weight_decay=1e-4, factor_lr=1e-2), lr=1.0, num_data=6)
    before = [p.detach().clone() for p in model.parameters()]
    elbo(model(X), Y[:, None]).backward()
    sampler.step()
    assert all(not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda p: SGLD(p, -0.1, 10), ["`lr`", "-0.1", "such as 0.01"]),
        (lambda p: SGLD(p, float("nan"), 10), ["`lr`", "nan"]),
        (lambda p: SGLD(p, 0.1, 0), ["`num_data`", "0", "not the batch size"]),
        (lambda p: SGLD(p, 0.1, 10.5), ["`num_data`", "10.5"]),
        (lambda p: SGLD(p, 0.1, 10, temperature=-1.0), ["`temperature`", "-1.0", "posterior"]),
        (lambda p: SGLD(p, 0.1, 10, prior_std=0.0), ["`prior_std`", "0.0", "None"]),
        (lambda p: SGLD(p, 0.1, 10, weight_decay=-1.0), ["`weight_decay`", "-1.0"]),
        (lambda p: SGLD([{"params": p, "prior_mean": "one"}], 0.1, 10), ["`prior_mean`", "'one'"]),
        (lambda p: SGHMC(p, 0.1, 10, momentum_decay=0.0), ["`momentum_decay`", "0.0", "0.1"]),
        (lambda p: SGHMC(p, 0.1, 10, momentum_decay=1.1), ["`momentum_decay`", "1.1", "at most 1"]),
        (lambda p: PSGLD(p, 0.1, 10, decay=1.0), ["`decay`", "1.0", "0.99"]),
        (lambda p: PSGLD(p, 0.1, 10, eps=0.0), ["`eps`", "0.0", "1e-5"]),
    ],
)
def test_errors_name_the_argument(build, words):
    with pytest.raises(ValueError, match="Expected argument") as error:
        build([nn.Parameter(torch.zeros(1))])
    for word in words:
        assert word in str(error.value)


def test_sparse_gradients_are_refused():
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="`params`.*sparse=False"):
        SGLD(table.parameters(), 0.1, 10).step()
