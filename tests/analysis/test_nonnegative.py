"""Non-negative factorisation, against scikit-learn's, the truncated SVD and SciPy's bounded minimiser."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.decomposition import NMF

from slimbayes.analysis import nonnegative_factors


def uniform(rng, m, n):
    return 0.01 + rng.random((m, n))


def log_normal(rng, m, n):
    return 0.01 * np.exp(rng.standard_normal((m, n)))


def noisy_rank_3(rng, m, n):
    return 0.01 * rng.gamma(2, 1, (m, 3)) @ rng.gamma(2, 1, (3, n)) * np.exp(0.3 * rng.standard_normal((m, n)))


def two_blocks(rng, m, n):
    """Standard deviations as in Figure 4: rows of unlike size, and a block of columns that is far smaller."""
    sigma = 0.3 * rng.random((m, 1)) ** 3 * np.where(np.arange(n) < n // 3, 0.05, 1.0)
    return sigma + 0.001 * rng.random((m, n))


KINDS = [uniform, log_normal, noisy_rank_3, two_blocks]
SHAPES = [(20, 10), (10, 20), (100, 60)]


def made(kind, shape):
    return kind(np.random.default_rng(0), *shape)


def residual(matrix, factors):
    u, v = factors
    return np.linalg.norm(matrix - np.asarray(u) @ np.asarray(v).T)


def svd_residual(matrix, k):
    return np.sqrt((np.linalg.svd(matrix, compute_uv=False)[k:] ** 2).sum())


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_as_close_as_scikit_learn(kind, shape, k):
    matrix = made(kind, shape)
    theirs = NMF(k, init="nndsvda", max_iter=1000, tol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        w = theirs.fit_transform(matrix)
    u, v = nonnegative_factors(torch.from_numpy(matrix), k, low=1e-4)
    assert min(u.min(), v.min()) >= 1e-4
    assert svd_residual(matrix, k) * (1 - 1e-9) <= residual(matrix, (u, v))
    assert residual(matrix, (u, v)) <= 1.02 * residual(matrix, (w, theirs.components_.T))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_one_column_is_the_truncated_svd(kind, shape):
    matrix = made(kind, shape)
    u, v = nonnegative_factors(torch.from_numpy(matrix), 1)
    left, values, right = np.linalg.svd(matrix)
    np.testing.assert_allclose((u @ v.T).numpy(), values[0] * np.outer(left[:, 0], right[0]), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_residual_falls_with_k(kind):
    matrix = made(kind, (20, 10))
    residuals = [residual(matrix, nonnegative_factors(torch.from_numpy(matrix), k, low=1e-5)) for k in (1, 2, 3, 5, 10)]
    assert all(after < before for before, after in pairwise(residuals))
    assert residuals[-1] < 0.02 * np.linalg.norm(matrix)  # all 10 columns could be exact


def test_an_exact_factorisation_is_found():
    rng = np.random.default_rng(0)
    matrix = rng.gamma(1, 1, (30, 2)) @ rng.gamma(1, 1, (2, 20))
    assert residual(matrix, nonnegative_factors(torch.from_numpy(matrix), 2)) < 1e-3 * np.linalg.norm(matrix)


@pytest.mark.parametrize("shape", [(6, 1), (1, 6), (1, 1), (4, 2)], ids=str)
@pytest.mark.parametrize("k", [2, 5])
def test_more_columns_than_the_matrix(shape, k):
    matrix = made(uniform, shape)
    u, v = nonnegative_factors(torch.from_numpy(matrix), k, low=1e-5)
    assert u.shape == (shape[0], k)
    assert v.shape == (shape[1], k)
    assert residual(matrix, (u, v)) < 1e-3 * np.linalg.norm(matrix)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_columns_have_the_same_largest_entries(k):
    u, v = nonnegative_factors(torch.from_numpy(made(noisy_rank_3, (100, 60))), k)
    torch.testing.assert_close(u.amax(0), v.amax(0), rtol=1e-10, atol=0)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_are_kept_as_well_as_can_be(kind, k):
    matrix = made(kind, (12, 8))
    high = np.sqrt(matrix.max() / k)
    u, v = nonnegative_factors(torch.from_numpy(matrix), k, low=1e-4, high=high)
    for factor in (u, v):
        assert factor.min() >= 1e-4
        assert factor.max() <= high

    def loss(flat):
        a, b = flat[: 12 * k].reshape(12, k), flat[12 * k :].reshape(8, k)
        rest = a @ b.T - matrix
        return (rest**2).sum(), 2 * np.concatenate([(rest @ b).ravel(), (rest.T @ a).ravel()])

    rng = np.random.default_rng(1)
    starts = [rng.uniform(0, high, 20 * k) for _ in range(5)]
    best = min(minimize(loss, x, jac=True, method="L-BFGS-B", bounds=[(1e-4, high)] * len(x)).fun for x in starts)
    # Minima are local: the starts themselves end a few per cent apart.
    assert residual(matrix, (u, v)) <= 1.03 * np.sqrt(best) + 1e-3 * np.linalg.norm(matrix)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_bound_itself_can_be_reached(k):
    """A matrix that is 0.2 everywhere takes every entry at its upper bound."""
    matrix = torch.full((6, 4), 0.2, dtype=torch.float64)
    u, v = nonnegative_factors(matrix, k, low=1e-4, high=(0.2 / k) ** 0.5)
    torch.testing.assert_close(u @ v.T, matrix, rtol=1e-6, atol=0)


def test_single_precision_is_computed_in_double():
    matrix = torch.from_numpy(made(uniform, (20, 10))).float()
    u, v = nonnegative_factors(matrix, 2)
    assert u.dtype == v.dtype == torch.float64
    expected = nonnegative_factors(matrix.double(), 2)
    assert torch.equal(u, expected[0])
    assert torch.equal(v, expected[1])
