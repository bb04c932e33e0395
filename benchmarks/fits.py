"""How fast something grows: a power law and a straight line through a few measured points."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Line", "PowerLaw", "fit_line", "fit_power_law"]

Values = NDArray[np.float64]


class PowerLaw(NamedTuple):
    """``y = factor * x ** slope``.

    Attributes:
        slope: 0 for what does not grow, 1 for what doubles with x.
        error: Standard error of the slope, from the points' scatter about the law.
        factor: y at x = 1.
    """

    slope: float
    error: float
    factor: float


class Line(NamedTuple):
    """``y = intercept + slope * x``.

    Attributes:
        intercept: What is there whatever x is.
        slope: What each unit of x adds.
        misfit: The largest relative distance of a point from the line: small where growth is linear.
    """

    intercept: float
    slope: float
    misfit: float


def fit_power_law(x: ArrayLike, y: ArrayLike) -> PowerLaw:
    r"""Fit :math:`\log y = \log c + \beta \log x` by least squares.

    The slope's standard error is :math:`\sqrt{\sum e_i^2 / (n - 2) / \sum (\log x_i - \overline{\log x})^2}` for
    residuals :math:`e_i` of :math:`n` points.

    Args:
        x: At least three positive numbers, not all the same.
        y: As many positive numbers.

    Example:
        >>> round(fit_power_law([1, 2, 4], [3, 12, 48]).slope, 6)
        2.0
    """
    log_x, log_y = np.log(_points("x", x)), np.log(_points("y", y))
    centred = log_x - log_x.mean()
    spread = centred @ centred
    slope = centred @ log_y / spread
    residuals = log_y - log_y.mean() - slope * centred
    error = np.sqrt(residuals @ residuals / (len(log_x) - 2) / spread)
    factor = np.exp(log_y.mean() - slope * log_x.mean())
    return PowerLaw(float(slope), float(error), float(factor))


def fit_line(x: ArrayLike, y: ArrayLike) -> Line:
    r"""Fit :math:`y = a + b x` by least squares of the relative distances :math:`(a + b x_i) / y_i - 1`.

    A measured time is uncertain by a share of itself, so that each point counts the same, the small ones, too.

    Args:
        x: At least three positive numbers, not all the same.
        y: As many positive numbers.

    Example:
        >>> line = fit_line([1, 2, 4], [5, 7, 11])
        >>> round(line.intercept, 6), round(line.slope, 6), round(line.misfit, 6)
        (3.0, 2.0, 0.0)
    """
    x, y = _points("x", x), _points("y", y)
    relative = np.stack([1 / y, x / y], 1)
    (intercept, slope), *_ = np.linalg.lstsq(relative, np.ones(len(y)))
    misfit = np.abs(relative @ [intercept, slope] - 1).max()
    return Line(float(intercept), float(slope), float(misfit))


def _points(name: str, values: ArrayLike) -> Values:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < 3 or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(
            f"Expected argument `{name}` to be at least three positive numbers, but got {values!r}. "
            "Measure more points."
        )
    return array
