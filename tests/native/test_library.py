"""The compiled library: when it is used, and each law and sign that it computes against torch and closed forms."""

import ctypes
import math
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from one_step import one_step
from slimbayes.layers.factor_kl import _compiled_normal
from slimbayes.layers.flips import sign_bytes
from slimbayes.layers.scaled_noise import scaled_noise
from slimbayes.native import kernel, library, status
from torch import distributions as td

from benchmarks.hot_spots import hot_spots
from compiled_kernels import needs_kernels, without_kernels
from slimbayes.layers import passes

DTYPES = (torch.float32, torch.float64)
#: By type: of values, and of gradients, relative.
TOLERANCES = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-10, 1e-10)}
#: A slope that is smaller may be taken for zero: of float32, the exponential is without all its digits there.
LEAST_SLOPE = 1e-30
WIDE = [-100, -87.5, -80, -30, -20, -16, -10, -3.4, -1, 0, 0.5, 1, 7, 19.9, 20.1, 29, 39.9, 40, 40.1, 89, 100]


# ------------------------------------------------------------------ whether it is used


@pytest.fixture
def _looked_up_anew():
    library._library.cache_clear()
    yield
    library._library.cache_clear()


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="no C compiler on the PATH")
def test_with_a_compiler_on_the_path_the_kernels_are_used():
    assert status() == "used", "install slimbayes again, and unset SLIMBAYES_NO_NATIVE"


@needs_kernels
@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux" or not shutil.which("gcc"), reason="no gcc on x86 Linux"
)
def test_products_are_compiled_on_x86():
    """Or their tests would be skipped, and nobody would notice."""
    handle = ctypes.CDLL(str(next(library.FOLDER.glob("kernels*.so"))))
    assert hasattr(handle, "products_known")


@pytest.mark.usefixtures("_looked_up_anew")
def test_a_folder_without_a_library(monkeypatch, tmp_path):
    monkeypatch.delenv(library.SWITCH, raising=False)
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    assert status() == "not there: no C compiler was found when slimbayes was installed"
    assert kernel("scale", torch.float32) is None


@pytest.mark.usefixtures("_looked_up_anew")
def test_a_library_that_cannot_be_loaded(monkeypatch, tmp_path):
    (tmp_path / "kernels.so").write_text("not a library")
    monkeypatch.delenv(library.SWITCH, raising=False)
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    assert status().startswith("not used: kernels.so cannot be loaded (")
    assert kernel("scale", torch.float32) is None


@needs_kernels
@pytest.mark.usefixtures("_looked_up_anew")
def test_a_library_of_other_sources(monkeypatch):
    monkeypatch.setattr(library, "source_hash", lambda: "0" * 16)
    assert status() == "not used: kernels.so was compiled from other sources; install slimbayes again"
    assert kernel("signs", torch.int8) is None


@needs_kernels
@pytest.mark.usefixtures("_looked_up_anew")
@pytest.mark.parametrize(("setting", "expected"), [("", "used"), ("0", "used"), ("1", "not used: {} is set")])
def test_the_switch(setting, expected, monkeypatch):
    monkeypatch.setenv(library.SWITCH, setting)
    assert status() == expected.format(library.SWITCH)


@needs_kernels
@pytest.mark.usefixtures("_looked_up_anew")
def test_the_switch_of_products(monkeypatch):
    monkeypatch.setenv(library.SWITCH, "products")
    assert status() == "used"
    assert kernel("scale", torch.float32) is not None
    assert not library.has_products()
    assert all(kernel(name, dtype) is None for name in library.PRODUCTS for dtype in DTYPES)


@needs_kernels
def test_kernels_of_both_types_and_no_other():
    for name in library.KERNELS:
        assert [kernel(name, dtype) is not None for dtype in (*DTYPES, torch.bfloat16)] == [True, True, False]
    assert kernel("signs", torch.int8) is not None


# ------------------------------------------------------------------ a step with and without it


@pytest.fixture(scope="module")
def plain_step(tmp_path_factory):
    """A step in a process of its own, whose kernels are switched off."""
    path = tmp_path_factory.mktemp("step") / "step.pt"
    environment = {**os.environ, library.SWITCH: "1", "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("one_step.py")
    subprocess.run([sys.executable, str(script), str(path)], env=environment, check=True, timeout=300)
    return torch.load(path)


def test_the_switch_of_a_process(plain_step):
    assert plain_step["status"] == "not used: SLIMBAYES_NO_NATIVE is set"


@pytest.mark.usefixtures("_each_way")
def test_a_step_is_the_same_without_the_kernels(plain_step):
    found = one_step()
    torch.testing.assert_close(found["loss"], plain_step["loss"], rtol=1e-5, atol=0)
    for part in ("gradients", "after"):
        assert found[part].keys() == plain_step[part].keys()
        for name, expected in plain_step[part].items():
            off = (found[part][name] - expected).abs().max()
            assert off <= 1e-4 * expected.abs().max(), (part, name)


# ------------------------------------------------------------------ scales


def exact_scale(rho):
    """Return softplus(rho) + 1e-7 in float64, with a history, from the identity that holds at either end."""
    return torch.logaddexp(rho, torch.zeros_like(rho)) + 1e-7


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scales_and_slopes_wherever_rho_is(dtype):
    of_values, of_slopes = TOLERANCES[dtype]
    rho = torch.tensor([WIDE], dtype=dtype, requires_grad=True)
    exact = rho.detach().double().requires_grad_()
    (found,) = scaled_noise(torch.ones(1, 1, len(WIDE), dtype=dtype), [rho])
    expected = exact_scale(exact)
    torch.testing.assert_close(found.double(), expected, rtol=of_values, atol=0)
    (slope,), (exact_slope,) = torch.autograd.grad(found.sum(), rho), torch.autograd.grad(expected.sum(), exact)
    torch.testing.assert_close(slope.double(), exact_slope, rtol=of_slopes, atol=LEAST_SLOPE)


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scales_that_are_no_numbers_stay_by_themselves(dtype):
    rho = torch.zeros(1, 70, dtype=dtype)
    rho[0, 3], rho[0, 20], rho[0, 40] = math.nan, math.inf, -math.inf
    rho.requires_grad_()
    (found,) = scaled_noise(torch.ones(1, 1, 70, dtype=dtype), [rho])
    (slope,) = torch.autograd.grad(found.sum(), rho)
    expected, expected_slope = torch.full_like(found, math.log(2) + 1e-7), torch.full_like(found, 0.5)
    expected[0, 3], expected[0, 20], expected[0, 40] = math.nan, math.inf, 1e-7
    expected_slope[0, 3], expected_slope[0, 40] = math.nan, 0.0
    torch.testing.assert_close(found, expected, equal_nan=True)
    usual = torch.arange(70) != 20  # infinity times zero: neither 1 nor a number is wrong
    torch.testing.assert_close(slope[:, usual], expected_slope[:, usual], equal_nan=True)


@needs_kernels
def test_noise_of_several_factors_and_draws():
    widths, members, draws = (1, 5, 16, 65), 3, 4
    for dtype in DTYPES:
        rhos = [torch.randn(members, width, dtype=dtype, requires_grad=True) for width in widths]
        noise = torch.randn(members, draws, sum(widths), dtype=dtype)
        found = scaled_noise(noise.clone(), rhos)
        weights = [torch.randn_like(one) for one in found]
        slopes = torch.autograd.grad(found, rhos, weights)
        with without_kernels():
            plain = scaled_noise(noise.clone(), rhos)
            expected = torch.autograd.grad(plain, rhos, weights)
        for one, other in zip(found, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=TOLERANCES[dtype][0], atol=0)
        for one, other in zip(slopes, expected, strict=True):
            near = TOLERANCES[dtype][1] * other.abs().max().item()
            torch.testing.assert_close(one, other, rtol=0, atol=near)


@needs_kernels
def test_noise_of_which_some_gradients_are_not_there():
    rhos = [torch.randn(2, width, dtype=torch.float64, requires_grad=True) for width in (3, 4)]
    noise = torch.randn(2, 5, 7, dtype=torch.float64)
    first, second = scaled_noise(noise.clone(), rhos)
    of_first, of_second = torch.autograd.grad(second.sum(), rhos, allow_unused=True)
    assert of_first is None
    torch.testing.assert_close(of_second, noise[..., 3:].sum(1) * rhos[1].detach().sigmoid(), rtol=1e-10, atol=1e-12)
    assert first.shape == (10, 3)


# ------------------------------------------------------------------ the KL of normal laws


def compiled_kl(locs, rhos, centre, spread):
    """Return the sum, and its slopes for all locations and all rhos."""
    found = _compiled_normal(SimpleNamespace(loc=centre, std=spread), [*locs, *rhos])
    assert found is not None
    total, slopes = found
    return total, *slopes.chunk(2)


def exact_kl(locs, rhos, centre, spread):
    """Return the same in float64, from torch.distributions and autograd."""
    loc, rho = (torch.cat([x.flatten() for x in parts]).double().requires_grad_() for parts in (locs, rhos))
    prior = td.Normal(*torch.tensor([centre, spread], dtype=torch.float64))
    total = td.kl_divergence(td.Normal(loc, exact_scale(rho), validate_args=False), prior).sum()
    return total.detach(), *torch.autograd.grad(total, [loc, rho])


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("centre", "spread"), [(1.0, 0.1), (0.0, 1.0), (-3.0, 25.0)])
def test_the_kl_wherever_rho_is(dtype, centre, spread):
    of_values, of_slopes = TOLERANCES[dtype]
    for value in WIDE:
        loc, rho = torch.tensor([0.7], dtype=dtype), torch.tensor([value], dtype=dtype)
        total, of_loc, of_rho = compiled_kl([loc], [rho], centre, spread)
        expected, exact_of_loc, exact_of_rho = exact_kl([loc], [rho], centre, spread)
        torch.testing.assert_close(total.double(), expected, rtol=of_values, atol=of_values)
        torch.testing.assert_close(of_loc.double(), exact_of_loc, rtol=of_slopes, atol=0)
        torch.testing.assert_close(of_rho.double(), exact_of_rho, rtol=of_slopes, atol=LEAST_SLOPE)


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(1,), (7,), (255,), (256,), (257,), (1, 1000, 3, 256, 5), (5, 70_001)], ids=str)
def test_the_kl_of_factors_of_any_size(sizes, dtype):
    of_values, of_slopes = TOLERANCES[dtype]
    locs, rhos = ([shift + torch.randn(size, dtype=dtype) for size in sizes] for shift in (1, -2))
    found, expected = compiled_kl(locs, rhos, 1.0, 0.1), exact_kl(locs, rhos, 1.0, 0.1)
    assert found[0].dtype == dtype
    torch.testing.assert_close(found[0].double(), expected[0], rtol=of_values, atol=0)
    for own, exact in zip(found[1:], expected[1:], strict=True):
        near = of_slopes * exact.abs().max().item()
        torch.testing.assert_close(own.double(), exact, rtol=0, atol=near)


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", ["loc", "rho"])
def test_the_kl_of_what_is_no_number(part, value, dtype):
    loc, rho = torch.randn(2, 300, dtype=dtype)
    usual = compiled_kl([loc], [rho], 1.0, 0.1)
    (loc if part == "loc" else rho)[270] = value
    total, *slopes = compiled_kl([loc], [rho], 1.0, 0.1)
    expected, *exact = exact_kl([loc], [rho], 1.0, 0.1)
    torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=0, equal_nan=True)
    others = torch.arange(300) != 270
    for own, before, plain in zip(slopes, usual[1:], exact, strict=True):
        assert torch.equal(own[others], before[others])
        assert own[270].isfinite() == plain[270].isfinite()


# ------------------------------------------------------------------ signs

SIZES = [1, 7, 8, 9, 63, 64, 65, 1000]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("size", SIZES)
def test_signs_are_the_bits_of_random_words(size):
    signs = sign_bytes((size,), torch.Generator().manual_seed(size))
    words = torch.empty(-(-size // 64), dtype=torch.int64)
    words.random_(-(2**63), None, generator=torch.Generator().manual_seed(size))
    bits = [word >> place & 1 for word in words.tolist() for place in range(64)]
    assert signs.dtype == torch.int8
    assert signs.tolist() == [1 if bit else -1 for bit in bits[:size]]


@needs_kernels
@pytest.mark.parametrize("shape", [*((size,) for size in SIZES), (3, 5), (32, 70), (7, 11, 13)], ids=str)
def test_signs_of_a_seed_are_the_same_without_the_kernel(shape):
    torch.manual_seed(1)
    found, behind = sign_bytes(shape), torch.rand(1)
    with without_kernels():
        torch.manual_seed(1)
        assert torch.equal(sign_bytes(shape), found)
        assert torch.equal(torch.rand(1), behind)
    assert found.shape == shape


# ------------------------------------------------------------------ seen by a profiler


@needs_kernels
def test_profiles_show_kernels_by_name_and_kernels_are_put_back():
    before, x, values = kernel("scale", torch.float32), torch.ones(4, 3), torch.ones(2, 3)
    spots = hot_spots(lambda: passes.scale(x, values, None, torch.empty(4, 3)), seconds=1e-3)
    assert {spot["operator"]: spot["calls"] for spot in spots}["slimbayes::scale"] == 1
    assert kernel("scale", torch.float32) is before
