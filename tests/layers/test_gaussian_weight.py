"""The posterior of one weight: its draws, its KL to each prior, its initial values, and what k = 1 means."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import distributions as td
from torch import nn

from slimbayes import layers
from slimbayes.layers import GaussianEmbedding, GaussianLinear, GaussianOptions

F64 = torch.float64


def disturb(layer):
    """Move means and log parameters to where a mistake would show."""
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.5 if "log" in name else 0.2))
    return layer


def dense(outputs, inputs, **options):
    return disturb(GaussianLinear(inputs, outputs, **options))


def sigma_of(spread):
    """Return the standard deviations in float64 without the code under test."""
    if hasattr(spread, "log_scale"):
        return spread.log_scale.detach().to(F64).exp()
    return spread.log_v.detach().to(F64).exp() @ spread.log_u.detach().to(F64).exp().T


def closed_form(mean, sigma, prior_mean, prior_std):
    """Sum the textbook KL between normals in NumPy's double precision."""
    mean, sigma = (np.asarray(x.detach().to(F64)) for x in (mean, sigma))
    prior_mean = np.asarray(prior_mean, dtype=float)
    terms = np.log(prior_std / sigma) + (sigma**2 + (mean - prior_mean) ** 2) / (2 * prior_std**2) - 0.5
    return terms.sum()


KS = pytest.mark.parametrize("k", [None, 1, 2, 3])

# ---------------------------------------------------------------------- KL


@KS
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (F64, 1e-10)])
def test_kl_of_ten_thousand_weights_is_their_sum(k, dtype, error):
    posterior = dense(100, 100, k=k, prior_std=0.3, dtype=dtype).weight_posterior
    sigma = sigma_of(posterior.spread)
    expected = closed_form(posterior.mean, sigma, 0.0, 0.3)
    assert posterior.kl().shape == ()
    assert posterior.kl().item() == pytest.approx(expected, rel=error)
    both = td.Normal(posterior.mean.to(F64), sigma), td.Normal(torch.zeros((), dtype=F64), 0.3)
    assert posterior.kl().item() == pytest.approx(td.kl_divergence(*both).sum().item(), rel=error)


@KS
def test_kl_of_ten_thousand_weights_by_numerical_integration(k):
    posterior = dense(100, 100, k=k, prior_std=0.3, dtype=F64).weight_posterior
    mean, sigma = posterior.mean.detach().flatten().numpy(), sigma_of(posterior.spread).flatten().numpy()

    def integrand(z):
        w = mean + sigma * z
        return stats.norm.pdf(z) * (stats.norm.logpdf(w, mean, sigma) - stats.norm.logpdf(w, 0, 0.3))

    each, error = integrate.quad_vec(integrand, -12, 12, epsrel=1e-10)
    assert error < 1e-6
    assert posterior.kl().item() == pytest.approx(each.sum(), rel=1e-9)


def test_kl_vanishes_where_posterior_and_prior_agree():
    options = {"prior_std": 0.3, "init_std": 0.3, "init_jitter": 0.0, "dtype": F64}
    posterior = GaussianLinear(200, 300, **options).weight_posterior
    nn.init.zeros_(posterior.mean)
    assert posterior.kl().item() == pytest.approx(0, abs=1e-8)
    tied = GaussianLinear(8, 9, k=3, prior="tied_mean", **options).weight_posterior
    assert tied.kl().item() == pytest.approx(0, abs=1e-8)


@KS
@pytest.mark.parametrize("prior", ["normal", "he", "tied_mean"])
def test_gradients_of_the_kl(k, prior):
    posterior = dense(7, 5, k=k, prior=prior, prior_std=0.4, dtype=F64).weight_posterior
    wanted = (posterior.mean, *posterior.spread.log_parameters())
    prior_std = math.sqrt(2 / 5) if prior == "he" else 0.4

    def sigma():
        if k is None:
            return posterior.spread.log_scale.exp()
        return (posterior.spread.log_v.exp().unsqueeze(1) * posterior.spread.log_u.exp()).sum(-1)

    centre = posterior.mean if prior == "tied_mean" else torch.zeros(7, 5, dtype=F64)
    kl = td.kl_divergence(td.Normal(posterior.mean, sigma()), td.Normal(centre, prior_std)).sum()
    expected = torch.autograd.grad(kl, wanted)
    actual = torch.autograd.grad(posterior.kl(), wanted, allow_unused=True, materialize_grads=True)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert (prior == "tied_mean") == (not actual[0].any())


def test_a_tied_mean_leaves_the_means_alone():
    posterior = dense(30, 20, prior="tied_mean", prior_std=0.5, dtype=F64).weight_posterior
    assert posterior.kl().item() == pytest.approx(
        closed_form(posterior.mean, sigma_of(posterior.spread), posterior.mean.detach(), 0.5), rel=1e-12
    )
    before = posterior.kl().item()
    with torch.no_grad():
        posterior.mean.mul_(100)
    assert posterior.kl().item() == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@KS
def test_kl_in_half_precision_is_summed_in_single(k, dtype):
    posterior = GaussianLinear(300, 400, k=k, dtype=dtype).weight_posterior
    expected = closed_form(posterior.mean, sigma_of(posterior.spread), 0.0, 0.3)
    assert expected > torch.finfo(torch.float16).max
    assert posterior.kl().dtype == torch.float32
    assert posterior.kl().item() == pytest.approx(expected, rel=1e-5)


# ---------------------------------------------------------------------- the He-scaled prior (appendix B)

#: The layer, its arguments, and the shape of an input large enough that some output sees a whole kernel.
FAN_INS = {
    "Linear": ((6, 9), {}, (1, 6)),
    "Conv1d": ((4, 6, 5), {}, (1, 4, 9)),
    "Conv2d": ((4, 6, 3), {"padding": 1}, (1, 4, 9, 9)),
    "Conv2d_groups": ((4, 6, (3, 2)), {"groups": 2}, (1, 4, 9, 9)),
    "Conv3d": ((2, 3, (1, 2, 3)), {}, (1, 2, 5, 5, 5)),
    "ConvTranspose1d": ((4, 6, 3), {}, (1, 4, 9)),
    "ConvTranspose2d": ((4, 6, (3, 2)), {"groups": 2}, (1, 4, 9, 9)),
    "ConvTranspose3d": ((2, 3, 2), {}, (1, 2, 5, 5, 5)),
}
each_kind = pytest.mark.parametrize(("name", "args", "kwargs", "shape"), [(n, *rest) for n, rest in FAN_INS.items()])


def fan_in(kind, args, kwargs, shape):
    """Count the weights that meet in one output: what a layer of ones says to ones."""
    plain = getattr(nn, kind)(*args, **kwargs, bias=False)
    nn.init.ones_(plain.weight)
    return round(plain(torch.ones(shape)).max().item())


@each_kind
@pytest.mark.parametrize("k", [None, 2])
def test_he_prior(name, args, kwargs, shape, k):
    kind = name.split("_")[0]
    layer = getattr(layers, f"Gaussian{kind}")(*args, **kwargs, k=k, prior="he", prior_std=0.7, dtype=F64)
    disturb(layer)
    std = math.sqrt(2 / fan_in(kind, args, kwargs, shape))
    weight, bias = layer.weight_posterior, layer.bias_posterior
    assert weight.kl().item() == pytest.approx(closed_form(weight.mean, weight.scale, 0.0, std), rel=1e-10)
    assert bias.kl().item() == pytest.approx(closed_form(bias.mean, bias.scale, 0.0, 0.7), rel=1e-10)


def test_he_prior_of_a_recurrence_and_an_embedding():
    recurrent = disturb(layers.GaussianLSTM(5, 8, proj_size=3, prior="he", prior_std=0.7, dtype=F64))
    fans = {"weight_ih_l0": 5, "weight_hh_l0": 3, "weight_hr_l0": 8}
    assert set(recurrent.posteriors) == {*fans, "bias_ih_l0", "bias_hh_l0"}
    for name, posterior in recurrent.posteriors.items():
        std = math.sqrt(2 / fans[name]) if name in fans else 0.7
        assert posterior.kl().item() == pytest.approx(closed_form(posterior.mean, posterior.scale, 0.0, std), rel=1e-10)
    table = disturb(GaussianEmbedding(9, 4, prior="he", prior_std=0.7, dtype=F64)).weight_posterior
    assert table.kl().item() == pytest.approx(closed_form(table.mean, table.scale, 0.0, 0.7), rel=1e-10)


# ---------------------------------------------------------------------- initial means


@pytest.mark.parametrize("k", [None, 2])
@each_kind
def test_the_networks_weights_are_the_means_bit_by_bit(name, args, kwargs, shape, k):
    kind = name.split("_")[0]
    plain = getattr(nn, kind)(*args, **kwargs)
    weight, bias = plain.weight.detach().clone(), plain.bias.detach().clone()
    layer = getattr(layers, f"Gaussian{kind}").adopt(plain, GaussianOptions(k=k))
    assert layer is plain
    assert torch.equal(layer.weight, weight)
    assert torch.equal(layer.bias, bias)
    assert layer.weight_posterior.mean is layer.weight
    assert layer.bias_posterior.mean is layer.bias


@pytest.mark.parametrize("init", ["he", 0.1])
@pytest.mark.parametrize(("kind", "args", "fan"), [("Linear", (200, 100), 200), ("Conv2d", (40, 60, 3), 360)])
def test_new_means(kind, args, fan, init):
    layer = getattr(layers, f"Gaussian{kind}")(*args, init=init)
    std = math.sqrt(2 / fan) if init == "he" else init
    assert stats.kstest(layer.weight.detach().flatten().double().numpy() / std, "norm").pvalue > 1e-3
    assert not layer.bias.any()


@pytest.mark.parametrize("k", [None, 2])
def test_initial_standard_deviations(k):
    layer = GaussianLinear(300, 200, k=k, init_std=0.02)
    assert layer.weight_posterior.scale.mean().item() == pytest.approx(0.02, rel=0.03)
    # A bias is never tied: its deviations are drawn from N(0.02, 0.002).
    bias = layer.bias_posterior.scale.detach().double().numpy()
    assert stats.kstest(bias, stats.norm(0.02, 0.002).cdf).pvalue > 1e-3


def test_tables_keep_their_values_under_he_and_their_padding_always():
    plain = nn.Embedding(1000, 20, padding_idx=3)
    for init in ("network", "he"):
        assert torch.equal(GaussianEmbedding.adopt(plain_copy(plain), GaussianOptions(init=init)).weight, plain.weight)
    drawn = GaussianEmbedding.adopt(plain_copy(plain), GaussianOptions(init=0.1)).weight.detach()
    assert torch.equal(drawn[3], plain.weight[3])
    others = np.delete(drawn.double().numpy(), 3, 0).flatten()
    assert stats.kstest(others / 0.1, "norm").pvalue > 1e-3


def plain_copy(table):
    twin = nn.Embedding(table.num_embeddings, table.embedding_dim, padding_idx=table.padding_idx)
    twin.load_state_dict(table.state_dict())
    return twin


# ---------------------------------------------------------------------- draws


@KS
def test_draws_are_means_plus_sigma_times_noise(k):
    posterior = dense(4, 3, k=k, dtype=F64).weight_posterior
    noise = torch.randn(6, 4, 3, dtype=F64, generator=torch.Generator().manual_seed(5))
    sigma = sigma_of(posterior.spread)
    for draw in (posterior.draw, lambda n, g: posterior.hold(2, n // 2, g)):
        drawn = draw(6, torch.Generator().manual_seed(5))
        torch.testing.assert_close(drawn, posterior.mean + sigma * noise, rtol=1e-12, atol=1e-12)
    delta = posterior.perturbation(6, torch.Generator().manual_seed(5))
    torch.testing.assert_close(delta, sigma * noise, rtol=1e-12, atol=1e-12)


@KS
def test_each_standardised_draw_is_standard_normal(k):
    torch.manual_seed(1)
    posterior = dense(20, 25, k=k, dtype=F64).weight_posterior
    standard = (posterior.draw(40).detach() - posterior.mean.detach()) / sigma_of(posterior.spread)
    assert stats.kstest(standard.flatten().numpy(), "norm").pvalue > 1e-3
    correlations = np.corrcoef(standard.flatten(1).numpy())[np.triu_indices(40, 1)]
    assert stats.chi2(correlations.size).sf(500 * (correlations**2).sum()) > 1e-3


def test_at_its_location_it_is_the_mean():
    posterior = dense(4, 3).weight_posterior
    assert torch.equal(posterior.at_location(0), posterior.mean)
    assert torch.equal(posterior.hold(3, 0, None), torch.stack([posterior.mean] * 3))
    assert posterior.own_means() == (posterior.mean,)


def test_gradients_of_the_log_parameters():
    posterior = dense(4, 3, k=2).weight_posterior
    assert posterior.log_scale_gradients() == []
    posterior.draw(2).sum().backward()
    u, v = posterior.log_scale_gradients()
    assert u is posterior.spread.log_u.grad
    assert v is posterior.spread.log_v.grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@KS
def test_half_precision_draws(k, dtype):
    posterior = GaussianLinear(40, 50, k=k, dtype=dtype, init=1e-3).weight_posterior
    drawn = posterior.draw(10)
    assert drawn.dtype == posterior.perturbation(2).dtype == dtype
    standard = (drawn.to(F64) - posterior.mean.to(F64)) / sigma_of(posterior.spread)
    assert standard.std().item() == pytest.approx(1, abs=0.02)


# ---------------------------------------------------------------------- k = 1 and the matrix normal (appendix A)


def test_one_tied_is_the_matrix_normal_with_diagonal_covariances():
    posterior = dense(4, 3, k=1, dtype=F64).weight_posterior
    spread = posterior.spread
    rows, columns = (torch.exp(2 * log.detach()).flatten().numpy() for log in (spread.log_v, spread.log_u))
    covariance = np.kron(np.diag(columns), np.diag(rows))  # vec stacks the columns
    variances = posterior.scale.detach().square().numpy().flatten(order="F")
    np.testing.assert_allclose(np.diag(variances), covariance, rtol=1e-12)

    draws = posterior.draw(50).detach().numpy()
    matrix_normal = stats.matrix_normal(posterior.mean.detach().numpy(), np.diag(rows), np.diag(columns))
    ours = posterior.distribution.log_prob(torch.from_numpy(draws)).sum((1, 2)).detach().numpy()
    np.testing.assert_allclose(ours, matrix_normal.logpdf(draws), rtol=1e-10)


def test_kl_of_one_tied_is_that_of_two_full_covariances():
    posterior = dense(4, 3, k=1, prior_std=0.6, dtype=F64).weight_posterior
    rows, columns = (torch.exp(2 * log.detach()).flatten() for log in (posterior.spread.log_v, posterior.spread.log_u))
    mean = posterior.mean.detach().T.flatten()
    q = td.MultivariateNormal(mean, torch.kron(columns.diag(), rows.diag()))
    p = td.MultivariateNormal(torch.zeros_like(mean), 0.6**2 * torch.eye(12, dtype=F64))
    assert posterior.kl().item() == pytest.approx(td.kl_divergence(q, p).item(), rel=1e-10)


@pytest.mark.parametrize("k", [2, 3])
def test_no_matrix_normal_is_two_tied(k):
    """The lemma: diag(vec(B)) = P ⊗ Q forces B = q p^T, of rank one. Variances have rank k (k + 1) / 2."""
    variances = dense(9, 8, k=k, dtype=F64).weight_posterior.scale.detach().square()
    assert torch.linalg.matrix_rank(variances) == k * (k + 1) // 2
    assert torch.linalg.matrix_rank(dense(9, 8, k=k, dtype=F64).weight_posterior.scale) == k
    assert torch.linalg.matrix_rank(dense(9, 8, k=1, dtype=F64).weight_posterior.scale.square()) == 1
