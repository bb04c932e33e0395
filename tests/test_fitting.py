"""Posteriors for trained networks: scales from the curvature, against closed forms; nothing else is changed."""

import math

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes._curvature import curvatures
from slimbayes.fitting import fit_posterior
from slimbayes.layers.rank1 import Factor
from slimbayes.methods.registry import BUILT_IN, get_method

#: Methods whose random numbers have scales.
ABLE = ("rank1", "mean_field", "k_tied")


def line(n=40, inputs=3):
    torch.manual_seed(0)
    x = torch.randn(n, inputs, dtype=torch.double)
    net = nn.Linear(inputs, 1).double()
    return net, x, net(x).detach() + 0.3 * torch.randn(n, 1, dtype=torch.double)


def classes(n=60):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    x = torch.randn(n, 4)
    with torch.no_grad():
        net[2].weight *= 3
        y = torch.distributions.Categorical(logits=net(x)).sample()
        net[2].weight *= 3  # more certain than it should be
    return net, [(x[:25], y[:25]), (x[25:], y[25:])]


def test_a_linear_models_weights_have_the_analytic_posteriors_scales():
    net, x, y = line()
    model = fit_posterior(net, [(x, y)], "mean_field", sb.Gaussian(noise=0.3), multiplier=1.0, prior_std=0.5)
    weight = model.net.weight_posterior.scale
    precision = x.square().sum(0) / 0.3**2 + 1 / 0.5**2
    torch.testing.assert_close(weight, precision.rsqrt().unsqueeze(0))
    torch.testing.assert_close(model.net.bias_posterior.scale, torch.tensor([(40 / 0.3**2 + 4) ** -0.5]).double())


def test_a_linear_models_factors_have_the_analytic_posteriors_scales():
    net, x, y = line()
    model = fit_posterior(net, [(x, y)], "rank1", sb.Gaussian(noise=0.3), multiplier=1.0, prior_std=0.2)
    w = net.weight.detach()
    # f = r sum_i w_i x_i s_i + b: df/ds_i = w_i x_i, df/dr = w^T x.
    of_inputs = ((w * x) ** 2).sum(0) / 0.3**2 + 25
    of_output = ((x @ w.T) ** 2).sum(0) / 0.3**2 + 25
    torch.testing.assert_close(model.net.input_factor.scale, of_inputs.rsqrt().unsqueeze(0))
    torch.testing.assert_close(model.net.output_factor.scale, of_output.rsqrt().unsqueeze(0))


def test_every_member_and_every_small_part_of_a_batch_has_that_scale(monkeypatch):
    net, x, y = line()
    one = fit_posterior(net, [(x, y)], likelihood=sb.Gaussian(noise=0.3), multiplier=1.0)
    monkeypatch.setattr("slimbayes._curvature.COPIES", 30)
    three = fit_posterior(net, [(x, y)], likelihood=sb.Gaussian(noise=0.3), multiplier=1.0, members=3)
    torch.testing.assert_close(three.net.input_factor.scale, one.net.input_factor.scale.expand(3, -1))


class Last(nn.Module):
    """The last step of a sequence, of a module that may return a tuple."""

    def __init__(self, module, width):
        super().__init__()
        self.module, self.head = module, nn.Linear(width, 1)

    def forward(self, x):
        y = self.module(x)
        return self.head((y[0] if isinstance(y, tuple) else y)[:, -1])


def networks():
    """Yield networks of one output and the shape of their inputs; None for tokens."""
    convolutions = (nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3, groups=2), nn.Flatten())
    yield "convolutions", nn.Sequential(*convolutions, nn.Linear(8, 1)), (2, 6, 6)
    yield "lstm", Last(nn.LSTM(3, 4, batch_first=True), 4), (5, 3)
    yield "gru", Last(nn.GRU(3, 4, batch_first=True), 4), (5, 3)
    yield "transformer", Last(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0), 4), (5, 4)
    yield "tokens", Last(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4), nn.Tanh()), 4), None


@pytest.mark.parametrize("method", ABLE)
@pytest.mark.parametrize("case", list(networks()), ids=lambda case: case[0])
def test_the_curvature_is_the_sum_of_squared_gradients_of_single_examples(case, method):
    torch.manual_seed(0)
    _, net, shape = case
    x = torch.randint(7, (6, 5)) if shape is None else torch.randn(6, *shape)
    model = get_method(method).make(net.double().eval(), trained=True).eval()
    x = x if shape is None else x.double()
    parts = [part for part in model.stochastic() if part.prior_scale is not None]
    source = torch.Generator().manual_seed(0)
    found, count = curvatures(
        model, parts, [(x[:4], torch.zeros(4)), (x[4:], torch.zeros(2))], sb.Gaussian(noise=0.5), source, list
    )
    assert count == 6
    own = [part.loc if isinstance(part, Factor) else part.mean for part in parts]
    exact = [torch.zeros_like(one) for one in own]
    for k in range(model.members):
        for i in range(6):
            answer = model(x[i : i + 1], samples=0)[k].sum() / 0.5
            gradients = torch.autograd.grad(answer, own, allow_unused=True)
            for total, gradient in zip(exact, gradients, strict=True):
                total += 0.0 if gradient is None else gradient.square()
    for value, expected in zip(found, exact, strict=True):
        torch.testing.assert_close(value.view_as(expected), expected)


def test_the_noise_of_a_gaussian_that_is_only_named_is_that_of_the_residuals():
    net, x, y = line()
    model = fit_posterior(net, [(x[:15], y[:15]), (x[15:], y[15:])], likelihood="gaussian", multiplier=1.0)
    assert model.likelihood.noise == pytest.approx((net(x) - y).square().mean().sqrt().item())


def test_the_curvature_of_classes_is_that_of_the_softmax_on_average():
    torch.manual_seed(0)
    x = torch.randn(3000, 2)
    net = nn.Linear(2, 3)
    model = fit_posterior(
        net, [(x, torch.zeros(3000).long())], "mean_field", multiplier=1.0, prior_std=1e6, max_std=None
    )
    p = net(x).softmax(1)
    exact = torch.einsum("nc,ni->ci", p * (1 - p), x.square())
    torch.testing.assert_close(model.net.weight_posterior.scale, exact.rsqrt(), rtol=0.05, atol=0.0)


def test_tied_scales_are_the_nearest_to_the_curvatures():
    from slimbayes.layers.scale import FullScale, TiedScale

    torch.manual_seed(0)
    u, v = torch.rand(12, 2) + 0.1, torch.rand(5, 2) + 0.1
    tied = TiedScale((5, 12), k=2, std=0.01)
    tied.take(v @ u.T)  # which has the form already
    torch.testing.assert_close(tied.values(), v @ u.T, rtol=0.02, atol=0.0)
    target = 0.05 * (1 + torch.rand(12, 5))  # which has not; a convolution's output channels are elsewhere
    tied = TiedScale((12, 5), k=2, std=0.01, output_dim=1)
    tied.take(target)

    def distance():
        sigma = tied.values()
        return (sigma**2 / (2 * target**2) - sigma.log()).sum()

    reached = distance().item()
    optimiser = torch.optim.LBFGS(tied.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        value = distance()
        value.backward()
        return value

    optimiser.step(closure)
    assert reached == pytest.approx(distance().item(), abs=0.02)
    full = FullScale((12, 5), std=0.01, max_std=0.07)
    full.take(target)
    torch.testing.assert_close(full.values(), target.clamp(max=0.07))


@pytest.mark.parametrize("method", ABLE)
def test_the_network_stays_as_it_is_and_a_seed_decides_everything(method):
    net, batches = classes(200)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first, second = (fit_posterior(net, batches, method, samples=2, seed=3) for _ in range(2))
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    member = first.member(0).state_dict()
    for name, value in before.items():
        assert torch.equal(member[name], value)
    assert not first.training
    for own, other in zip(first.stochastic(), second.stochastic(), strict=True):
        assert torch.equal(own.scale, other.scale)


@pytest.mark.parametrize("method", ABLE)
def test_scales_grow_when_data_shrink(method):
    net, batches = classes()
    much, little = (fit_posterior(net, data, method, multiplier=1.0, prior_std=1.0) for data in (batches, batches[:1]))
    for own, other in zip(much.stochastic(), little.stochastic(), strict=True):
        assert other.scale.log().mean() > own.scale.log().mean()


def test_the_search_finds_the_best_of_a_grid_and_the_largest_within_the_tolerance():
    net, batches = classes(200)
    model = fit_posterior(net, batches, samples=4, seed=0)
    unit = fit_posterior(net, batches, samples=4, seed=0, multiplier=1.0)
    found = (model.net[0].input_factor.scale / unit.net[0].input_factor.scale).mean().item()

    def nll(multiplier):
        one = fit_posterior(net, batches, samples=4, seed=0, multiplier=multiplier)
        scores = [one.predict(x, samples=4, seed=i).log_likelihood(y) for i, (x, y) in enumerate(batches)]
        return -torch.cat(scores).mean().item()

    grid = {2.0 ** (power / 2): nll(2.0 ** (power / 2)) for power in range(-4, 9)}
    assert found == pytest.approx(min(grid, key=grid.get), rel=1e-4)
    wide = fit_posterior(net, batches, samples=4, seed=0, tolerance=0.05)
    stretched = (wide.net[0].input_factor.scale / unit.net[0].input_factor.scale).mean().item()
    assert nll(stretched) <= min(grid.values()) + 0.05 < nll(stretched * math.sqrt(2))


def test_a_temperature_is_left_fitted_to_the_models_predictions():
    net, batches = classes(200)
    scaling = sb.TemperatureScaling()
    model = fit_posterior(net, batches, samples=4, temperature=scaling, multiplier=1.0)
    predictions = [model.predict(x, samples=4, seed=number) for number, (x, _) in enumerate(batches)]
    whole = sb.Prediction(torch.cat([p.draws for p in predictions], 1), sb.Categorical())
    targets = torch.cat([y for _, y in batches])
    assert scaling.temperature > 1.5
    assert scaling.temperature == pytest.approx(sb.TemperatureScaling().fit(whole, targets).temperature)


def test_with_a_temperature_the_search_compares_calibrated_predictions():
    net, _ = classes()
    true = sb.rank1(net, members=1, init="ones", dropout_rate=0.3)  # the data are of a posterior that is wide
    x = torch.randn(500, 4)
    batches = [(x, torch.distributions.Categorical(logits=true(x)[0] / 2).sample())]
    scaling = sb.TemperatureScaling()
    found = fit_posterior(net, batches, samples=4, temperature=scaling).net[0].input_factor.scale
    unit = fit_posterior(net, batches, samples=4, multiplier=1.0).net[0].input_factor.scale
    ratio = (found / unit).mean().item()

    def nll(multiplier):
        own = sb.TemperatureScaling()
        model = fit_posterior(net, batches, samples=4, multiplier=multiplier, temperature=own)
        predictions = [model.predict(x, samples=4, seed=number) for number, (x, _) in enumerate(batches)]
        scores = [own.apply(p).log_likelihood(y) for p, (_, y) in zip(predictions, batches, strict=True)]
        return -torch.cat(scores).mean().item()

    reached = nll(ratio)
    assert reached <= nll(ratio * 2**0.5) + 1e-6
    assert reached <= nll(ratio / 2**0.5) + 1e-6


def test_methods_that_compute_their_posterior_are_given_the_batches():
    net, batches = classes()
    model = fit_posterior(net, iter(batches), "laplace", structure="diag", prior_precision=1.0)
    other = sb.laplace(net, batches, structure="diag", prior_precision=1.0)
    x = batches[0][0]
    assert torch.equal(model.predict(x, samples=3, seed=0).probs, other.predict(x, samples=3, seed=0).probs)
    chosen = fit_posterior(net, batches, "laplace", validation_batches=batches)
    expected = sb.laplace(net, batches, validation_batches=batches)
    assert chosen.options["prior_precision"] == expected.options["prior_precision"]
    with pytest.raises(ValueError, match="to be left out with method='laplace'"):
        fit_posterior(net, batches, "laplace", multiplier=1.0)


def test_heavy_tails_get_a_smaller_multiplier():
    net, batches = classes(200)
    normal, cauchy = (fit_posterior(net, batches, samples=4, family=family) for family in ("normal", "cauchy"))
    assert cauchy.net[0].input_factor.scale.mean() < normal.net[0].input_factor.scale.mean()


def test_a_file_holds_the_scales_alone(tmp_path):
    net, batches = classes()
    model = fit_posterior(net, batches, multiplier=0.5)
    model.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, net)
    x = batches[0][0]
    assert torch.equal(loaded.predict(x, samples=3, seed=0).probs, model.predict(x, samples=3, seed=0).probs)
    assert (tmp_path / "model.safetensors").stat().st_size < 5000


@pytest.mark.parametrize("method", [name for name in BUILT_IN if name not in (*ABLE, "laplace")])
def test_methods_without_scales_are_refused(method):
    net, batches = classes()
    assert get_method(method).name == method
    with pytest.raises(ValueError, match="to have scales that can be set"):
        fit_posterior(net, batches, method)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batches": []}, "`batches` to have examples"),
        ({"batches": [torch.ones(2, 4)]}, "pairs of inputs and a tensor of targets"),
        ({"likelihood": sb.Gaussian}, "likelihood"),
        ({"multiplier": 0.0}, "`multiplier`"),
        ({"tolerance": -1.0}, "`tolerance`"),
        ({"samples": 0}, "`samples`"),
        ({"no_such_option": 1}, "no_such_option"),
        ({"method": "rank_one"}, "rank_one"),
        ({"likelihood": "student_t"}, "to have nothing to learn"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    net, batches = classes()
    with pytest.raises((ValueError, TypeError), match=message):
        fit_posterior(net, **{"batches": batches, **arguments})
