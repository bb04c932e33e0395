"""k-tied models out of mean-field ones: close to sigma, and in every way as if ``sb.k_tied`` had made them."""

import copy
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.decomposition import NMF
from torch import nn

import slimbayes as sb
from slimbayes.analysis import explained_variance, low_rank, posterior_matrices, tie
from slimbayes.layers.scale import FullScale, TiedScale


class Sequence(nn.Module):
    """A padding token, an LSTM, a decoder whose weight is the embedding's, and a layer with one output."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4, padding_idx=2)
        self.lstm = nn.LSTM(4, 4, batch_first=True)
        self.decoder = nn.Linear(4, 9)
        self.decoder.weight = self.embed.weight
        self.score = nn.Linear(9, 1)

    def forward(self, tokens):
        return self.score(self.decoder(self.lstm(self.embed(tokens))[0][:, -1]))


def mlp():
    return nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))


def conv():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, groups=2), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2), nn.Flatten(), nn.Linear(36, 3)
    )


NETS = {
    "mlp": (mlp, lambda: torch.randn(7, 12)),
    "conv": (conv, lambda: torch.randn(7, 2, 4, 4)),
    "sequence": (Sequence, lambda: torch.randint(9, (7, 5))),
    "attention": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True),
        lambda: torch.randn(7, 5, 8),
    ),
}


def trained(net, **options):
    """Return a mean-field model with standard deviations of every size, as after training."""
    model = sb.mean_field(net, **options)
    with torch.no_grad():
        for part in model.stochastic():
            part.spread.log_scale.normal_(-4, 0.7)
    return model


def weights(model):
    return [part for part in model.stochastic() if part.mean.dim() > 1]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("network", NETS)
def test_as_if_made_by_k_tied(network, k, tmp_path):
    build, inputs = NETS[network]
    net, x = build(), inputs()
    model = trained(net)
    model.likelihood = sb.Gaussian(noise=0.3)
    tied, made = tie(model, k), sb.k_tied(net, k=k)
    assert (tied.method, tied.options) == (made.method, made.options)
    assert tied.summary() == made.summary()
    shapes = [{name: p.shape for name, p in one.net.named_parameters()} for one in (tied, made)]
    assert shapes[0] == shapes[1]
    assert all(isinstance(part.spread, TiedScale) for part in weights(tied))
    assert all(isinstance(part.spread, FullScale) for part in tied.stochastic() if part.mean.dim() == 1)

    tied.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, build())
    assert loaded.state_dict().keys() == tied.state_dict().keys()
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, tied.state_dict()[name]), name
    assert loaded.method == "k_tied"
    predictions = [one.predict(x, samples=4, seed=0) for one in (tied, loaded)]
    assert torch.equal(predictions[0].draws, predictions[1].draws)


def test_chosen_layers_are_tied_and_the_others_left(tmp_path):
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 3))
    model, made = trained(net), sb.k_tied(net, k=2, untied=["0"])
    tied, whole = tie(model, 2, layers=["2", "3"]), tie(model, 2)
    assert tied.options == made.options
    assert tied.summary() == made.summary()
    scales, before, all_tied = (posterior_matrices(one) for one in (tied, model, whole))
    np.testing.assert_array_equal(scales["0"].scale, before["0"].scale)
    np.testing.assert_array_equal(scales["3"].scale, all_tied["3"].scale)
    tied.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, net)
    assert all(torch.equal(value, tied.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_a_layer_is_tied_as_a_whole():
    model = trained(nn.LSTM(4, 3))
    assert tie(model, 2, layers=["weight_ih_l0", "weight_hh_l0"]).options["untied"] == []
    with pytest.raises(ValueError, match="`layers`.*lacks weight_hh_l0"):
        tie(model, 2, layers=["weight_ih_l0"])


@pytest.mark.parametrize("network", NETS)
def test_the_model_is_not_touched(network):
    build, inputs = NETS[network]
    model = trained(build())
    before, options = copy.deepcopy(model.state_dict()), dict(model.options)
    tied = tie(model, 2)
    assert (model.method, model.options) == ("mean_field", options)
    assert model.state_dict().keys() == before.keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        if name in tied.state_dict():
            assert torch.equal(tied.state_dict()[name], value)
            assert tied.state_dict()[name].data_ptr() != value.data_ptr()
        else:
            assert name.endswith("spread.log_scale")
            assert value.dim() > 1
    x = inputs()
    torch.testing.assert_close(tied(x, samples=0), model(x, samples=0))


@pytest.mark.parametrize("network", NETS)
def test_one_term_is_the_best_approximation_of_rank_1(network):
    model = trained(NETS[network][0]().double())
    tied, best = posterior_matrices(tie(model, 1)), posterior_matrices(low_rank(model, 1))
    for name, matrices in best.items():
        np.testing.assert_allclose(tied[name].scale, matrices.scale, rtol=1e-6)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("network", NETS)
def test_as_close_as_scikit_learn(network, k):
    model = trained(NETS[network][0]())
    tied = posterior_matrices(tie(model, k))
    for name, (_, sigma) in posterior_matrices(model).items():
        terms = min(k, *sigma.shape)  # a layer with one output has no use for a second term
        theirs = NMF(terms, init="nndsvda", max_iter=1000, tol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            product = theirs.fit_transform(sigma) @ theirs.components_
        allowed = 1.02 * np.linalg.norm(product - sigma) + 1e-5 * np.linalg.norm(sigma)
        assert np.linalg.norm(tied[name].scale - sigma) <= allowed, name


def test_the_residual_falls_with_k():
    model = trained(nn.Linear(12, 8).double())
    sigma = model.net.weight_posterior.scale
    residuals = [(tie(model, k).net.weight_posterior.scale - sigma).norm().item() for k in (1, 2, 3, 5, 8)]
    assert all(after < before for before, after in pairwise(residuals))
    assert residuals[-1] < 0.02 * sigma.norm()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_result_has_rank_k(k):
    for shares in explained_variance(tie(trained(conv().double()), k)).values():
        assert shares.scale[:k].min() > 1e-4
        assert shares.scale[k:].max(initial=0) < 1e-28


def test_the_kl_is_the_sum_over_weights():
    tied = tie(trained(nn.Linear(12, 8, bias=False).double()), 2)
    posterior = tied.net.weight_posterior
    mean, sigma = (x.detach().numpy() for x in (posterior.mean, posterior.scale))
    draws = stats.norm(mean, sigma)
    expected = -draws.entropy().sum() - np.sum(-np.log(0.3 * np.sqrt(2 * np.pi)) - (mean**2 + sigma**2) / (2 * 0.3**2))
    assert tied.kl().item() == pytest.approx(expected, rel=1e-10)


def test_training_goes_on():
    x = torch.randn(200, 12)
    y = x[:, :3].argmax(1)
    model = sb.mean_field(mlp(), estimator="local", init="he", init_std=0.05)

    def train(model, steps):
        elbo = sb.ELBO(model, num_data=len(x), likelihood="categorical")
        optimiser = torch.optim.Adam(model.param_groups(lr=0.01))
        for _ in range(steps):
            optimiser.zero_grad()
            elbo(model(x), y).backward()
            optimiser.step()
        with torch.no_grad():
            return elbo(model(x, samples=64, generator=torch.Generator().manual_seed(0)), y).item()

    at_first = train(model, 100)
    tied = tie(model, 2)
    before = copy.deepcopy(tied.state_dict())
    halfway, later = train(tied, 0), train(tied, 100)
    assert halfway == pytest.approx(at_first, rel=0.2)
    assert later < halfway - 0.05
    for name in ("log_u", "log_v"):
        name = f"net.0.weight_posterior.spread.{name}"
        assert not torch.equal(tied.state_dict()[name], before[name])


# ---------------------------------------------------------------------- options of the mean-field model


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_bound_stays_a_bound(k, tmp_path):
    model = trained(nn.Linear(12, 8).double(), max_std=0.02)
    sigma = model.net.weight_posterior.scale
    assert (sigma == 0.02).any()
    tied = tie(model, k)
    spread = tied.net.weight_posterior.spread
    for log in (spread.log_u, spread.log_v):
        assert log.max() <= 0.5 * np.log(0.02 / k) + 1e-12
    assert tied.net.weight_posterior.scale.max() <= 0.02 * (1 + 1e-12)
    assert tied.options == sb.k_tied(nn.Linear(12, 8), k=k, max_std=0.02).options
    tied.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, nn.Linear(12, 8).double())
    assert torch.equal(loaded.net.weight_posterior.scale, tied.net.weight_posterior.scale)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_standard_deviations_at_the_bound_are_reached(k):
    model = sb.mean_field(nn.Linear(12, 8), init_std=0.2, init_jitter=0.0, max_std=0.2)
    with torch.no_grad():
        model.net.weight_posterior.spread.log_scale.fill_(1.0)  # far above
    scale = tie(model, k).net.weight_posterior.scale
    torch.testing.assert_close(scale, torch.full((8, 12), 0.2), rtol=1e-5, atol=0)


def test_a_frozen_base_stays_frozen(tmp_path):
    net = mlp()
    model = trained(net, freeze_base=True, bayesian_bias=False, estimator="flipout", prior="he")
    tied = tie(model, 2)
    learning = [name for name, p in tied.net.named_parameters() if p.requires_grad]
    assert learning == [f"{layer}.weight_posterior.spread.log_{x}" for layer in (0, 2) for x in "uv"]
    assert tied.net[0].weight_posterior.prior_std == pytest.approx((2 / 12) ** 0.5)
    tied.save_pretrained(tmp_path)
    loaded, x = sb.load(tmp_path, net), torch.randn(5, 12)
    assert torch.equal(loaded.predict(x, seed=0).draws, tied.predict(x, seed=0).draws)


def test_parameters_that_do_not_train_still_do_not():
    model = trained(mlp())
    model.net[0].weight_posterior.requires_grad_(False)
    tied = tie(model, 2)
    assert not any(p.requires_grad for p in tied.net[0].weight_posterior.parameters())
    assert all(p.requires_grad for p in tied.net[2].weight_posterior.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_types_are_kept(dtype):
    tied = tie(trained(mlp().to(dtype)), 2)
    assert {p.dtype for p in tied.parameters()} == {dtype}


def test_a_padding_row_has_no_say():
    model = trained(nn.Embedding(9, 4, padding_idx=2).double())
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.net.weight_posterior.spread.log_scale[2] = 5.0
    assert torch.equal(tie(model, 2).net.weight_posterior.scale, tie(other, 2).net.weight_posterior.scale)
    assert torch.equal(tie(model, 2).kl(), tie(other, 2).kl())


def test_tied_weights_share_one_posterior():
    tied = tie(trained(Sequence()), 2)
    assert tied.net.embed.weight_posterior is tied.net.decoder.weight_posterior
    assert tied.net.embed.weight_posterior.mean is tied.net.decoder.weight


def test_the_floor():
    model = trained(nn.Linear(12, 8).double())
    with torch.no_grad():
        model.net.weight_posterior.spread.log_scale[0] = -40.0
    sigma = tie(model, 2, floor=1e-4).net.weight_posterior.scale
    assert sigma.min() >= 1e-4 * (1 - 1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, r"`k`.*at least 1.*0"),
        ({"k": 2.5}, r"`k`.*2.5"),
        ({"k": 2, "iterations": 0}, r"`iterations`.*at least 1.*0"),
        ({"k": 2, "floor": 0.0}, r"`floor`.*above 0.*0.0"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        tie(sb.mean_field(nn.Linear(3, 2)), **options)


@pytest.mark.parametrize(
    ("convert", "options"), [(sb.k_tied, {"untied": "1"}), (sb.rank1, {}), (sb.rank1, {"embedding": "mean_field"})]
)
def test_other_models(convert, options):
    model = convert(nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3)), **options)
    with pytest.raises(ValueError, match=rf"`model`.*mean_field model, but got a {model.method} one.*sb.mean_field"):
        tie(model, 2)
