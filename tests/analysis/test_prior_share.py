"""The prior's share of a posterior, in linear regressions whose exact posterior says what it is.

With orthogonal features F and noise of known size, the posterior of each coefficient is normal, with precision
1 / prior_std^2 + |F_j|^2 / noise^2: the first term is the prior's, the second the data's.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.analysis import posterior_matrices, prior_share

DATA, INPUTS, NOISE = 32, 4, 0.5
#: Features of unlike size: the data say much of the first coefficient and hardly anything of the last.
SIZES = torch.tensor([3.0, 1.0, 0.3, 0.03], dtype=torch.float64)


@pytest.fixture
def regression():
    x = torch.linalg.qr(torch.randn(DATA, INPUTS, dtype=torch.float64)).Q * math.sqrt(DATA) * SIZES
    return x, x.sum(1) + NOISE * torch.randn(DATA, dtype=torch.float64)


def plain():
    net = nn.Linear(INPUTS, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(net.weight)
    return net


def train_exactly(model, posterior, x, y, member_kl="sum"):
    """Minimise the ELBO, with draws that have the posterior's mean and covariance: expected squares are exact."""
    elbo = sb.ELBO(model, num_data=DATA, likelihood=sb.Gaussian(noise=NOISE), member_kl=member_kl)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.LBFGS(
        trained, max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=0
    )
    unit = math.sqrt(INPUTS) * torch.cat([torch.eye(INPUTS), -torch.eye(INPUTS)]).double()

    def closure():
        optimiser.zero_grad()
        loc = posterior.distribution.mean
        points = (loc.unsqueeze(1) + posterior.scale.unsqueeze(1) * unit).flatten(0, 1)
        draws = points.view(-1, *posterior.at_location(0).shape)
        loss = elbo(model(x, draw={posterior.name: draws}), y)
        loss.backward()
        return loss

    optimiser.step(closure)


def exact_share(x, prior_std, strength=1.0):
    from_prior, from_data = prior_std**-2, strength * x.square().sum(0).numpy() / NOISE**2
    return from_prior / (from_prior + from_data)


@pytest.mark.parametrize("prior", ["normal", "he", "tied_mean"])
@pytest.mark.parametrize(("convert", "options"), [(sb.mean_field, {}), (sb.k_tied, {"k": 1}), (sb.k_tied, {"k": 2})])
def test_weights_of_a_regression(regression, convert, options, prior):
    x, y = regression
    model = convert(plain(), prior=prior, prior_std=0.4, init_std=0.1, **options)
    train_exactly(model, model.net.weight_posterior, x, y)
    expected = exact_share(x, math.sqrt(2 / INPUTS) if prior == "he" else 0.4)
    assert expected.min() < 0.01
    assert expected.max() > 0.9
    ((name, share),) = prior_share(model).items()
    assert name == "weight"
    np.testing.assert_allclose(share.elements, expected[:, None], rtol=1e-5)
    assert share.mean == pytest.approx(expected.mean(), rel=1e-5)


@pytest.mark.parametrize(("members", "member_kl", "strength"), [(1, "sum", 1.0), (3, "mean", 1.0), (3, "sum", 1 / 3)])
def test_factors_of_a_regression(regression, members, member_kl, strength):
    x, y = regression
    model = sb.rank1(
        plain(), members=members, factors="input", freeze_base=True, init="ones", dropout_rate=0.01, prior_std=0.4
    )
    train_exactly(model, model.net.input_factor, x, y, member_kl)
    ((name, share),) = prior_share(model).items()
    assert name == "input_factor"
    np.testing.assert_allclose(share.elements, np.tile(exact_share(x, 0.4, strength), (members, 1)), rtol=1e-5)


@pytest.mark.parametrize("family", ["normal", "log_normal"])
@pytest.mark.parametrize("prior_scale", ["fixed", "trainable"])
def test_factors_against_their_own_scales(family, prior_scale):
    model = sb.rank1(
        nn.Linear(5, 3).double(), members=2, rank=2, family=family, prior_scale=prior_scale, dropout_rate=0.005
    )
    factor = model.net.input_factor
    prior_std = 0.1
    if prior_scale == "trainable":
        prior_std = 0.2
        with torch.no_grad():
            factor.prior.rho.fill_(math.log(math.expm1(0.2 - 1e-7)))
    share = prior_share(model)["input_factor"]
    scale = np.log1p(np.exp(factor.rho.detach().numpy())) + 1e-7
    np.testing.assert_allclose(share.elements, (scale / prior_std).reshape(4, 5) ** 2, rtol=1e-9)


def test_wider_than_the_prior_counts_as_one():
    model = sb.mean_field(nn.Linear(5, 3), init_std=0.5, prior_std=0.3, init_jitter=0.0)
    np.testing.assert_array_equal(prior_share(model)["weight"].elements, np.ones((5, 3)))


def test_shares_are_laid_out_as_the_matrices():
    model = sb.mean_field(nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(16, 3)), prior_std=0.3)
    matrices = posterior_matrices(model)
    shares = prior_share(model)
    assert list(shares) == list(matrices) == ["0", "2"]
    for name, share in shares.items():
        np.testing.assert_allclose(share.elements, (matrices[name].scale / 0.3) ** 2, rtol=1e-12)


def test_a_padding_row_is_left_out():
    model = sb.mean_field(nn.Embedding(7, 4, padding_idx=2), init_std=0.15, init_jitter=0.0, prior_std=0.3)
    share = prior_share(model)["weight"]
    assert np.isnan(share.elements[:, 2]).all()
    assert share.mean == pytest.approx(0.25, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "families"),
    [
        ({"family": "cauchy"}, "cauchy under cauchy"),
        ({"prior_family": "cauchy"}, "normal under cauchy"),
        ({"scale_prior": "half_cauchy"}, "normal under horseshoe"),
        ({"family": "delta", "prior_family": "normal"}, "delta under normal"),
        ({"family": "log_normal", "prior_family": "normal"}, "log_normal under normal"),
    ],
)
def test_other_families_have_no_such_split(options, families):
    model = sb.rank1(nn.Linear(5, 3), **options)
    with pytest.raises(ValueError, match=rf"`model`.*input_factor \({families}\), output_factor \({families}\)\."):
        prior_share(model)


def test_parts_of_other_families_are_left_out():
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))
    model = sb.rank1(net, family="cauchy", embedding="mean_field", embedding_prior_std=1.0)
    shares = prior_share(model)
    assert list(shares) == ["0"]
    expected = model.net[0].weight_posterior.scale.detach().double().numpy().T ** 2
    np.testing.assert_allclose(shares["0"].elements, expected, rtol=1e-12)
