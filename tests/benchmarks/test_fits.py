"""Fits against closed forms and SciPy."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.fits import fit_line, fit_power_law

X = np.array([1.0, 2, 4, 8, 16, 32])


@pytest.mark.parametrize(("factor", "slope"), [(3.0, 0.0), (0.5, 1.0), (2e-3, 2.0), (7.0, -0.5)])
def test_a_power_law_is_found(factor, slope):
    fit = fit_power_law(X, factor * X**slope)
    assert fit.slope == pytest.approx(slope, abs=1e-12)
    assert fit.factor == pytest.approx(factor)
    assert fit.error == pytest.approx(0, abs=1e-12)


def test_slope_and_error_are_those_of_linear_regression():
    y = X**1.3 * np.exp(np.random.default_rng(0).normal(0, 0.2, len(X)))
    fit, expected = fit_power_law(X, y), stats.linregress(np.log(X), np.log(y))
    assert fit.slope == pytest.approx(expected.slope)
    assert fit.error == pytest.approx(expected.stderr)
    assert fit.factor == pytest.approx(np.exp(expected.intercept))


def test_a_line_is_found():
    fit = fit_line(X, 5 + 0.25 * X)
    assert (fit.intercept, fit.slope, fit.misfit) == pytest.approx((5, 0.25, 0), abs=1e-12)


def test_a_line_minimises_relative_distances():
    y = np.array([1.0, 3, 9])
    x = np.array([1.0, 2, 4])
    fit = fit_line(x, y)
    # The normal equations of sum ((a + b x) / y - 1)^2.
    weight = y**-2
    left = [[weight.sum(), weight @ x], [weight @ x, weight @ x**2]]
    a, b = np.linalg.solve(left, [weight @ y, weight @ (x * y)])
    assert (fit.intercept, fit.slope) == pytest.approx((a, b))
    assert fit.misfit == pytest.approx(np.abs((a + b * x) / y - 1).max())


@pytest.mark.parametrize("fit", [fit_power_law, fit_line])
@pytest.mark.parametrize(("x", "y", "name"), [([1, 2], [1, 2], "x"), ([1, 2, 3], [1, 0, 2], "y")])
def test_what_cannot_be_fitted_is_refused(fit, x, y, name):
    with pytest.raises(ValueError, match=f"`{name}` to be at least three positive numbers"):
        fit(x, y)
