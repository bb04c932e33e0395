"""SWAG: its covariance is the formula's, and draws have batch-norm statistics of their own."""

import copy
import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import slimbayes as sb
from slimbayes.ensembles._statistics import inputs_of
from slimbayes.ensembles.swag import SwagPosterior


def walk(steps, size=5, members=1, seed=0):
    """Return a trajectory ``(steps, members, size)`` whose elements move together and apart."""
    generator = np.random.default_rng(seed)
    mixing = generator.normal(size=(size, size))
    return torch.as_tensor((generator.normal(size=(steps, members, size)) @ mixing).cumsum(0))


def posterior_of(trajectory, rank, scale=1.0):
    _, members, size = trajectory.shape
    posterior = SwagPosterior(members, trajectory[0, 0], size, rank, has_norms=False, factor=scale)
    for states in trajectory:
        posterior.take(states)
    return posterior


def formula(trajectory, rank):
    """Return mean, diagonal and covariance of Eq. 1 of Maddox et al. for one member's ``(steps, size)``."""
    theta = trajectory.numpy()
    mean, second = theta.mean(0), (theta**2).mean(0)
    diagonal = second - mean**2
    if rank == 0:
        return mean, diagonal, np.diag(diagonal)
    columns = np.stack([theta[i] - theta[: i + 1].mean(0) for i in range(len(theta))][-rank:], 1)
    low_rank = columns @ columns.T / (columns.shape[1] - 1)
    return mean, diagonal, np.diag(diagonal) / 2 + low_rank / 2


@pytest.mark.parametrize("rank", [0, 2, 4])
@pytest.mark.parametrize("steps", [2, 3, 4, 9])
def test_moments_and_covariance_equal_the_formula(steps, rank):
    trajectory = walk(steps, members=2)
    posterior = posterior_of(trajectory, rank)
    for member in range(2):
        mean, diagonal, covariance = formula(trajectory[:, member], rank)
        np.testing.assert_allclose(posterior.location()[member], mean, rtol=1e-12)
        np.testing.assert_allclose(posterior.variance()[member], diagonal, rtol=1e-10)
        # A draw is linear in its noise: unit vectors give the factor of the covariance.
        factor = [
            posterior.at(unit.expand(2, -1))[member] - posterior.centre()[member]
            for unit in torch.eye(5 + rank).double()
        ]
        factor = torch.stack(factor, 1).numpy()
        np.testing.assert_allclose(factor @ factor.T, covariance, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(posterior.scale[member], np.sqrt(np.diag(covariance)), rtol=1e-10)


@pytest.mark.parametrize(("rank", "scale"), [(0, 1.0), (3, 1.0), (3, 0.5)])
def test_draws_have_the_covariance(rank, scale):
    trajectory, number = walk(6), 8000
    draws = posterior_of(trajectory, rank, scale).sample(number, torch.Generator().manual_seed(0))[0].numpy()
    mean, _, covariance = formula(trajectory[:, 0], rank)
    covariance = covariance * scale**2
    variances = np.diag(covariance)
    assert (np.abs(draws.mean(0) - mean) < 4.5 * np.sqrt(variances / number)).all()
    # Standard error of a Gaussian's empirical covariance (Isserlis).
    errors = np.sqrt((np.outer(variances, variances) + covariance**2) / number)
    assert (np.abs(np.cov(draws.T) - covariance) < 4.5 * errors).all()


def test_single_precision_does_not_cancel():
    trajectory = (1000 + 0.1 * walk(30)).float()
    posterior = posterior_of(trajectory, 2)
    exact = trajectory[:, 0].double().numpy().var(0)
    np.testing.assert_allclose(posterior.variance()[0], exact, rtol=1e-3)
    difference = trajectory[:, 0].square().mean(0) - trajectory[:, 0].mean(0).square()
    assert not np.allclose(difference, exact, rtol=0.1)  # what the formula as it stands would give


@pytest.mark.parametrize("when", ["from the start", "later"])
def test_moments_of_a_half_precision_network_are_not_rounded(when):
    """In bfloat16, the mean of a hundred snapshots was off by half their standard deviation."""
    generator = torch.Generator().manual_seed(0)
    net = nn.Linear(6, 5)
    model = sb.swag(net.bfloat16()) if when == "from the start" else sb.swag(net).bfloat16()
    member, snapshots = model.net.networks[0], []
    for _ in range(100):
        with torch.no_grad():
            member.weight.copy_(1 + 0.1 * torch.randn(5, 6, generator=generator))
        snapshots.append(member.weight.detach().double().flatten())
        model.collect()
    expected, posterior = torch.stack(snapshots), model.net.posterior
    torch.testing.assert_close(posterior.mean[0, :30].double(), expected.mean(0), rtol=1e-5, atol=0)
    torch.testing.assert_close(posterior.variance()[0, :30].double(), expected.var(0, correction=0), rtol=1e-3, atol=0)
    assert model.predict(torch.randn(2, 6).bfloat16(), samples=3).draws.dtype == torch.bfloat16
    assert {parameter.dtype for parameter in model.member(0, sample=0).parameters()} == {torch.bfloat16}


def test_a_diverged_network_is_not_collected():
    model = sb.swag(nn.Linear(3, 2), rank=2)
    model.collect()
    model.collect()
    before = model.net.posterior.mean.clone()
    with torch.no_grad():
        model.net.networks[0].bias[0] = float("inf")
    with pytest.raises(ValueError, match="those of snapshot 3 are not: training has diverged"):
        model.collect()
    assert model.collected == 2
    assert torch.equal(model.net.posterior.mean, before)


def test_constant_buffers_may_be_infinite():
    net = nn.Linear(3, 2)
    net.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    model = sb.swag(net, rank=2)
    for _ in range(3):
        model.collect()
    assert torch.equal(model.member(0, sample=0).mask, net.mask)
    assert not model.net.posterior.has_norms  # and nothing asks for a refresh


# ---------------------------------------------------------------------- members


def wander(model, times=4, by=0.2):
    with torch.no_grad():
        for _ in range(times):
            for parameter in model.parameters():
                parameter.add_(by * torch.randn_like(parameter))
            model.collect()
    return model


def test_members_of_multiswag_are_swags_of_their_own():
    nets = [nn.Linear(3, 2) for _ in range(3)]
    together = sb.swag(nets, rank=3)
    alone = [sb.swag(net, rank=3) for net in nets]
    for _ in range(4):
        for one, network in zip(alone, together.net.networks, strict=True):
            step = 0.1 * torch.randn(2, 3)
            one.net.networks[0].weight.data += step
            network.weight.data += step
            one.collect()
        together.collect()
    for k, one in enumerate(alone):
        for name in ("mean", "squares", "deviations"):
            assert torch.equal(getattr(together.net.posterior, name)[k], getattr(one.net.posterior, name)[0])
    draws = together.net.posterior.sample(4000, torch.Generator().manual_seed(0))[:, :, :6]
    scores = (draws - draws.mean(1, keepdim=True)) / draws.std(1, keepdim=True)
    across = torch.einsum("sp,sq->pq", scores[0], scores[1]) / 4000
    assert across.abs().max() < 4.5 / 4000**0.5


# ---------------------------------------------------------------------- statistics


def normed():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2))


@pytest.fixture
def batches():
    return [(torch.randn(6, 3) + i, torch.zeros(6)) for i in range(3)]


def statistics_by_hand(linear_weight, linear_bias, batches):
    hidden = [x @ linear_weight.T + linear_bias for x, _ in batches]
    mean = sum(h.mean(0) for h in hidden) / len(hidden)
    return mean, sum(h.var(0, correction=1) for h in hidden) / len(hidden)


def test_each_draw_has_the_statistics_of_its_weights(batches):
    model = wander(sb.swag([normed(), normed()], rank=3))
    model.refresh(batches, samples=4)
    draw = model.draw(4)
    for member in range(2):
        for sample in range(4):
            net = model.member(member, sample=sample, draw=draw)
            expected = statistics_by_hand(net[0].weight, net[0].bias, batches)
            torch.testing.assert_close((net[1].running_mean, net[1].running_var), expected)


def test_dropout_is_off_while_statistics_are_measured(batches):
    model = wander(sb.swag(nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)), rank=2))
    model.refresh(batches, samples=2)
    expected = torch.stack([x.mean(0) for x, _ in batches]).mean(0)
    torch.testing.assert_close(model.member(0, sample=0)[1].running_mean, expected)


def test_the_location_has_the_statistics_that_torch_would_give_it(batches):
    net = nn.Sequential(nn.Conv1d(1, 3, 2), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(6, 2))
    inputs = [x.unsqueeze(1) for x, _ in batches]
    model = wander(sb.swag(net, rank=3))
    model.refresh(inputs, samples=2)
    expected = copy.deepcopy(net)
    model.net.layout.load(expected, model.net.posterior.mean[0])
    torch.optim.swa_utils.update_bn(inputs, expected)
    found = model.member(0)
    torch.testing.assert_close(found[1].running_mean, expected[1].running_mean)
    torch.testing.assert_close(found[1].running_var, expected[1].running_var)
    torch.testing.assert_close(model.eval()(inputs[0], samples=0)[0], expected.eval()(inputs[0]))


def test_refreshing_leaves_the_networks_alone(batches):
    model = wander(sb.swag(normed(), rank=2)).train()
    before = copy.deepcopy(model.net.networks.state_dict())
    model.refresh(batches, samples=2)
    assert all(torch.equal(value, before[name]) for name, value in model.net.networks.state_dict().items())
    assert model.net.networks[0][1].momentum == 0.1
    assert all(module.training for module in model.modules())


def distinct(states):
    return len({tuple(row.tolist()) for row in states})


def test_refreshed_draws_come_without_replacement_whatever_the_chunks(batches):
    model = wander(sb.swag([normed(), normed()], rank=3))
    model.refresh(batches, samples=5)
    states = model.draw(5)["posterior"]
    assert [distinct(own) for own in states.chunk(2)] == [5, 5]
    again = model.draw(7)["posterior"].chunk(2)  # shuffled anew after five
    assert all(distinct(own[:5]) == distinct(own) == 5 for own in again)
    x = torch.randn(4, 3)
    whole = model.predict(x, samples=5, seed=1).draws
    assert torch.equal(whole, model.predict(x, samples=5, seed=1, batch_size=4, max_memory=1).draws)
    assert torch.equal(whole.unflatten(0, (2, 5))[:, :2].flatten(0, 1), model.predict(x, samples=2, seed=1).draws)
    assert distinct(whole.flatten(1)) == 10


def test_autocast_leaves_draws_as_they_are(batches):
    model = wander(sb.swag(normed(), rank=3))
    model.refresh(batches, samples=4)
    plain, location = model.draw(3, torch.Generator().manual_seed(0)), model.net.posterior.location()
    with torch.autocast("cpu", torch.bfloat16):
        cast = model.draw(3, torch.Generator().manual_seed(0))
        assert torch.equal(model.net.posterior.location(), location)
    assert all(torch.equal(cast[name], plain[name]) for name in plain)


def test_the_seed_decides_the_refreshed_draws(batches):
    model = wander(sb.swag(normed(), rank=3))
    twin = copy.deepcopy(model)
    model.refresh(batches, samples=3, seed=1)
    first = model.net.posterior.seeds.clone()
    twin.refresh(batches, samples=3, seed=1)
    assert torch.equal(first, twin.net.posterior.seeds)
    twin.refresh(batches, samples=4, seed=2)
    assert twin.net.posterior.seeds.shape == (1, 4)
    assert not torch.equal(first, twin.net.posterior.seeds[:, :3])


def test_refreshed_draws_are_draws_of_the_posterior():
    model = wander(sb.swag(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), rank=3))
    model.refresh([torch.randn(4, 2)], samples=1000)
    posterior = model.net.posterior
    draws = torch.stack([posterior.again(seed) for seed in posterior.seeds.unbind(1)])[:, 0]
    error = posterior.scale[0, : posterior.weights] / 1000**0.5
    assert ((draws.mean(0) - posterior.centre()[0]).abs() < 4.5 * error).all()
    assert ((draws.std(0) - posterior.scale[0, : posterior.weights]).abs() < 4.5 * error / 2**0.5).all()


def test_a_new_snapshot_ends_a_refresh(batches):
    model = wander(sb.swag(normed(), rank=3))
    with pytest.warns(UserWarning, match=r"mean of those met in training.*model\.refresh"):
        model.predict(batches[0][0], samples=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(batches[0][0], samples=3)  # once is enough
        model.refresh(batches, samples=3)
        model.predict(batches[0][0], samples=3)
    model.collect()
    with pytest.warns(UserWarning, match=r"model\.refresh"):
        model.predict(batches[0][0], samples=3)


def test_unrefreshed_draws_have_the_mean_of_the_statistics(batches):
    model = sb.swag(normed(), rank=2).train()
    met = []
    for x, _ in batches:
        model(x)
        model.collect()
        met.append(model.net.networks[0][1].running_var.clone())
    with pytest.warns(UserWarning, match="refresh"):
        net = model.member(0, sample=0)
    torch.testing.assert_close(net[1].running_var, torch.stack(met).mean(0))


def test_a_refreshed_model_is_stored_with_its_draws(batches, tmp_path):
    model = wander(sb.swag([normed(), normed()], rank=3))
    model.refresh(batches, samples=6)
    x = batches[0][0]
    expected = model.predict(x, samples=4, seed=0).draws
    model.save_pretrained(tmp_path)
    assert torch.equal(sb.load(tmp_path, normed()).predict(x, samples=4, seed=0).draws, expected)
    fresh = sb.swag([normed(), normed()], rank=3)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.predict(x, samples=4, seed=0).draws, expected)
    stored = sum(b.numel() for n, b in model.net.posterior.named_buffers() if n in ("seeds", "drawn_statistics"))
    assert stored == 2 * 6 * (1 + 8)  # a seed, and mean and variance of four channels; no weights


def test_instance_norm_is_averaged_too():
    net = nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten(), nn.Linear(8, 2))
    inputs = [torch.randn(3, 2, 4) + i for i in range(3)]
    model = wander(sb.swag(net, rank=2))
    model.refresh(inputs, samples=2)
    torch.testing.assert_close(model.member(0)[0].running_mean, torch.stack([x.mean((0, 2)) for x in inputs]).mean(0))


def test_networks_without_statistics_need_no_refresh():
    model = wander(sb.swag(nn.Linear(3, 2), rank=2))
    model.refresh([torch.randn(4, 3)])
    assert model.net.posterior.seeds.numel() == 0
    assert distinct(model.draw(50)["posterior"]) == 50


def test_batches_may_be_what_loaders_give():
    x, y = torch.randn(3, 2), torch.zeros(3)
    cpu = torch.device("cpu")
    for batch, expected in [(x, ((x,), {})), ((x, y), ((x,), {})), ([x], ((x,), {})), (((x, y), y), ((x, y), {}))]:
        assert inputs_of(batch, cpu) == expected
    assert inputs_of({"x": x}, cpu) == ((), {"x": x})
    packed = pack_sequence([torch.randn(2, 3)])
    assert torch.equal(inputs_of(packed, cpu)[0][0].data, packed.data)
    assert torch.equal(inputs_of((packed, y), cpu)[0][0].data, packed.data)


# ---------------------------------------------------------------------- in use


def test_swag_learns_digits():
    digits = load_digits()
    x = torch.as_tensor(digits.data / 16, dtype=torch.float32)
    y = torch.as_tensor(digits.target)
    train, test = slice(0, 1200), slice(1200, None)
    net = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    model = sb.swag(net, rank=10)
    elbo = sb.ELBO(model, num_data=1200)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = list(zip(x[train].split(100), y[train].split(100), strict=True))
    for epoch in range(25):
        for inputs, targets in batches:
            optimiser.zero_grad()
            elbo(model(inputs), targets).backward()
            optimiser.step()
        if epoch >= 10:
            model.collect()
    model.refresh(batches, samples=20)
    prediction = model.predict(x[test], samples=20, seed=0)
    assert (prediction.label == y[test]).float().mean() > 0.9
    assert prediction.mutual_information.mean() > 1e-4  # the draws differ
    nll = -prediction.log_likelihood(y[test]).mean()
    assert nll < 0.4


# ---------------------------------------------------------------------- misuse


@pytest.mark.parametrize("collected", [0, 1])
def test_too_few_snapshots(collected):
    model = sb.swag(nn.Linear(3, 2))
    for _ in range(collected):
        model.collect()
    assert not model.ready
    x = torch.randn(4, 3)
    assert torch.equal(model.predict(x, samples=0).draws[0], model.net.networks[0](x))
    for ask in (lambda: model.predict(torch.randn(4, 3)), model.draw, lambda: model.member(0, sample=0)):
        with pytest.raises(RuntimeError, match=rf"{collected} of at least 2 snapshots.*Call model\.collect\(\)"):
            ask()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": -1}, "`rank` to be an integer of at least 0"),
        ({"rank": 1}, "`rank` to be 0 or at least 2"),
        ({"scale": 0.0}, "`scale` to be a finite number above 0"),
        ({"members": 2}, "members are to start from different weights"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        sb.swag(nn.Linear(3, 2), **options)


def test_networks_must_be_alike():
    with pytest.raises(ValueError, match="`networks` to be of one architecture"):
        sb.swag([nn.Linear(3, 2), nn.Linear(3, 2, bias=False)])


def test_wrong_refreshes(batches):
    model = sb.swag(normed(), rank=2)
    with pytest.raises(RuntimeError, match="0 of at least 2 snapshots"):
        model.refresh(batches)
    wander(model)
    with pytest.raises(TypeError, match="`batches` to be something to go through several times, but got generator"):
        model.refresh(batch for batch in batches)
    with pytest.raises(ValueError, match="`batches` to hold at least one batch"):
        model.refresh([])
    with pytest.raises(ValueError, match="`samples` to be an integer of at least 1"):
        model.refresh(batches, samples=0)
    with pytest.raises(TypeError, match="made by rank1 has no draws whose statistics"):
        sb.rank1(normed()).refresh(batches)
