"""The signal-to-noise ratio of gradients, against NumPy on gradients that were kept."""

import numpy as np
import pytest
import torch
from torch import Generator, nn

import slimbayes as sb
from slimbayes.analysis import GradientSNR


def ratios_of(gradients):
    """E[g^2] / Var[g] (footnote 3) of gradients (batches, parameters)."""
    gradients = np.asarray(gradients, dtype=np.float64)
    return (gradients**2).mean(0) / gradients.var(0)


def train_step(model, x):
    model.zero_grad()
    model(x).square().sum().backward()


def put_gradients(model, gradients):
    """Hand the model's only posterior its gradients, batch by batch."""
    (parameter,) = model.net.weight_posterior.spread.log_parameters()
    for gradient in gradients:
        parameter.grad = torch.as_tensor(gradient, dtype=parameter.dtype).view_as(parameter)
        yield


@pytest.mark.parametrize("window", [2, 10])
def test_mean_field_over_windows(window):
    model = sb.mean_field(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double())
    snr = GradientSNR(model, window=window)
    for _ in range(3):  # each window starts afresh
        kept = {"0": [], "2": []}
        for batch in range(window):
            train_step(model, torch.randn(6, 4, dtype=torch.float64))
            snr.update()
            assert snr.full is (batch == window - 1)
            for name, gradients in kept.items():
                log_scale = model.net[int(name)].weight_posterior.spread.log_scale
                gradients.append(log_scale.grad.flatten().numpy().copy())
        found, ratios = snr.compute(), snr.ratios()
        assert list(found) == ["0", "2"]
        for name, gradients in kept.items():
            expected = ratios_of(gradients)
            np.testing.assert_allclose(ratios[name], expected, rtol=1e-9)
            assert found[name].mean == pytest.approx(expected.mean(), rel=1e-9)
            assert found[name].median == pytest.approx(np.median(expected), rel=1e-9)
            moments = np.array(gradients)
            of_layer = (moments**2).mean(0).sum() / moments.var(0).sum()
            assert found[name].layer == pytest.approx(of_layer, rel=1e-9)
        whole = np.concatenate([np.array(gradients) for gradients in kept.values()], axis=1)
        assert snr.of_model() == pytest.approx((whole**2).mean(0).sum() / whole.var(0).sum(), rel=1e-9)


def test_k_tied_takes_u_and_v_together():
    model = sb.k_tied(nn.Linear(4, 3).double(), k=2)
    snr, spread, kept = GradientSNR(model), model.net.weight_posterior.spread, []
    for _ in range(10):
        train_step(model, torch.randn(6, 4, dtype=torch.float64))
        snr.update()
        kept.append(torch.cat([spread.log_u.grad.flatten(), spread.log_v.grad.flatten()]).numpy())
    assert len(kept[0]) == 2 * (4 + 3)
    np.testing.assert_allclose(snr.ratios()["weight"], ratios_of(kept), rtol=1e-9)


def test_rank1_gradients_are_of_the_log_scale():
    """The gradient of the model's loss, and autograd's on the same loss written in terms of log scale."""
    model = sb.rank1(nn.Linear(4, 3).double(), members=2, factors="input", noise="shared")
    factor, snr, kept = model.net.input_factor, GradientSNR(model, window=5), []
    with torch.no_grad():
        factor.rho += torch.randn_like(factor.rho)
    assert list(snr.parts) == ["input_factor"]
    prior = torch.distributions.Normal(*torch.tensor([1.0, 0.1], dtype=torch.float64))
    for batch in range(5):
        x = torch.randn(6, 4, dtype=torch.float64)
        model.zero_grad()
        loss = model(x, generator=Generator().manual_seed(batch)).square().sum() + model.kl()
        loss.backward()
        snr.update()
        log_scale = (torch.log1p(factor.rho.exp()) + 1e-7).log().detach().requires_grad_()
        noise = torch.randn(2, 1, 4, dtype=torch.float64, generator=Generator().manual_seed(batch))
        s = factor.loc.detach() + log_scale.exp() * noise.squeeze(1)
        y = (x * s.unsqueeze(1)) @ model.net.weight.detach().T + model.net.bias.detach().unsqueeze(1)
        posterior = torch.distributions.Normal(factor.loc.detach(), log_scale.exp())
        kl = torch.distributions.kl_divergence(posterior, prior).sum()
        same_loss = y.square().sum() + kl
        assert same_loss.item() == pytest.approx(loss.item(), rel=1e-10)
        (gradient,) = torch.autograd.grad(same_loss, log_scale)
        torch.testing.assert_close(factor.log_scale_gradients()[0], gradient, rtol=1e-9, atol=0)
        kept.append(gradient.flatten().numpy())
    np.testing.assert_allclose(snr.ratios()["input_factor"], ratios_of(kept), rtol=1e-8)


@pytest.mark.parametrize("ratio", [1.5, 1e2, 1e4])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_single_precision_is_enough(ratio, size):
    model = sb.mean_field(nn.Linear(20, 10))
    snr = GradientSNR(model)
    rng = np.random.default_rng(0)
    gradients = (size * (1 + rng.standard_normal((10, 200)) / np.sqrt(ratio))).astype(np.float32)
    for _ in put_gradients(model, gradients):
        snr.update()
    np.testing.assert_allclose(snr.ratios()["weight"], ratios_of(gradients), rtol=0.01)
    assert snr.compute()["weight"].mean == pytest.approx(ratios_of(gradients).mean(), rel=0.01)


def test_half_precision_gradients():
    model = sb.mean_field(nn.Linear(20, 10)).to(torch.bfloat16)
    snr = GradientSNR(model)
    gradients = torch.randn(10, 200).to(torch.bfloat16)
    for _ in put_gradients(model, gradients):
        snr.update()
    np.testing.assert_allclose(snr.ratios()["weight"], ratios_of(gradients.double()), rtol=1e-4)


def test_gradients_that_are_zero_or_never_change():
    model = sb.mean_field(nn.Linear(3, 1))
    snr = GradientSNR(model, window=2)
    for _ in put_gradients(model, [[0.0, 2.0, 1.0], [0.0, 2.0, 3.0]]):
        snr.update()
    np.testing.assert_array_equal(snr.ratios()["weight"], [np.nan, np.inf, 5.0])  # (1 + 9) / 2 over 1
    assert snr.compute()["weight"] == (np.inf, np.inf, 9.0)  # of all three together: (0 + 4 + 5) / (0 + 0 + 1)
    for _ in put_gradients(model, np.zeros((2, 3))):
        snr.update()
    assert np.isnan(snr.compute()["weight"]).all()


def test_reset_opens_a_new_window():
    model = sb.mean_field(nn.Linear(3, 1))
    snr = GradientSNR(model, window=2)
    for _ in put_gradients(model, [[100.0, 100.0, 100.0]]):
        snr.update()
    snr.reset()
    for _ in put_gradients(model, [[1.0, 1.0, 1.0], [3.0, 2.0, 0.0]]):
        snr.update()
    np.testing.assert_allclose(snr.ratios()["weight"], [5.0, 10.0, 2.0], rtol=1e-6)


# ---------------------------------------------------------------------- errors


def test_a_window_must_be_full():
    model = sb.mean_field(nn.Linear(3, 1))
    snr = GradientSNR(model, window=4)
    for read in (snr.compute, snr.ratios):
        with pytest.raises(RuntimeError, match=r"0 of 4 batches.*update\(\)"):
            read()
    for _ in put_gradients(model, np.ones((3, 3))):
        snr.update()
    with pytest.raises(RuntimeError, match=r"3 of 4 batches"):
        snr.compute()


@pytest.mark.parametrize("convert", [sb.mean_field, sb.rank1, sb.k_tied])
def test_without_gradients(convert):
    snr = GradientSNR(convert(nn.Linear(3, 1)), window=2)
    snr.update()
    snr.update()
    with pytest.raises(RuntimeError, match=r"No gradients.*after backward\(\)"):
        snr.compute()


def test_models_without_scales_to_train():
    with pytest.raises(ValueError, match="scales that are trained"):
        GradientSNR(sb.batch_ensemble(nn.Linear(3, 1)))
    with pytest.raises(TypeError, match="BayesianModel, but got Linear"):
        GradientSNR(nn.Linear(3, 1))


@pytest.mark.parametrize(("first", "message"), [(True, "no gradient now, but had one"), (False, "a gradient now")])
def test_gradients_that_come_or_go_within_a_window(first, message):
    model = sb.mean_field(nn.Linear(3, 1))
    snr = GradientSNR(model, window=3)
    for there in (first, not first):
        model.zero_grad()
        if there:
            model(torch.randn(4, 3)).sum().backward()
        if there is first:
            snr.update()
    with pytest.raises(RuntimeError, match=rf"weight has {message}"):
        snr.update()


@pytest.mark.parametrize("window", [1, 0, 2.5])
def test_wrong_window(window):
    with pytest.raises(ValueError, match=rf"`window`.*at least 2.*{window}"):
        GradientSNR(sb.mean_field(nn.Linear(3, 1)), window=window)
