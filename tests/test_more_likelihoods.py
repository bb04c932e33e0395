"""Counts, levels, heavy tails, quantiles, survival, weights and smoothing, against SciPy, torch and closed forms."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import optimize, special, stats
from torch import nn

import slimbayes as sb
from slimbayes.likelihoods import LIKELIHOODS, get_likelihood
from slimbayes.likelihoods._incomplete_beta import incomplete_beta

DRAWS, BATCH = 3, 4


def normal(*shape: int, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def close(found: torch.Tensor, expected, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


COUNTS = torch.tensor([0, 1, 7, 40])


# ---------------------------------------------------------------------- log-likelihoods and moments


@pytest.mark.parametrize("shape", [(DRAWS, BATCH), (DRAWS, BATCH, 1)])
def test_poisson_equals_scipy(shape: tuple) -> None:
    outputs = normal(*shape)
    mean = outputs.exp().reshape(DRAWS, BATCH).numpy()
    close(sb.Poisson().log_prob(outputs, COUNTS), stats.poisson.logpmf(COUNTS, mean))
    expected = stats.poisson.logpmf(COUNTS, mean.mean(0))
    close(sb.Poisson().log_prob_of_mean(outputs, COUNTS), expected)
    found = [moment.reshape(DRAWS, BATCH) for moment in sb.Poisson().moments(outputs)]
    close(torch.stack(found), [mean, np.sqrt(mean)])


@pytest.mark.parametrize("dispersion", [1e-6, 0.3, 1.0, 20.0])
def test_negative_binomial_equals_scipy(dispersion: float) -> None:
    outputs, likelihood = normal(DRAWS, BATCH, 1), sb.NegativeBinomial(dispersion)
    mean, r = outputs.exp()[..., 0].numpy(), 1 / dispersion
    theirs = stats.nbinom(r, r / (r + mean))
    close(likelihood.log_prob(outputs, COUNTS), theirs.logpmf(COUNTS), 1e-7)
    found = torch.stack(likelihood.moments(outputs))[..., 0]
    close(found, [theirs.mean(), theirs.std()], 1e-7)
    close(likelihood.cdf(outputs, COUNTS.unsqueeze(1))[..., 0], theirs.cdf(COUNTS), 1e-7)


def test_negative_binomial_without_dispersion_is_poisson_in_single_precision() -> None:
    outputs = normal(DRAWS, BATCH, 1).float()
    found = sb.NegativeBinomial(1e-7).log_prob(outputs, COUNTS)
    torch.testing.assert_close(found, sb.Poisson().log_prob(outputs, COUNTS), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("df", [2.5, 4.0, 300.0])
def test_student_t_equals_scipy(df: float) -> None:
    outputs, y = normal(DRAWS, BATCH, 1), normal(BATCH, scale=5.0)
    likelihood, theirs = sb.StudentT(df, noise=0.7), stats.t(df, outputs[..., 0].numpy(), 0.7)
    close(likelihood.log_prob(outputs, y), theirs.logpdf(y.numpy()))
    close(torch.stack(likelihood.moments(outputs))[..., 0], [theirs.mean(), theirs.std()])
    close(likelihood.cdf(outputs, y.unsqueeze(1))[..., 0], theirs.cdf(y.numpy()))


def test_quantiles_are_the_pinball_loss_and_the_asymmetric_laplace() -> None:
    levels = (0.1, 0.5, 0.8)
    outputs, y = normal(DRAWS, BATCH, 3), normal(BATCH)
    expected = np.zeros((DRAWS, BATCH))
    for number, level in enumerate(levels):
        kappa = math.sqrt(level / (1 - level))  # SciPy's parameters
        scale = 0.5 / math.sqrt(level * (1 - level))
        expected += stats.laplace_asymmetric.logpdf(y.numpy(), kappa, outputs[..., number].numpy(), scale)
    likelihood = sb.Quantile(levels, scale=0.5)
    close(likelihood.log_prob(outputs, y), expected)
    close(likelihood.log_prob(outputs, y.unsqueeze(1)), expected)
    u = y[:, None] - outputs
    tau = torch.tensor(levels).double()
    pinball = torch.maximum(tau * u, (tau - 1) * u).sum(-1)
    constant = likelihood.log_prob(outputs, y) + pinball / 0.5
    close(constant, np.full((DRAWS, BATCH), sum(math.log(t * (1 - t) / 0.5) for t in levels)), 1e-6)


def test_constants_that_maximise_the_quantile_likelihood_are_the_quantiles() -> None:
    y = normal(501)
    found = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    likelihood = sb.Quantile([0.1, 0.5, 0.9], scale=1.0)
    optimiser = torch.optim.Adam([found], lr=0.05)
    for step in range(300):
        optimiser.param_groups[0]["lr"] = 0.1 * (1 - step / 300)
        optimiser.zero_grad()
        (-likelihood.log_prob(found.expand(1, 501, 3), y).mean()).backward()
        optimiser.step()
    close(found, np.quantile(y.numpy(), [0.1, 0.5, 0.9]), 0.03)


@pytest.mark.parametrize("levels", [2, 4])
def test_ordinal_probabilities_are_differences_of_cumulative_ones(levels: int) -> None:
    outputs, likelihood = normal(DRAWS, BATCH, 1), sb.Ordinal(levels).double()
    theta = likelihood.thresholds.detach().numpy()
    cumulative = special.expit(theta - outputs.numpy())
    ends = np.zeros((DRAWS, BATCH, 1))
    expected = np.diff(np.concatenate([ends, cumulative, ends + 1], -1))
    log_probs = likelihood.class_log_probs(outputs)
    close(log_probs.exp(), expected, 1e-7)
    y = torch.arange(BATCH) % levels
    close(likelihood.log_prob(outputs, y).exp(), expected[:, range(BATCH), y], 1e-7)
    close(likelihood.log_prob_of_mean(outputs, y).exp(), expected.mean(0)[range(BATCH), y], 1e-7)
    close(likelihood.class_log_probs(torch.zeros(1, 1, 1)).exp()[0, 0], np.full(levels, 1 / levels), 1e-6)


def test_two_levels_are_yes_or_no() -> None:
    outputs, y = normal(DRAWS, BATCH, 1), torch.tensor([0, 1, 1, 0])
    close(sb.Ordinal(2).double().log_prob(outputs, y), sb.Bernoulli().log_prob(outputs, y).numpy())


def by_pairs(f: np.ndarray, time: np.ndarray, event: np.ndarray) -> np.ndarray:
    """Breslow's partial likelihood, one example and one of those at risk at a time."""
    return np.array(
        [
            e * (f[i] - math.log(sum(math.exp(f[j]) for j in range(len(f)) if time[j] >= time[i])))
            for i, e in enumerate(event)
        ]
    )


def test_cox_equals_a_loop_over_those_at_risk_with_ties() -> None:
    outputs = normal(DRAWS, 8, 1)
    time = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0, 2.0, 5.0, 0.5])
    event = torch.tensor([1, 0, 1, 1, 1, 0, 0, 1])
    expected = np.stack([by_pairs(one[:, 0].numpy(), time.numpy(), event.numpy()) for one in outputs])
    close(sb.Cox().log_prob(outputs, torch.stack([time, event.float()], 1)), expected)
    found = sb.Prediction(outputs, sb.Cox()).log_likelihood((time, event.bool()))
    close(found, special.logsumexp(expected, 0) - math.log(DRAWS))


# ---------------------------------------------------------------------- tails


@pytest.mark.parametrize("size", [1.0, 30.0, 80.0])
@pytest.mark.parametrize(
    ("name", "outputs", "targets"),
    [
        ("poisson", 1, torch.tensor([0, 10**6])),
        ("negative_binomial", 1, torch.tensor([0, 10**6])),
        ("student_t", 1, torch.tensor([-1e30, 1e30])),
        ("quantile", 3, torch.tensor([-1e30, 1e30])),
        ("ordinal", 1, torch.tensor([0, 2])),
        ("cox", 1, torch.tensor([[1.0, 1.0], [2.0, 1.0]])),
        ("bernoulli", 1, torch.tensor([0, 1])),
        ("categorical", 3, torch.tensor([0, 2])),
    ],
)
def test_tails_are_finite(name: str, outputs: int, targets: torch.Tensor, size: float) -> None:
    likelihood = get_likelihood({"name": name, **({"levels": 3} if name == "ordinal" else {})})
    f = torch.tensor([[[size], [-size]], [[-size], [size]]]).repeat(1, 1, outputs)
    f[..., 0] *= -1
    f.requires_grad_()
    values = likelihood.training_log_prob(f, targets)
    assert values.isfinite().all()
    gradients = torch.autograd.grad(values.sum(), [f, *likelihood.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("a", [0.5, 1.5, 40.0, 1e6])
@pytest.mark.parametrize("b", [0.5, 3.0, 1000.0])
def test_incomplete_beta_equals_scipy(a: float, b: float) -> None:
    x = torch.cat(
        [torch.linspace(0, 1, 21, dtype=torch.float64), torch.tensor([1e-12, a / (a + b)], dtype=torch.float64)]
    )
    found = incomplete_beta(torch.tensor(a), torch.tensor(b), x, 1 - x)
    close(found, special.betainc(a, b, x.numpy()), 1e-8)


# ---------------------------------------------------------------------- weights and smoothing


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, [1.0, 5.0, 0.5]])
@pytest.mark.parametrize("soft", [False, True])
def test_weights_and_smoothing_are_those_of_cross_entropy(soft: bool, weight, smoothing: float) -> None:
    outputs, y = normal(DRAWS, BATCH, 3), torch.tensor([0, 2, 1, 1])
    target = normal(BATCH, 3).softmax(-1) if soft else y
    likelihood = sb.Categorical(class_weight=weight, label_smoothing=smoothing)
    theirs = {"weight": None if weight is None else torch.tensor(weight).double(), "label_smoothing": smoothing}
    expected = torch.stack([-F.cross_entropy(one, target, reduction="none", **theirs) for one in outputs])
    close(likelihood.training_log_prob(outputs, target), expected)
    plain = torch.stack([-F.cross_entropy(one, target, reduction="none") for one in outputs])
    close(likelihood.log_prob(outputs, target), plain)  # scores know neither
    model = sb.rank1(nn.Linear(2, 3).double(), members=DRAWS)
    elbo = sb.ELBO(model, 100, likelihood)
    assert elbo.terms(outputs, target).nll.item() == pytest.approx(-expected.mean().item(), abs=1e-10)


@pytest.mark.parametrize("weight", [7.0, [1.0, 2.0, 9.0]])
def test_pos_weight_is_that_of_binary_cross_entropy(weight) -> None:
    outputs, y = normal(DRAWS, BATCH, 3), (normal(BATCH, 3) > 0).double()
    likelihood = sb.Bernoulli(pos_weight=weight)
    expected = [
        -F.binary_cross_entropy_with_logits(one, y, pos_weight=torch.tensor(weight), reduction="none").sum(-1)
        for one in outputs
    ]
    close(likelihood.training_log_prob(outputs, y), torch.stack(expected), 1e-6)
    close(likelihood.log_prob(outputs, y), sb.Bernoulli().log_prob(outputs, y))


def test_noise_of_each_output() -> None:
    outputs, y = normal(DRAWS, BATCH, 2), normal(BATCH, 2)
    likelihood = sb.Gaussian(outputs=2).double()
    with torch.no_grad():
        likelihood.rho.copy_(torch.tensor([-1.0, 2.0]))
    std = np.log1p(np.exp([-1.0, 2.0])) + 1e-7
    expected = stats.norm.logpdf(y.numpy(), outputs.numpy(), std).sum(-1)
    close(likelihood.log_prob(outputs, y), expected)
    close(sb.Prediction(outputs, likelihood).aleatoric_std, np.tile(std, (BATCH, 1)))
    with pytest.raises(ValueError, match=r"\(draws, batch, \*, 2\).*\(3, 4, 3\)"):
        likelihood.log_prob(normal(DRAWS, BATCH, 3), normal(BATCH, 3))


# ---------------------------------------------------------------------- what predictions say


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9, 0.999])
def test_quantile_of_a_mixture_of_counts_is_the_smallest_that_has_it(q: float) -> None:
    outputs = normal(DRAWS, BATCH, 1, scale=1.0) + 2
    mean = outputs[..., 0].exp().numpy()
    for likelihood, cdf in (
        (sb.Poisson(), lambda k: stats.poisson.cdf(k, mean).mean(0)),
        (sb.NegativeBinomial(0.5), lambda k: stats.nbinom.cdf(k, 2, 2 / (2 + mean)).mean(0)),
    ):
        found = sb.Prediction(outputs, likelihood).quantile(q)[:, 0].numpy()
        assert (cdf(found) >= q).all()
        assert (cdf(found - 1) < q).all()


def test_quantile_of_a_mixture_of_student_ts() -> None:
    outputs = normal(DRAWS, BATCH, 1)
    found = sb.Prediction(outputs, sb.StudentT(3.0, noise=0.5)).quantile(0.975)[:, 0]
    for b in range(BATCH):
        m = outputs[:, b, 0].numpy()
        root = optimize.brentq(lambda x, m=m: stats.t.cdf(x, 3, m, 0.5).mean() - 0.975, -100, 100, xtol=1e-12)
        assert found[b].item() == pytest.approx(root, abs=1e-8)


def test_variance_of_counts_splits_into_two() -> None:
    outputs = normal(DRAWS, BATCH, 1)
    p, mean = sb.Prediction(outputs, sb.Poisson()), outputs.exp().numpy()
    close(p.std.square(), mean.mean(0) + mean.var(0))
    close(p.epistemic_std, mean.std(0))


def test_levels_of_quantile_predictions() -> None:
    outputs = normal(DRAWS, BATCH, 3)
    p = sb.Prediction(outputs, sb.Quantile([0.05, 0.5, 0.95]))
    low, high = p.interval(0.9)
    close(torch.stack([low, p.quantile(0.5), high]), outputs.mean(0).T)
    with pytest.raises(ValueError, match=r"levels \[0.05, 0.5, 0.95\], but got 0.3"):
        p.quantile(0.3)
    with pytest.raises(ValueError, match="quantile likelihood has no mean or std.*quantile"):
        p.mean  # noqa: B018


def test_ordinal_predictions_have_labels() -> None:
    likelihood = sb.Ordinal(3)
    with torch.no_grad():
        likelihood.first.fill_(-2.0)
        likelihood.rho.fill_(4.0)
    p = sb.Prediction(torch.tensor([[[-9.0], [0.1], [9.0]]]), likelihood)
    assert p.label.tolist() == [0, 1, 2]
    assert p.probs.shape == (3, 3)
    assert not p.probs.requires_grad


ERRORS = {
    "counts below zero": (sb.Poisson(), torch.tensor([0, -1]), ["counts", "-1", "standardised"]),
    "counts that are none": (sb.NegativeBinomial(), torch.tensor([0.0, 0.5]), ["counts", "0.5"]),
    "counts unknown": (sb.Poisson(), torch.tensor([0.0, math.nan]), ["counts", "nan"]),
    "between levels": (sb.Ordinal(3), torch.tensor([0.0, 1.5]), ["1.5", "levels 0, 1, ..., 2"]),
    "level unknown": (sb.Ordinal(3), torch.tensor([0.0, math.nan]), ["0 to 2", "nan"]),
    "no such level": (sb.Ordinal(3), torch.tensor([0, 3]), ["0 to 2", "got 3", "levels"]),
    "one time": (sb.Cox(), torch.tensor([1.0, 2.0]), ["(time, event)", "(2,)"]),
    "events first": (sb.Cox(), torch.tensor([[1.0, 3.0], [0.0, 2.0]]), ["0 or 1", "3", "times come first"]),
    "quantiles": (sb.Quantile(), torch.tensor([1.0, 2.0]), ["(draws, batch, *, 3)", "(1, 2, 1)", "3 outputs"]),
    "value unknown": (sb.Gaussian(), torch.tensor([0.0, math.nan]), ["finite", "1 of them", "nan", "Leave out"]),
    "infinite value": (sb.StudentT(), torch.tensor([-math.inf, 0.0]), ["finite", "-inf"]),
    "infinite quantile": (sb.Quantile([0.5]), torch.tensor([0.0, math.inf]), ["finite", "inf"]),
    "weights": (sb.Categorical(class_weight=[1.0, 2, 3]), torch.tensor([0, 1]), ["class_weight", "2 classes"]),
}


@pytest.mark.parametrize("case", ERRORS)
def test_wrong_targets_are_named(case: str) -> None:
    likelihood, targets, words = ERRORS[case]
    outputs = torch.zeros(1, 2, 2 if case == "weights" else 1)
    with pytest.raises(ValueError, match="Expected") as error:
        likelihood.training_log_prob(outputs, targets)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: sb.StudentT(df=2.0), ["`df`", "above 2", "2.0"]),
        (lambda: sb.Ordinal(1), ["`levels`", "at least 2", "1"]),
        (lambda: get_likelihood(sb.Gaussian), ["class Gaussian", "Gaussian()"]),
        (lambda: get_likelihood("ordinal"), ["'ordinal' needs levels", "sb.Ordinal(levels=...)"]),
        (lambda: sb.Quantile([0.1, 1.0]), ["`levels`", "1.0"]),
        (lambda: sb.Quantile([]), ["`levels`", "empty"]),
        (lambda: sb.Gaussian(0.5, outputs=3), ["`outputs`", "noise=0.5"]),
        (lambda: sb.Categorical(label_smoothing=1.5), ["`label_smoothing`", "1.5"]),
        (lambda: sb.Bernoulli(pos_weight=0.0), ["`pos_weight`", "0.0"]),
        (lambda: get_likelihood({"name": "poisson", "rate": 1}), ["'rate'"]),
    ],
)
def test_wrong_options_are_named(build, words: list[str]) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        build()
    for word in words:
        assert word in str(error.value)


def test_a_mixture_of_gaussians_equals_scipy() -> None:
    outputs = normal(DRAWS, BATCH, 6)
    likelihood, y = sb.GaussianMixture(2), normal(BATCH)
    weights = special.softmax(outputs[..., :2].numpy(), -1)
    parts = stats.norm(outputs[..., 2:4].numpy(), np.logaddexp(0, outputs[..., 4:].numpy()) + 1e-7)
    close(likelihood.log_prob(outputs, y), np.log((weights * parts.pdf(y.numpy()[:, None])).sum(-1)))
    close(likelihood.log_prob(outputs, y.unsqueeze(1)), np.log((weights * parts.pdf(y.numpy()[:, None])).sum(-1)))
    close(likelihood.cdf(outputs, y.unsqueeze(1))[..., 0], (weights * parts.cdf(y.numpy()[:, None])).sum(-1))
    mean, std = (part[..., 0] for part in likelihood.moments(outputs))
    second = (weights * (parts.var() + parts.mean() ** 2)).sum(-1)
    close(mean, (weights * parts.mean()).sum(-1))
    close(std, np.sqrt(second - mean.numpy() ** 2))
    low, high = (likelihood.quantile(outputs, q) for q in (0.1, 0.9))
    close(likelihood.cdf(outputs, low).mean(0), np.full((BATCH, 1), 0.1), 1e-6)
    close(likelihood.cdf(outputs, high).mean(0), np.full((BATCH, 1), 0.9), 1e-6)


# ---------------------------------------------------------------------- one registry, files

EACH = {
    "categorical": sb.Categorical(class_weight=[1.0, 2.0, 0.1], label_smoothing=0.2),
    "bernoulli": sb.Bernoulli(pos_weight=[1.0, 2.0, 3.0]),
    "gaussian": sb.Gaussian(outputs=3),
    "gaussian_mixture": sb.GaussianMixture(1),
    "ordinal": sb.Ordinal(4),
    "poisson": sb.Poisson(),
    "negative_binomial": sb.NegativeBinomial(initial=0.3),
    "student_t": sb.StudentT(3.0),
    "quantile": sb.Quantile([0.1, 0.5, 0.9]),
    "cox": sb.Cox(),
}


def test_each_likelihood_is_public_and_registered() -> None:
    assert set(EACH) == set(LIKELIHOODS)
    assert all(getattr(sb, type(one).__name__) is LIKELIHOODS[name] for name, one in EACH.items())


@pytest.mark.parametrize("name", EACH)
def test_likelihoods_survive_files(name: str, tmp_path) -> None:
    likelihood = EACH[name]
    outputs = 1 if name in ("ordinal", "cox", "poisson", "negative_binomial", "student_t") else 3
    net = nn.Linear(2, outputs)
    model = sb.rank1(net, members=2)
    elbo = sb.ELBO(model, 10, likelihood)
    with torch.no_grad():
        for parameter in likelihood.parameters():
            parameter.add_(0.3)
    model.save_pretrained(tmp_path / "model")
    loaded = sb.load(tmp_path / "model", nn.Linear(2, outputs))
    assert type(loaded.likelihood) is type(likelihood)
    assert loaded.likelihood.spec() == likelihood.spec()
    for ours, theirs in itertools.zip_longest(loaded.likelihood.parameters(), likelihood.parameters()):
        assert torch.equal(ours, theirs)
    assert sb.ELBO(loaded, 10, likelihood.spec()).likelihood is loaded.likelihood
    assert elbo.likelihood is likelihood


def test_learned_parameters_reach_the_maximum_likelihood() -> None:
    """Of constant counts' dispersion and of thresholds, on data whose answer SciPy or a frequency gives."""
    y = torch.tensor([0] * 50 + [1] * 20 + [2] * 30)
    ordinal = sb.Ordinal(3).double()
    optimiser = torch.optim.LBFGS(ordinal.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = -ordinal.log_prob(torch.zeros(1, 100, 1, dtype=torch.float64), y).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    close(ordinal.class_log_probs(torch.zeros(1, 1, 1)).exp()[0, 0], [0.5, 0.2, 0.3], 1e-4)


def test_cox_ranks_by_the_hazard() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 1)
    time, event = torch.distributions.Exponential((1.5 * x[:, 0]).exp()).sample(), (torch.rand(400) < 0.8)
    model = sb.deterministic(nn.Linear(1, 1))
    elbo = sb.ELBO(model, num_data=400, likelihood="cox")
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = elbo(model(x), (time, event))
        loss.backward()
        return loss

    optimiser.step(closure)
    p = model.predict(x)
    assert p.log_likelihood((time, event)).shape == (400,)
    assert model.net.weight.item() == pytest.approx(1.5, abs=0.25)  # about three standard errors
