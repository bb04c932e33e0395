"""Standard deviations, full and k-tied: what they are, their sums, their bound, and the factored output variance."""

import math
from functools import reduce

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from slimbayes.layers import FullScale, TiedScale
from slimbayes.layers._local_reparameterization import variance_maps

F64 = torch.float64


def assert_relative(actual, expected, error):
    torch.testing.assert_close(actual.to(F64), expected.to(F64), rtol=error, atol=0)


def spread_out(scale, width=1.0):
    """Give the log parameters values that differ visibly."""
    with torch.no_grad():
        for parameter in scale.log_parameters():
            parameter.copy_(width * torch.randn_like(parameter) - 1)
    return scale


def factors(scale):
    """Return U and V of the free parameters, as float64."""
    return scale.log_u.to(F64).exp(), scale.log_v.to(F64).exp()


def materialised(scale):
    """Return sigma of the free parameters in float64, differentiably and without the code under test."""
    if isinstance(scale, FullScale):
        return scale.log_scale.to(F64).exp()
    u, v = factors(scale)
    rest = [size for axis, size in enumerate(scale.shape) if axis != scale.output_dim]
    return (v.unsqueeze(1) * u).sum(-1).view(-1, *rest).movedim(0, scale.output_dim)


def sums(scale, rows=None):
    """Return the sums of log sigma and of sigma^2."""
    return scale.weighted_sum(1.0, 0.0, rows=rows), scale.weighted_sum(0.0, 1.0, rows=rows)


def output_variance(scale, squares):
    """Return the variances of a dense layer's outputs for squared inputs."""
    return reduce(torch.nn.functional.linear, variance_maps(*scale.logs()), squares)


# ---------------------------------------------------------------------- initial values


@pytest.mark.parametrize(("std", "jitter"), [(0.01, 0.1), (0.3, 0.05)])
def test_full_standard_deviations_start_normal_around_std(std, jitter):
    """N(0.01, 0.001) in appendix D.2."""
    values = FullScale((200, 100), std, jitter).values().detach().flatten().double()
    assert stats.kstest(values.numpy(), stats.norm(std, jitter * std).cdf).pvalue > 1e-3


def test_the_default_jitter_is_a_tenth():
    values = FullScale((200, 100), std=0.01).values()
    assert values.std().item() == pytest.approx(0.001, rel=5 / math.sqrt(2 * 20_000))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_tied_logarithms_start_as_appendix_d4_says(k):
    scale = TiedScale((4000, 5000), k, std=0.01)
    for log in (scale.log_u, scale.log_v):
        standard = (log.detach().flatten().double() - 0.5 * (math.log(0.01) - math.log(k))) / 0.1
        assert stats.kstest(standard.numpy(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("k", [1, 2, 5])
def test_tied_sigma_starts_at_std(k):
    values = TiedScale((2000, 1000), k, std=0.02).values()
    # Two log-normals of scale 0.1 raise the mean by exp(2 * 0.1^2 / 2).
    assert values.mean().item() == pytest.approx(0.02 * math.exp(0.01), rel=0.01)
    assert TiedScale((3, 4), k, std=0.02, jitter=0.0).values().tolist() == [[pytest.approx(0.02, rel=1e-6)] * 4] * 3


def test_the_terms_start_apart():
    """Otherwise all k would have the same gradient for ever."""
    scale = TiedScale((30, 20), k=3, std=0.01)
    assert np.linalg.matrix_rank(scale.log_u.detach().numpy()) == 3


def test_a_wild_jitter_gives_positive_values():
    assert (FullScale((1000,), std=0.01, jitter=5.0).values() > 0).all()


@pytest.mark.parametrize(
    "make", [lambda **kw: FullScale((3, 2), 0.1, **kw), lambda **kw: TiedScale((3, 2), 2, 0.1, **kw)]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_device_and_dtype(make, dtype):
    for parameter in make(device="meta", dtype=dtype).parameters():
        assert (parameter.device.type, parameter.dtype) == ("meta", dtype)


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("shape", "output_dim"),
    [
        ((4, 3), 0),
        ((4, 3, 5), 0),
        ((4, 3, 2, 5), 0),
        ((4, 3, 2), 1),
        ((4, 3, 2, 5), 1),
        ((2, 3, 2, 2, 3), 1),
        ((1, 6), 0),
    ],
)
@pytest.mark.parametrize("k", [1, 3])
def test_tied_sigma_is_a_sum_of_products_over_flattened_kernels(shape, output_dim, k):
    """Appendix D.3: inputs and kernel are flattened together, in the order of the weight, outputs apart."""
    scale = spread_out(TiedScale(shape, k, 0.01, output_dim=output_dim, dtype=F64))
    u, v = factors(scale)
    inputs = math.prod(shape) // shape[output_dim]
    assert (u.shape, v.shape) == ((inputs, k), (shape[output_dim], k))
    values = scale.values()
    assert values.shape == shape
    rest = [size for axis, size in enumerate(shape) if axis != output_dim]
    for position in np.ndindex(*shape):
        flat = np.ravel_multi_index([i for axis, i in enumerate(position) if axis != output_dim], rest)
        expected = sum(u[flat, a] * v[position[output_dim], a] for a in range(k))
        assert values[position].item() == pytest.approx(expected.item(), rel=1e-12)


SCALES = {
    "full": lambda **kw: FullScale((8, 5), 0.1, dtype=F64, **kw),
    "1-tied": lambda **kw: TiedScale((8, 5), 1, 0.1, dtype=F64, **kw),
    "2-tied": lambda **kw: TiedScale((8, 5), 2, 0.1, dtype=F64, **kw),
    "5-tied": lambda **kw: TiedScale((8, 5), 5, 0.1, dtype=F64, **kw),
}
each_scale = pytest.mark.parametrize("make", SCALES.values(), ids=SCALES)


def gradients(output, scale):
    return torch.autograd.grad(output, scale.log_parameters())


@each_scale
def test_some_rows(make):
    scale = spread_out(make())
    rows = torch.tensor([[3, 0], [7, 3]])
    cotangent = torch.randn(2, 2, 5, dtype=F64)
    expected = materialised(scale)[rows]
    assert_relative(scale.at(rows), expected, 1e-12)
    for actual, oracle in zip(
        gradients((scale.at(rows) * cotangent).sum(), scale),
        gradients((expected * cotangent).sum(), scale),
        strict=True,
    ):
        torch.testing.assert_close(actual, oracle, rtol=1e-10, atol=1e-12)


@each_scale
@pytest.mark.parametrize("rows", [None, [0, 2, 3, 7], [5]])
def test_sums_and_their_gradients(make, rows):
    scale = spread_out(make())
    rows = None if rows is None else torch.tensor(rows)

    def expected():
        chosen = materialised(scale) if rows is None else materialised(scale)[rows]
        return chosen.log().sum(), chosen.square().sum()

    for which in (0, 1):
        actual, oracle = sums(scale, rows)[which], expected()[which]
        assert_relative(actual, oracle, 1e-12)
        for ours, theirs in zip(gradients(3 * actual, scale), gradients(3 * oracle, scale), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    both = scale.weighted_sum(-2.0, 0.7, rows=rows)
    oracle = sum(a * b for a, b in zip((-2.0, 0.7), expected(), strict=True))
    for ours, theirs in zip(gradients(both, scale), gradients(oracle, scale), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(
    ("shape", "width"),
    [
        ((700, 600), 0.0),
        ((700, 600), 0.1),
        ((700, 600), 1.0),
        ((600, 700), 5.0),
        ((3, 60_000), 0.5),
        ((60_000, 3), 0.5),
    ],
)
def test_sums_of_large_weights(shape, width, k, dtype):
    """Large enough to be summed by a series, or block by block."""
    error = 1e-5 if dtype == torch.float32 else 1e-10
    scale = spread_out(TiedScale(shape, k, 0.01, dtype=dtype), width)
    scale.log_u.data[2, 0] += 2 * width  # one weight that stands out
    for which, expected in enumerate(("log", "square")):
        sigma = materialised(scale)
        actual, oracle = sums(scale)[which], getattr(sigma, expected)().sum()
        assert_relative(actual, oracle, error)
        for ours, theirs, opposite in zip(
            gradients(actual, scale), gradients(oracle, scale), (shape[0], shape[1]), strict=True
        ):
            # The k gradients of a row of log sums add up to the number of weights that it has a part in.
            size = opposite if expected == "log" else theirs.abs().sum(1, keepdim=True)
            assert ((ours.to(F64) - theirs).abs() / size).max().item() < error


# ---------------------------------------------------------------------- the variance of a dense layer's outputs


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("outputs", "inputs"), [(1000, 1000), (10, 1000), (1000, 1), (3, 2)])
def test_factored_variance_is_the_materialised_one(outputs, inputs, k):
    """To 1e-5 relative, entry by entry, and so are its gradients; single precision against double."""
    scale = spread_out(TiedScale((outputs, inputs), k, 0.01))
    x = torch.randn(6, inputs, requires_grad=True)
    cotangent = torch.rand(6, outputs)  # positive, so that no gradient is a difference of large numbers
    variance = output_variance(scale, x.square())
    expected = x.to(F64).square() @ materialised(scale).square().T
    assert_relative(variance, expected, 1e-5)
    wanted = (x, scale.log_u, scale.log_v)
    ours = torch.autograd.grad(variance, wanted, cotangent)
    theirs = torch.autograd.grad(expected, wanted, cotangent.to(F64))
    for actual, oracle in zip(ours, theirs, strict=True):
        assert_relative(actual, oracle, 1e-5)


@each_scale
def test_variance_in_double_precision_with_any_gradient(make):
    scale = spread_out(make())
    x = torch.randn(4, 3, 5, dtype=F64, requires_grad=True)
    cotangent = torch.randn(4, 3, 8, dtype=F64)
    wanted = (x, *scale.log_parameters())
    variance, expected = output_variance(scale, x.square()), x.square() @ materialised(scale).square().T
    torch.testing.assert_close(variance, expected, rtol=1e-12, atol=0)
    for ours, theirs in zip(
        torch.autograd.grad(variance, wanted, cotangent), torch.autograd.grad(expected, wanted, cotangent), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


class LargestTensor(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.numel())
        return result


@pytest.mark.parametrize("k", [1, 2, 5])
def test_factored_variance_never_makes_sigma(k):
    batch, outputs, inputs = 8, 300, 400
    scale, x = TiedScale((outputs, inputs), k, 0.01), torch.randn(batch, inputs, requires_grad=True)
    with LargestTensor() as largest:
        output_variance(scale, x.square()).sum().backward()
    assert largest.size <= max(batch, k * k) * max(outputs, inputs) < outputs * inputs


# ---------------------------------------------------------------------- what k-tied can be


def fit(target, k):
    """Return the relative error of the nearest k-tied sigma that a quasi-Newton method finds from the start of D.4."""
    scale = TiedScale(tuple(target.shape), k, std=1.0, dtype=F64)
    optimiser = torch.optim.LBFGS(
        scale.parameters(), max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-10, tolerance_change=0
    )

    def closure():
        optimiser.zero_grad()
        loss = (scale.values() - target).square().mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    return ((scale.values() - target).norm() / target.norm()).item()


def test_with_k_of_the_smaller_side_any_sigma_can_be_met():
    target = torch.exp(0.5 * torch.randn(6, 9, dtype=F64))
    assert fit(target, 6) < 1e-4
    # The leading singular vectors of a positive matrix are positive, so the best 1-tied sigma is the truncated SVD.
    singular = torch.linalg.svdvals(target)
    assert fit(target, 1) == pytest.approx((singular[1:].norm() / singular.norm()).item(), rel=1e-6)
    assert fit(target, 2) >= (singular[2:].norm() / singular.norm()).item() > 0.1


def test_with_k_of_the_smaller_side_v_can_be_the_identity():
    target = torch.exp(torch.randn(6, 9, dtype=F64))
    scale = TiedScale((6, 9), 6, std=1.0, dtype=F64)
    with torch.no_grad():
        scale.log_u.copy_(target.T.log())
        scale.log_v.fill_(-60).fill_diagonal_(0)
    assert_relative(scale.values(), target, 1e-12)


# ---------------------------------------------------------------------- the upper bound

BOUND = 0.2
bounded_scales = pytest.mark.parametrize("make", [SCALES["full"], SCALES["1-tied"], SCALES["5-tied"]])


@bounded_scales
def test_sigma_is_never_above_the_bound(make):
    scale = make(max_std=BOUND)
    for shift in (-8.0, -1.0, 0.0, 1.0, 8.0, 80.0):
        with torch.no_grad():
            for parameter in scale.log_parameters():
                parameter.copy_(4 * torch.randn_like(parameter) + shift)
        rows = torch.arange(8)
        values = scale.values()
        assert values.max().item() <= BOUND * (1 + 1e-12)
        assert torch.equal(scale.at(rows), values)
        logs, squares = sums(scale)
        assert_relative(logs, values.log().sum(), 1e-12)
        assert_relative(squares, values.square().sum(), 1e-12)
        assert_relative(output_variance(scale, torch.ones(1, 5, dtype=F64))[0], values.square().sum(1), 1e-12)
    assert values.tolist() == [[pytest.approx(BOUND, rel=1e-12)] * 5] * 8


@bounded_scales
def test_the_bound_changes_nothing_below_it(make):
    bounded, free = make(max_std=BOUND), make()
    free.load_state_dict(bounded.state_dict())
    cotangent = torch.randn(8, 5, dtype=F64)
    assert torch.equal(bounded.values(), free.values())
    for ours, theirs in zip(
        gradients((bounded.values() * cotangent).sum(), bounded),
        gradients((free.values() * cotangent).sum(), free),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


def test_initial_values_keep_the_bound():
    full, tied = FullScale((50, 40), 0.01, max_std=0.01), TiedScale((50, 40), 3, 0.01, max_std=0.01)
    for scale in (full, tied):
        assert scale.values().max().item() <= 0.01 * (1 + 1e-6)
    assert (full.log_scale <= math.log(0.01) + 1e-6).all()


def test_beyond_the_bound_only_steps_back_inside_are_let_through():
    scale = FullScale((4,), 0.1, max_std=BOUND, dtype=F64)
    with torch.no_grad():
        scale.log_scale.copy_(torch.tensor([1.0, 1.0, -3.0, -3.0]))
    cotangent = torch.tensor([2.0, -2.0, 2.0, -2.0], dtype=F64)
    (gradient,) = torch.autograd.grad(scale.values(), scale.log_scale, cotangent)
    expected = cotangent * torch.tensor([BOUND, 0.0, math.exp(-3), math.exp(-3)], dtype=F64)
    assert_relative(gradient, expected, 1e-12)


@bounded_scales
@pytest.mark.parametrize("start", [0.1, 3.0])
def test_parameters_that_were_driven_out_come_back_in(make, start):
    """Towards a target above the bound they stop at it; towards one below they return, from outside as well."""
    scale = make(max_std=BOUND)
    with torch.no_grad():
        for parameter in scale.log_parameters():
            parameter.fill_(math.log(start))
    optimiser = torch.optim.Adam(scale.parameters(), lr=0.05)
    for target in (1.0, 0.05):
        for _ in range(400):
            optimiser.zero_grad()
            (scale.values().log() - math.log(target)).square().mean().backward()
            optimiser.step()
        assert_relative(scale.values(), torch.full((8, 5), min(target, BOUND)), 1e-3)


# ---------------------------------------------------------------------- half precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("k", [None, 1, 2])
@pytest.mark.parametrize("max_std", [None, 0.2])
def test_half_precision(k, dtype, max_std):
    """Values keep the type; sums, here beyond the range of float16, are made and kept in float32."""
    shape, options = (400, 300), {"max_std": max_std, "dtype": dtype}
    scale = FullScale(shape, 0.01, **options) if k is None else TiedScale(shape, k, 0.01, **options)
    sigma = materialised(scale)
    rows = torch.arange(3)
    assert scale.values().dtype == scale.at(rows).dtype == dtype
    assert_relative(scale.values(), sigma, 4 * torch.finfo(dtype).eps)
    assert_relative(scale.at(rows), sigma[rows], 4 * torch.finfo(dtype).eps)
    logs, squares = sums(scale)
    assert logs.dtype == squares.dtype == torch.float32
    assert_relative(logs, sigma.log().sum(), 1e-5)
    assert_relative(squares, sigma.square().sum(), 1e-5)
    (logs + squares + scale.values().sum()).backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == dtype for p in scale.parameters())
