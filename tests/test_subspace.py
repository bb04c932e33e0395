"""Subspace inference: the subspace is the SVD's, and the posterior in it that of linear regression."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.ensembles.subspace import SubspacePosterior
from slimbayes.methods._gaussian_vi import fit_gaussian
from slimbayes.methods.subspace_inference import _Target

NOISE = 0.5


def wander(model, times, by=0.3):
    with torch.no_grad():
        for _ in range(times):
            for parameter in model.parameters():
                parameter.add_(by * torch.randn_like(parameter))
            model.collect()
    return model


# ---------------------------------------------------------------------- the subspace


@pytest.mark.parametrize(("steps", "rank", "keep"), [(6, 3, 8), (9, 3, 5), (3, 2, 3), (2, 3, 4)])
def test_the_basis_is_that_of_numpys_decomposition(steps, rank, keep):
    trajectory = torch.randn(steps, 2, 7, dtype=torch.float64).cumsum(0)
    posterior = SubspacePosterior(2, trajectory[0, 0], 7, rank, keep, has_norms=False)
    for states in trajectory:
        posterior.take(states)
    posterior.span()
    for member in range(2):
        theta = trajectory[:, member].numpy()
        rows = np.stack([theta[i] - theta[: i + 1].mean(0) for i in range(steps)][-keep:])
        _, lengths, directions = np.linalg.svd(rows, full_matrices=False)
        expected = (lengths[:, None] * directions)[:rank] / math.sqrt(len(rows) - 1)
        expected = np.concatenate([expected, np.zeros((rank - len(expected), 7))]) if len(expected) < rank else expected
        found = posterior.basis[member].numpy()
        signs = np.sign((found * expected).sum(1, keepdims=True))
        np.testing.assert_allclose(found * signs, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(posterior.mean[member], theta.mean(0))


# ---------------------------------------------------------------------- linear regression


def log_normal_density(outputs, targets):
    return torch.distributions.Normal(outputs, NOISE).log_prob(targets).sum(-1)


def regression(prior_std, temperature, members=1):
    """Return the objective of a linear model with snapshots, its data, and the posterior of each member's z."""
    x = torch.randn(40, 4, dtype=torch.float64)
    y = x.sum(1, keepdim=True) + NOISE * torch.randn(40, 1, dtype=torch.float64)
    nets = [nn.Linear(4, 1).double() for _ in range(members)]
    options = {"rank": 2, "keep": 4, "prior_std": prior_std, "temperature": temperature}
    model = wander(sb.subspace(nets, **options), 4)
    posterior = model.net.posterior
    posterior.span()
    exact = []
    for k in range(members):
        design = torch.cat([x, torch.ones(40, 1).double()], 1) @ posterior.basis[k].T
        rest = y[:, 0] - torch.cat([x, torch.ones(40, 1).double()], 1) @ posterior.mean[k]
        precision = design.T @ design / (NOISE**2 * temperature) + torch.eye(2) / prior_std**2
        covariance = torch.linalg.inv(precision)
        exact.append((covariance @ design.T @ rest / (NOISE**2 * temperature), covariance))
    return sb.ELBO(model, num_data=40, likelihood=log_normal_density), x, y, exact


@pytest.mark.parametrize(("prior_std", "temperature", "members"), [(1.0, 1.0, 1), (0.3, 20.0, 2)])
def test_slice_samples_have_the_posterior_of_linear_regression(prior_std, temperature, members):
    elbo, x, y, exact = regression(prior_std, temperature, members)
    batches = list(zip(x.split(25), y.split(25), strict=True))
    sb.subspace_inference(elbo, batches, samples=500, burn=30)
    for z, (mean, covariance) in zip(elbo.model.net.posterior.positions, exact, strict=True):
        effective = sb.mcmc.effective_sample_size(z.unsqueeze(0), rank_normalised=False)
        variances = covariance.diagonal()
        assert ((z.mean(0) - mean).abs() < 4.5 * (variances / effective).sqrt()).all()
        errors = (torch.outer(variances, variances) + covariance.square()) / effective.min()
        assert ((z.T.cov() - covariance).abs() < 6 * errors.sqrt()).all()


@pytest.mark.parametrize(("prior_std", "temperature", "members"), [(1.0, 1.0, 1), (0.3, 20.0, 2)])
def test_variational_inference_has_the_posterior_of_linear_regression(prior_std, temperature, members):
    elbo, x, y, exact = regression(prior_std, temperature, members)
    sb.subspace_inference(elbo, [(x, y)], method="vi", steps=400)
    posterior = elbo.model.net.posterior
    for k, (mean, covariance) in enumerate(exact):
        factor = posterior.gaussian_factor[k]
        scale = covariance.diagonal().sqrt()
        assert ((posterior.gaussian_mean[k] - mean).abs() < 0.02 * scale).all()
        assert ((factor @ factor.T - covariance).abs() < 0.05 * torch.outer(scale, scale)).all()


def test_minibatches_leave_the_variational_mean_where_it_is():
    elbo, x, y, [(mean, covariance)] = regression(1.0, 1.0)
    sb.subspace_inference(elbo, list(zip(x.split(15), y.split(15), strict=True)), method="vi", steps=400)
    # Gradients of batches are noisy.
    assert ((elbo.model.net.posterior.gaussian_mean[0] - mean).abs() < covariance.diagonal().sqrt()).all()


@pytest.mark.parametrize("sized", [True, False])
def test_examples_of_a_smaller_batch_count_as_much_as_others(sized):
    elbo, x, y, [(mean, covariance)] = regression(1.0, 1.0)
    batches = list(zip(x.split([39, 1]), y.split([39, 1]), strict=True))
    sb.subspace_inference(elbo, batches if sized else Unsized(batches), method="vi", steps=400)
    # With the mean of each batch, the last example would count for 20, and move the mean by several deviations.
    assert ((elbo.model.net.posterior.gaussian_mean[0] - mean).abs() < 0.3 * covariance.diagonal().sqrt()).all()


class Unsized:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def test_inference_needs_no_gradients_of_its_caller():
    elbo, x, y, [(mean, covariance)] = regression(1.0, 1.0)
    with torch.no_grad():
        sb.subspace_inference(elbo, [(x, y)], method="vi", steps=400)
    assert ((elbo.model.net.posterior.gaussian_mean[0] - mean).abs() < 0.02 * covariance.diagonal().sqrt()).all()


def test_a_diagonal_gaussian_has_the_inverse_of_the_precisions_diagonal():
    precision = torch.tensor([[2.0, 1.2], [1.2, 3.0]], dtype=torch.float64)
    mean, factor = fit_gaussian(
        lambda z: -(z - 1) @ precision @ (z - 1) / 2,
        2,
        covariance="diagonal",
        steps=400,
        draws=4,
        generator=torch.Generator().manual_seed(0),
    )
    # The KL's minimum (Bishop 2006, section 10.1.2); the gradients stay noisy there, as q is not p.
    torch.testing.assert_close(factor, torch.diag(precision.diagonal().rsqrt()), rtol=0.1, atol=0)
    torch.testing.assert_close(mean, torch.ones(2).double(), rtol=0.1, atol=0)


def test_a_full_gaussian_is_recovered_at_any_scale():
    scales = torch.tensor([1e-3, 0.1, 1.0], dtype=torch.float64)
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.8, 1.0, 0.0], [-0.5, 0.3, 1.0]], dtype=torch.float64)
    covariance = torch.diag(scales) @ mixing @ mixing.T @ torch.diag(scales)
    at = torch.tensor([0.2, -1.0, 1.5], dtype=torch.float64)
    precision = torch.linalg.inv(covariance)
    mean, factor = fit_gaussian(
        lambda z: -(z - at) @ precision @ (z - at) / 2, 3, steps=800, generator=torch.Generator().manual_seed(0)
    )
    std = covariance.diagonal().sqrt()
    assert ((mean - at).abs() < 0.05 * std).all()
    assert ((factor @ factor.T - covariance).abs() < 0.05 * torch.outer(std, std)).all()


# ---------------------------------------------------------------------- draws


def test_draws_are_the_samples_each_once():
    elbo, x, y, _ = regression(1.0, 1.0, members=2)
    sb.subspace_inference(elbo, [(x, y)], samples=6)
    model, posterior = elbo.model, elbo.model.net.posterior
    expected = posterior.mean[:, None] + posterior.positions @ posterior.basis
    draws = model.draw(6)["posterior"].unflatten(0, (2, 6))
    for member in range(2):
        order = [int((expected[member] - state).abs().sum(1).argmin()) for state in draws[member]]
        assert sorted(order) == list(range(6))
        torch.testing.assert_close(draws[member], expected[member, order])
    torch.testing.assert_close(model.eval()(x, samples=0)[0], model.member(0)(x))
    torch.testing.assert_close(posterior.location(), expected.mean(1))
    torch.testing.assert_close(posterior.scale, expected.std(1, correction=0))


def test_gaussian_draws_have_its_moments():
    elbo, *_ = regression(1.0, 1.0)
    posterior = elbo.model.net.posterior
    factor = torch.tensor([[1.0, 0.0], [0.5, 0.2]], dtype=torch.float64)
    posterior.set_gaussian(torch.tensor([[0.3, -0.1]], dtype=torch.float64), factor.unsqueeze(0))
    draws = posterior.sample(4000, torch.Generator().manual_seed(0))[0]
    covariance = posterior.basis[0].T @ factor @ factor.T @ posterior.basis[0]
    std = covariance.diagonal().sqrt()
    torch.testing.assert_close(posterior.scale[0], std)
    assert ((draws.mean(0) - posterior.location()[0]).abs() < 4.5 * std / 4000**0.5).all()
    errors = ((torch.outer(std, std).square() + covariance.square()) / 4000).sqrt()
    assert ((draws.T.cov() - covariance).abs() < 4.5 * errors).all()


def test_a_stored_sample_costs_as_many_numbers_as_the_subspace_has_dimensions(tmp_path):
    elbo, x, y, _ = regression(1.0, 1.0)
    sizes = []
    for samples in (10, 110):
        sb.subspace_inference(elbo, [(x, y)], samples=samples)
        sizes.append(sum(buffer.numel() for buffer in elbo.model.buffers()))
    assert sizes[1] - sizes[0] == 100 * 2


def normed():
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3))


@pytest.mark.parametrize("method", ["ess", "vi"])
def test_networks_with_batch_norm(method, tmp_path):
    x, y = torch.randn(30, 4), torch.randint(3, (30,))
    batches = list(zip(x.split(10), y.split(10), strict=True))
    model = wander(sb.subspace(normed(), rank=2, keep=4), 4)
    before = {name: value.clone() for name, value in model.net.networks.state_dict().items()}
    elbo = sb.ELBO(model, num_data=30)
    sb.subspace_inference(elbo, batches, method, samples=8, steps=20)
    model.refresh(batches, samples=20)
    assert all(torch.equal(value, before[name]) for name, value in model.net.networks.state_dict().items())
    assert model.net.posterior.seeds.shape[1] == (8 if method == "ess" else 20)
    net = model.member(0, sample=0)
    hidden = [net[0](batch) for batch, _ in batches]
    torch.testing.assert_close(net[1].running_mean, torch.stack([h.mean(0) for h in hidden]).mean(0))
    expected = model.predict(x, samples=5, seed=0).draws
    model.save_pretrained(tmp_path)
    assert torch.equal(sb.load(tmp_path, normed()).predict(x, samples=5, seed=0).draws, expected)


def test_another_posterior_ends_a_refresh():
    x, y = torch.randn(10, 4), torch.randint(3, (10,))
    model = wander(sb.subspace(normed(), rank=2, keep=4), 4)
    elbo = sb.ELBO(model, num_data=10)
    sb.subspace_inference(elbo, [(x, y)], samples=4)
    model.refresh([x], samples=4)
    sb.subspace_inference(elbo, [(x, y)], samples=2)
    with pytest.warns(UserWarning, match=r"model\.refresh"):
        model.predict(x)


def test_the_likelihood_is_that_of_training_mode_without_dropout():
    """A network of one batch: its log-likelihood with the batch's statistics, as the authors' code has it."""
    x, y = torch.randn(12, 4), torch.randint(3, (12,))
    model = wander(sb.subspace(normed(), rank=2, keep=4), 4)
    elbo = sb.ELBO(model, num_data=12)
    posterior = model.net.posterior
    sb.subspace_inference(elbo, [(x, y)], samples=1, burn=0)
    z = posterior.positions[0, 0]
    net = normed()
    model.net.layout.load(
        net,
        torch.cat(
            [posterior.mean[0, : posterior.weights] + z @ posterior.basis[0], posterior.mean[0, posterior.weights :]]
        ),
    )
    net.eval()[1].train()
    expected = -nn.functional.cross_entropy(net(x), y, reduction="sum")
    torch.testing.assert_close(_Target(elbo, model.net, 0, [(x, y)]).whole(z).float(), expected)


def test_inference_leaves_no_gradients():
    model, x = wander(sb.subspace(nn.Linear(4, 1), rank=2, keep=4), 4), torch.randn(10, 4)
    elbo = sb.ELBO(model, num_data=10, likelihood="gaussian")
    sb.subspace_inference(elbo, [(x, x[:, :1])], "vi", steps=3)
    assert next(model.likelihood.parameters()).requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_inference_is_reproducible():
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        elbo, x, y, _ = regression(1.0, 1.0)
        sb.subspace_inference(elbo, [(x, y)], samples=5, seed=seed)
        found.append(elbo.model.net.posterior.positions)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


# ---------------------------------------------------------------------- misuse


def test_draws_need_snapshots_and_inference():
    model, x = sb.subspace(nn.Linear(4, 3), rank=1, keep=3), torch.randn(5, 4)
    elbo = sb.ELBO(model, num_data=5)
    batches = [(x, torch.zeros(5, dtype=torch.int64))]
    with pytest.raises(RuntimeError, match=r"0 of at least 2 snapshots.*model\.collect"):
        sb.subspace_inference(elbo, batches)
    with pytest.raises(RuntimeError, match="0 of at least 2 snapshots"):
        model.predict(x)
    wander(model, 2)
    assert not model.ready
    with pytest.raises(RuntimeError, match=r"no posterior over the subspace of the 2 snapshots.*subspace_inference"):
        model.predict(x)
    sb.subspace_inference(elbo, batches, samples=3)
    assert model.ready
    model.predict(x)
    model.collect()  # the subspace is another one now
    with pytest.raises(RuntimeError, match="no posterior over the subspace of the 3 snapshots"):
        model.predict(x)


@pytest.mark.parametrize("method", ["ess", "vi"])
def test_the_number_of_examples_is_checked(method):
    elbo, x, y, _ = regression(1.0, 1.0)
    with pytest.raises(ValueError, match="the 40 examples that `num_data` of the ELBO says, but got 39"):
        sb.subspace_inference(elbo, [(x[:39], y[:39])], method, samples=2, steps=3)


@pytest.mark.parametrize(
    ("method", "message"), [("ess", "mean of the snapshots is nan. Check `batches`"), ("vi", "but got nan at .* data")]
)
def test_data_that_are_no_numbers(method, message):
    elbo, x, y, _ = regression(1.0, 1.0)
    x[3] = float("nan")
    elbo = sb.ELBO(elbo.model, num_data=40, likelihood=sb.Gaussian(noise=1.0))
    with pytest.raises(ValueError, match=message):
        sb.subspace_inference(elbo, [(x, y)], method, samples=2, steps=3)
    assert not elbo.model.ready


def test_slice_sampling_needs_the_same_batches_each_time():
    torch.manual_seed(0)
    x, y = torch.randn(40, 4), torch.randn(40, 1)
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))
    elbo = sb.ELBO(wander(sb.subspace(net, rank=2, keep=4), 4), num_data=40, likelihood=sb.Gaussian(noise=0.1))
    data = torch.utils.data.TensorDataset(x, y)
    shuffled = torch.utils.data.DataLoader(data, batch_size=10, shuffle=True)
    with pytest.raises(ValueError, match="`batches` to give the same each time.*without shuffle"):
        sb.subspace_inference(elbo, shuffled, samples=2)
    sb.subspace_inference(elbo, shuffled, "vi", steps=3)
    sb.subspace_inference(elbo, torch.utils.data.DataLoader(data, batch_size=10), samples=2)


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        (iter([]), TypeError, "`batches` to be something to go through several times, but got list_iterator"),
        ([torch.zeros(40, 4)], TypeError, "pairs of inputs and targets, but got Tensor"),
    ],
)
def test_wrong_batches(batches, error, message):
    elbo, *_ = regression(1.0, 1.0)
    with pytest.raises(error, match=message):
        sb.subspace_inference(elbo, batches)


def test_other_models_have_no_subspace():
    elbo = sb.ELBO(sb.swag(nn.Linear(4, 3)), num_data=5)
    with pytest.raises(TypeError, match=r"made by sb\.subspace, but its model was made by swag"):
        sb.subspace_inference(elbo, [])
    elbo, x, y, _ = regression(1.0, 1.0)
    with pytest.raises(ValueError, match="`method` to be one of 'ess', 'vi', but got 'hmc'"):
        sb.subspace_inference(elbo, [(x, y)], "hmc")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "`rank` to be an integer of at least 1"),
        ({"rank": 5, "keep": 5}, "`keep` to be an integer of at least 6, but got 5. A subspace of 5 dimensions"),
        ({"prior_std": 0.0}, "`prior_std` to be a finite number above 0"),
        ({"temperature": -1.0}, "`temperature` to be a finite number above 0"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        sb.subspace(nn.Linear(4, 3), **options)
