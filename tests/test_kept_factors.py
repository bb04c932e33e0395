"""Chains over rank-1 factors: each has the posterior given the base, at the price of one number for each channel."""

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.mcmc import chain_report, kept_samples
from test_sgmcmc import NUM_DATA, check_posterior, posterior, regression, run_chains


@pytest.mark.parametrize(
    ("members", "rank", "prior_std", "algorithm", "lr", "decay", "temperature"),
    [
        (2, 1, 0.4, "sgld", 0.06, 1.0, 1.0),
        (4, 1, 0.4, "sghmc", 0.04, 0.4, 1.0),
        (3, 1, 0.4, "sghmc", 0.04, 0.4, 0.3),
        (2, 2, 0.12, "sghmc", 0.04, 0.4, 1.0),  # only the prior holds s_1 - s_2
    ],
)
def test_each_chain_has_the_posterior_given_the_base(members, rank, prior_std, algorithm, lr, decay, temperature):
    x, y = regression()
    net = nn.Linear(3, 1).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.8, 1.2, -0.6]]))
    options = {"factors": "input", "rank": rank, "freeze_base": True, "prior_std": prior_std}
    model = sb.sgmcmc(net, members, over="factors", keep=1200, **options)
    run_chains(model, x, y, algorithm, lr, decay, temperature, steps=2400, every=2)
    # y = sum_j (W ∘ s_j) x + b is linear in the stacked s_j, whose priors have the mean 1 / R.
    features = (x * net.weight.detach()).repeat(1, rank)
    mean, precision = posterior(features, y - net.bias.item(), 1 / rank, prior_std)
    for samples in kept_samples(model)["input_factor"].flatten(2):
        check_posterior(samples.unsqueeze(0), mean, precision, lr, decay, temperature)
    assert torch.equal(model.net.weight, net.weight)


@pytest.mark.parametrize("algorithm", ["sgld", "sghmc"])
def test_without_noise_each_chain_takes_the_steps_that_it_would_take_alone(algorithm):
    """Four chains against four models of one chain; and the base against SGD on the mean loss."""
    x, y = (tensor.float() for tensor in regression())
    net = nn.Linear(3, 1)
    together = sb.sgmcmc(net, 4, over="factors", freeze_base=True)

    def train(model):
        elbo = sb.ELBO(model, NUM_DATA, sb.Gaussian(noise=0.5))
        sampler = sb.chain_sampler(model, NUM_DATA, algorithm, lr=0.02, temperature=0.0)
        for _ in range(5):
            sampler.zero_grad()
            elbo(model(x), y).backward()
            sampler.step()
        return [factor.loc.detach().clone() for factor in model.stochastic()]

    starts = [factor.loc.detach().clone() for factor in together.stochastic()]
    ends = train(together)
    for member in range(4):
        alone = sb.sgmcmc(net, 1, over="factors", freeze_base=True)
        with torch.no_grad():
            for factor, start in zip(alone.stochastic(), starts, strict=True):
                factor.loc.copy_(start[member : member + 1])
        for found, end in zip(train(alone), ends, strict=True):
            torch.testing.assert_close(found[0], end[member], rtol=1e-5, atol=1e-6)


def test_the_base_is_optimised_on_the_mean_loss():
    x, y = (tensor.float() for tensor in regression())
    net = nn.Linear(3, 1)
    model = sb.sgmcmc(net, 3, over="factors")
    elbo = sb.ELBO(model, NUM_DATA, sb.Gaussian(noise=0.5))
    loss = sum(elbo.likelihood.log_prob(model.member(k)(x)[None], y).mean() for k in range(3)) / -3
    sampler = sb.chain_sampler(model, NUM_DATA, "sgld", lr=0.5, base_lr=0.1, base_weight_decay=0.2)
    outputs = model(x)
    elbo(outputs, y).backward()
    torch.testing.assert_close(elbo(outputs, y), loss)
    weight, bias = model.net.weight, model.net.bias
    expected = [p.detach() - 0.1 * (p.grad + 0.2 * p.detach()) for p in (weight, bias)]
    sampler.step()
    torch.testing.assert_close([weight.detach(), bias.detach()], expected)
    assert model.kl() == 0  # the prior is the sampler's
    resting = sb.chain_sampler(model, NUM_DATA, lr=0.5, base_lr=0.0)
    before = weight.detach().clone()
    resting.step()
    assert torch.equal(weight, before)


def test_a_draw_is_one_state_of_the_chain_folded_into_the_weights():
    model = sb.sgmcmc(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), 2, over="factors", keep=3)
    x, first, last = torch.randn(5, 3), model.net[0], model.net[2]
    states = []
    for _ in range(3):
        with torch.no_grad():
            for factor in model.stochastic():
                factor.loc.normal_()
        model.collect()
        states.append([factor.loc.detach().clone() for factor in model.stochastic()])
    outputs = model.eval()(x, draw=model.kept_draw()).unflatten(0, (2, 3))
    for member in range(2):
        for step, factors in enumerate(states):
            s1, r1, s2, r2 = (factor[member] for factor in factors)
            hidden = torch.tanh((x * s1) @ first.weight.T * r1 + first.bias)
            expected = (hidden * s2) @ last.weight.T * r2 + last.bias
            torch.testing.assert_close(outputs[member, step], expected, rtol=1e-4, atol=1e-5)
    # Any pass in evaluation, whatever its noise, gives rows of these and nothing else.
    for noise in ("example", "shared"):
        for draw in model(x, samples=2, noise=noise):
            assert (draw - outputs.flatten(0, 1)).abs().amax((1, 2)).min() < 1e-5


def test_a_sample_is_a_number_for_each_channel():
    net = nn.Sequential(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 300), nn.Linear(300, 10))
    model = sb.sgmcmc(net, members=4, over="factors", keep=10)
    kept = sum(factor.kept.numel() for factor in model.stochastic())
    channels = sum(sum(layer.sizes()) for layer in model.layers())
    assert kept == 10 * 4 * channels
    networks = sb.sgmcmc([net] * 4, over="weights", keep=10)
    assert networks.net.posterior.kept.numel() == 10 * 4 * sb.count_parameters(net)
    assert networks.net.posterior.kept.numel() > 50 * kept


@pytest.mark.parametrize("base", ["the same", "another"])
def test_a_frozen_base_is_saved_by_its_fingerprint_and_samples_are_saved_whole(tmp_path, base):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    model = sb.sgmcmc(net, 2, over="factors", keep=3, freeze_base=True, include=nn.Linear).eval()
    for _ in range(5):
        with torch.no_grad():
            for factor in model.stochastic():
                factor.loc.normal_()
        model.collect()
    model.save_pretrained(tmp_path)
    if base == "another":
        with pytest.raises(ValueError, match="weights differ"):
            sb.load(tmp_path, nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))
        return
    again = sb.load(tmp_path, net).eval()
    x = torch.randn(5, 3)
    assert again.collected == 5
    for samples in (0, 3):
        expected = model(x, samples=samples, generator=torch.Generator().manual_seed(1))
        assert torch.equal(again(x, samples=samples, generator=torch.Generator().manual_seed(1)), expected)


def test_chains_start_at_draws_of_the_prior():
    model = sb.sgmcmc(nn.Linear(2000, 1), 4, over="factors", prior_std=0.3, factors="input")
    start = model.net.input_factor.loc
    assert start.mean().item() == pytest.approx(1, abs=4.5 * 0.3 / 8000**0.5)
    assert start.std().item() == pytest.approx(0.3, rel=4.5 / 16000**0.5)


@pytest.mark.parametrize("side", ["input", "output"])
def test_chains_of_any_rank_start_at_draws_of_the_prior(side):
    model = sb.sgmcmc(nn.Linear(1000, 1000), 4, over="factors", prior_std=0.3, rank=2)
    factor = getattr(model.net, f"{side}_factor")
    assert factor.loc.mean().item() == pytest.approx(factor.prior.loc, abs=4.5 * 0.3 / 8000**0.5)
    assert factor.loc.std().item() == pytest.approx(0.3, rel=4.5 / 16000**0.5)


def test_a_report_of_factors_finds_the_chain_that_is_elsewhere():
    model = sb.sgmcmc(nn.Linear(3, 2), 3, over="factors", keep=100)
    for _ in range(100):
        with torch.no_grad():
            for factor in model.stochastic():
                factor.loc.normal_()
            model.net.output_factor.loc[2] += 3
        model.collect()
    report = chain_report(model)
    # Of independent draws R-hat is 1 within some 1 / sqrt(draws).
    assert report.factors["input_factor"].max_r_hat < 1.05
    assert report.factors["input_factor"].min_ess > 150
    assert report.factors["output_factor"].max_r_hat > 1.5
    assert report.factors["output_factor"].min_ess < 20
