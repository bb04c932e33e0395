"""Scales with their slopes, and noise that is scaled by them, against torch's softplus and autograd."""

import pytest
import torch
import torch.nn.functional as F

from slimbayes.layers import scaled_noise as module
from slimbayes.layers.scaled_noise import _ScaledNoise, scale_and_slope, scaled_noise
from slimbayes.priors import SCALE_EPSILON


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scales_and_slopes_wherever_rho_is(dtype):
    rho = torch.tensor([-200.0, -80, -20, -3.4, 0, 1, 19.9, 20.1, 29, 31, 90, 1e5], dtype=dtype)
    slope, exact = rho.clone(), rho.double()
    scale = scale_and_slope(slope, torch.empty_like(rho))
    rtol = 4 * torch.finfo(dtype).eps
    expected = torch.logaddexp(exact, torch.zeros_like(exact)) + SCALE_EPSILON
    torch.testing.assert_close(scale, expected.to(dtype), rtol=rtol, atol=0)
    tiny = torch.finfo(dtype).tiny  # what is smaller may be taken for zero
    torch.testing.assert_close(slope, exact.sigmoid().to(dtype), rtol=rtol, atol=tiny)


@pytest.mark.parametrize("draws", [1, 3])
def test_gradients_of_first_and_second_order(draws):
    torch.manual_seed(0)
    rhos = [torch.randn(2, channels, dtype=torch.float64, requires_grad=True) for channels in (3, 1)]
    noise = torch.randn(2, draws, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *rhos: _ScaledNoise.apply(noise, *rhos), rhos)
    assert torch.autograd.gradgradcheck(lambda *rhos: _ScaledNoise.apply(noise, *rhos), rhos)


@pytest.mark.parametrize("least", [0, 10**9])
def test_many_and_few_scales_are_the_same(least, monkeypatch):
    monkeypatch.setattr(module, "LEAST_SCALES", least)
    torch.manual_seed(0)
    rhos = [torch.randn(4, channels, dtype=torch.float64, requires_grad=True) for channels in (5, 2)]
    rhos[1].requires_grad_(False)
    noise = torch.randn(4, 3, 7, dtype=torch.float64)
    scaled = scaled_noise(noise, rhos)
    by_row = [[(F.softplus(torch.cat([r[k] for r in rhos])) + 1e-7) * noise[k, n] for n in range(3)] for k in range(4)]
    expected = torch.stack([torch.stack(rows) for rows in by_row])
    torch.testing.assert_close(scaled, expected, rtol=1e-14, atol=0)
    weights = torch.randn_like(scaled)
    own, plain = (torch.autograd.grad((x * weights).sum(), rhos[0])[0] for x in (scaled, expected))
    torch.testing.assert_close(own, plain, rtol=1e-12, atol=1e-12)
