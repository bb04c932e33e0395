"""Three estimators, one distribution: moments of the outputs against closed forms, and the noise of their gradients.

For one row, y = (mean + sigma eps) x + b is normal with mean (mean) x + b and variance sigma^2 x^2 + sigma_b^2.
Positions a and b that meet the same weight have the covariance sum_i sigma_i^2 x_ai x_bi + sigma_b^2; others have none.
"""

import itertools

import pytest
import torch
from scipy import stats
from torch import nn

import slimbayes as sb
from slimbayes.layers import GaussianConv1d, GaussianLinear

F64 = torch.float64
DRAWS, INPUTS, OUTPUTS = 8_000, 4, 3
ESTIMATORS = ("reparameterization", "local", "flipout")
SPREADS = {"full": None, "1-tied": 1, "2-tied": 2}
BIASES = {"random": {}, "point": {"bayesian_bias": False}, "none": {"bias": False}}

each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
each_spread = pytest.mark.parametrize("k", SPREADS.values(), ids=SPREADS)
each_bias = pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)


def build(estimator, k=None, bias=None, kind=GaussianLinear, args=(INPUTS, OUTPUTS), **options):
    layer = kind(*args, k=k, estimator=estimator, init_std=0.5, dtype=F64, **(bias or {}), **options)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "log" in name:
                parameter.add_(0.5 * torch.randn_like(parameter))
    layer.sampling.samples = DRAWS
    return layer


def variances(layer):
    """Return sigma^2 of the weight, outputs first, and of the bias."""
    spread = layer.weight_posterior.spread
    if hasattr(spread, "log_scale"):
        sigma = spread.log_scale.exp()
    else:
        sigma = (spread.log_v.exp() @ spread.log_u.exp().T).view_as(layer.weight)
    bias = layer.bias_posterior
    return sigma.detach().square(), 0.0 if bias is None else bias.spread.log_scale.detach().exp().square()


def assert_mean(samples, expected):
    """The mean over the first axis is within five of its standard errors."""
    error = samples.std(0) / len(samples) ** 0.5
    assert ((samples.mean(0) - expected).abs() < 5 * error + 1e-12).all()


def drawn(layer, x):
    """Return ``(draws, *outputs)`` of a batch; rows that share magnitudes would not be independent draws."""
    if layer.sampling.noise == "example":
        layer.sampling.noise = "independent"
    return layer(x.repeat(DRAWS, *[1] * (x.dim() - 1))).detach().unflatten(0, (DRAWS, -1))


def assert_covariances(noise, same_weight, covariance):
    """Compare E[noise_a noise_b] of all pairs of positions, ``(draws, positions, outputs)``, with the closed form."""
    for a, b in itertools.combinations_with_replacement(range(noise.shape[1]), 2):
        expected = covariance(a, b) if same_weight(a, b) else 0.0
        assert_mean(noise[:, a] * noise[:, b], expected)
    # Outputs have weights of their own, whatever the estimator.
    for o, p in itertools.combinations(range(noise.shape[2]), 2):
        assert_mean(noise[:, :, o] * noise[:, :, p], 0.0)


@each_estimator
@each_spread
@each_bias
def test_moments_of_a_dense_layer(estimator, k, bias):
    layer = build(estimator, k, bias)
    x = torch.randn(3, INPUTS, dtype=F64)
    y = drawn(layer, x)
    expected = nn.functional.linear(x, layer.weight, layer.bias).detach()
    assert_mean(y, expected)
    weight, offset = variances(layer)
    shared = estimator == "reparameterization"
    assert_covariances(y - expected, lambda a, b: a == b or shared, lambda a, b: (x[a] * x[b]) @ weight.T + offset)


@each_estimator
@each_spread
def test_outputs_are_normal(estimator, k):
    layer = build(estimator, k)
    x = torch.randn(3, INPUTS, dtype=F64)
    weight, offset = variances(layer)
    noise = drawn(layer, x) - nn.functional.linear(x, layer.weight, layer.bias).detach()
    standard = noise / (x.square() @ weight.T + offset).sqrt()
    for row, output in itertools.product(range(3), range(OUTPUTS)):
        assert stats.kstest(standard[:, row, output].numpy(), "norm").pvalue > 1e-3 / 9


@each_estimator
@each_spread
def test_positions_of_a_row_meet_one_weight(estimator, k):
    layer = build(estimator, k)
    x = torch.randn(2, 3, INPUTS, dtype=F64)
    noise = drawn(layer, x) - nn.functional.linear(x, layer.weight, layer.bias).detach()
    weight, offset = variances(layer)
    positions = x.flatten(0, 1)
    assert_covariances(
        noise.flatten(1, 2),
        lambda a, b: a // 3 == b // 3 or estimator == "reparameterization",
        lambda a, b: (positions[a] * positions[b]) @ weight.T + offset,
    )


@each_estimator
@each_spread
def test_rows_merged_into_the_batch_meet_the_weight_of_their_row(estimator, k):
    """Windows of an image, say: two rows of this layer for each of the model."""
    layer = build(estimator, k)
    x = torch.randn(4, INPUTS, dtype=F64)
    layer.sampling.rows = 2 * DRAWS
    noise = drawn(layer, x) - nn.functional.linear(x, layer.weight, layer.bias).detach()
    weight, offset = variances(layer)
    assert_covariances(
        noise,
        lambda a, b: a // 2 == b // 2 or estimator == "reparameterization",
        lambda a, b: (x[a] * x[b]) @ weight.T + offset,
    )


@each_estimator
@each_spread
def test_positions_of_a_convolution_meet_one_kernel(estimator, k):
    layer = build(estimator, k, kind=GaussianConv1d, args=(2, OUTPUTS, 3), stride=2)
    x = torch.randn(2, 2, 7, dtype=F64)
    expected = nn.functional.conv1d(x, layer.weight, layer.bias, stride=2).detach()
    noise = (drawn(layer, x) - expected).movedim(3, 2).flatten(1, 2)
    weight, offset = variances(layer)
    patches = x.unfold(2, 3, 2).movedim(2, 1).flatten(0, 1).flatten(1)  # (rows * positions, channels * kernel)
    assert_covariances(
        noise,
        lambda a, b: a // 3 == b // 3 or estimator == "reparameterization",
        lambda a, b: (patches[a] * patches[b]) @ weight.flatten(1).T + offset,
    )


@pytest.mark.parametrize("estimator", ["local", "flipout"])
@pytest.mark.parametrize("noise", ["shared", "held"])
def test_a_coherent_pass_is_one_linear_function_for_each_draw(estimator, noise):
    layer = build(estimator, bias={"bias": False})
    layer.sampling.samples = 2
    if noise == "shared":
        layer.sampling.noise = "shared"
    else:
        layer.sampling.held = {"weight_posterior": layer.weight_posterior.draw(2)}
    x = torch.cat([torch.eye(INPUTS, dtype=F64), torch.randn(3, INPUTS, dtype=F64)])
    first, second = layer(x.repeat(2, 1)).unflatten(0, (2, -1))
    for y in (first, second):
        torch.testing.assert_close(y[INPUTS:], x[INPUTS:] @ y[:INPUTS], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(first, second, atol=0.01)


# ---------------------------------------------------------------------- one weight for a batch, or for a draw


@pytest.mark.parametrize("sample_per", ["draw", "batch"])
def test_reparameterised_weights_per_draw_or_per_batch(sample_per):
    model = sb.mean_field(nn.Linear(4, 3), sample_per=sample_per, init_std=0.5)
    x = torch.randn(5, 4)
    first, second = model(x, samples=2)
    assert torch.equal(first, second) == (sample_per == "batch")
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize("sample_per", ["draw", "batch"])
def test_flipouts_perturbation_per_draw_or_per_batch(sample_per):
    """A row of one input says |delta| up to signs: one for all rows, or one for each draw."""
    net = nn.Linear(4, 3, bias=False)
    nn.init.zeros_(net.weight)
    model = sb.mean_field(net, estimator="flipout", sample_per=sample_per, init_std=0.5)
    outputs = model(torch.eye(4)[:1].expand(6, -1), samples=2)
    sizes = outputs.abs()
    torch.testing.assert_close(sizes, sizes[:, :1].expand_as(sizes))
    assert torch.allclose(sizes[0], sizes[1]) == (sample_per == "batch")
    assert len(outputs.flatten(0, 1).sign().unique(dim=0)) > 1


# ---------------------------------------------------------------------- gradients

BATCH, REPEATS = 256, 80


def gradient_samples(model, loss, repeats=REPEATS):
    """Return gradients of means and of log parameters, ``(repeats, parameters)`` each."""
    samples = {"means": [], "log sigma": []}
    for _ in range(repeats):
        model.zero_grad()
        loss(model).backward()
        for key, log in (("means", False), ("log sigma", True)):
            chosen = [p.grad.flatten() for name, p in model.named_parameters() if ("log_" in name) == log]
            samples[key].append(torch.cat(chosen))
    return {key: torch.stack(values) for key, values in samples.items()}


@each_estimator
@each_spread
def test_gradients_are_unbiased(estimator, k):
    """E[(y - f)^2] has known derivatives in means and standard deviations."""
    net = nn.Linear(5, 2, dtype=F64)
    convert = {"estimator": estimator, "init_std": 0.3}
    model = sb.mean_field(net, **convert) if k is None else sb.k_tied(net, k, **convert)
    x, y = torch.randn(16, 5, dtype=F64), torch.randn(16, 2, dtype=F64)
    samples = gradient_samples(model, lambda m: (m(x, samples=20) - y).square().mean(0).sum(), repeats=200)
    model.zero_grad()
    layer = model.net
    bias = layer.bias_posterior.spread.log_scale.exp()
    if k is None:
        sigma = layer.weight_posterior.spread.log_scale.exp()
    else:
        sigma = layer.weight_posterior.spread.log_v.exp() @ layer.weight_posterior.spread.log_u.exp().T
    exact = (nn.functional.linear(x, layer.weight, layer.bias) - y).square()
    (exact + x.square() @ sigma.square().T + bias.square()).sum().backward()
    for key, log in (("means", False), ("log sigma", True)):
        chosen = [p.grad.flatten() for name, p in model.named_parameters() if ("log_" in name) == log]
        assert_mean(samples[key], torch.cat(chosen))


NETWORKS = {
    "dense": (lambda: nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)), (BATCH, 20)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6, 5)),
        (BATCH, 3, 8),
    ),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("k", [None, 2], ids=["mean-field", "2-tied"])
def test_flipout_and_local_have_less_gradient_noise(network, k):
    """On a batch of 256: the variance of gradients, summed over parameters. ``pytest -s`` shows the table."""
    make, shape = NETWORKS[network]
    net, x, y = make(), torch.randn(shape), torch.randint(5, (BATCH,))
    table = {}
    for estimator in ESTIMATORS:
        convert = {"estimator": estimator, "init_std": 0.1}
        model = sb.mean_field(net, **convert) if k is None else sb.k_tied(net, k, **convert)
        samples = gradient_samples(model, lambda m: nn.functional.cross_entropy(m(x)[0], y))
        table[estimator] = {key: values.var(0).sum().item() for key, values in samples.items()}
    plain = table["reparameterization"]
    print(f"\n{network}, {'mean-field' if k is None else f'{k}-tied'}: gradient variance on a batch of {BATCH}")
    for estimator, row in table.items():
        cells = (f"{key} {value:.2e} ({value / plain[key]:.3f})" for key, value in row.items())
        print(f"  {estimator:20s}{'  '.join(cells)}")
    for estimator in ("local", "flipout"):
        for key, value in table[estimator].items():
            assert value < 0.8 * plain[key], (estimator, key)


# ---------------------------------------------------------------------- edges of local reparameterisation


@each_spread
@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.float16, torch.bfloat16])
def test_a_row_of_zeros_has_finite_gradients(k, dtype):
    """A dead ReLU layer gives one; the square root of its variance has no derivative at zero."""
    layer = GaussianLinear(5, 3, bias=False, k=k, estimator="local", dtype=dtype)
    x = torch.zeros(2, 5, dtype=dtype, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@each_spread
@pytest.mark.parametrize(("size", "std"), [(1.0, 1e-4), (300.0, 1e-2)], ids=["small sigma", "large inputs"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_squares_neither_vanish_nor_overflow(k, size, std, dtype):
    layer = GaussianLinear(64, 2, bias=False, k=k, estimator="local", dtype=dtype, init_std=std, init_jitter=0.0)
    nn.init.zeros_(layer.weight)
    y = layer(torch.full((5000, 64), size, dtype=dtype))
    assert y.dtype == dtype
    assert y.double().std().item() == pytest.approx(size * std * 8, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_computes_variances_in_single_precision(dtype):
    layer = GaussianLinear(64, 2, bias=False, estimator="local", init_std=1e-4, init_jitter=0.0)
    nn.init.zeros_(layer.weight)
    x = torch.ones(5000, 64, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        y = layer(x)
        zero = layer(torch.zeros(2, 64))
    assert y.double().std().item() == pytest.approx(8e-4, rel=0.05)
    (y.float().sum() + zero.float().sum()).backward()
    assert layer.weight_posterior.spread.log_scale.grad.isfinite().all()
