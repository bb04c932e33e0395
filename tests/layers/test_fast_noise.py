"""Scales with their slopes, and noise that is scaled by them, against torch's softplus and autograd."""

import pytest
import torch
import torch.nn.functional as F

from slimbayes.layers.scaled_noise import scale_and_slope, scaled_noise
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


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize(("draws", "located"), [(1, False), (3, False), (1, True)])
def test_gradients_of_first_and_second_order(draws, located):
    parameters = [torch.randn(2, channels, dtype=torch.float64, requires_grad=True) for channels in (3, 1) * 2]
    noise = torch.randn(2, draws, 4, dtype=torch.float64)

    def scaled(*parameters):
        return scaled_noise(noise.clone(), parameters[:2], parameters[2:])

    assert torch.autograd.gradcheck(scaled, parameters if located else parameters[:2])
    assert torch.autograd.gradgradcheck(scaled, parameters if located else parameters[:2])


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("located", [False, True], ids=["deviations", "values"])
def test_compiled_and_plain_noise_is_scaled_row_by_row(located):
    draws = 1 if located else 3
    rhos, locs = ([torch.randn(4, channels, dtype=torch.float64) for channels in (5, 2)] for _ in range(2))
    rhos[0].requires_grad_()
    locs[1].requires_grad_()
    noise = torch.randn(4, draws, 7, dtype=torch.float64)
    found = scaled_noise(noise.clone(), rhos, locs if located else ())
    rows = [(k, n) for k in range(4) for n in range(draws)]
    scaled = torch.stack([(F.softplus(torch.cat([r[k] for r in rhos])) + 1e-7) * noise[k, n] for k, n in rows])
    if located:
        scaled = scaled + torch.cat(locs, 1)
    expected = scaled.split([5, 2], 1)
    for one, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(one, plain, rtol=1e-14, atol=1e-15 if located else 0)
    weights = [torch.randn_like(one) for one in found]
    wanted = (rhos[0], locs[1]) if located else (rhos[0],)
    losses = (sum((one * w).sum() for one, w in zip(outputs, weights, strict=True)) for outputs in (found, expected))
    for own, plain in zip(*(torch.autograd.grad(loss, wanted) for loss in losses), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-12, atol=1e-12)
