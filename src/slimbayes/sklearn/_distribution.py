"""What a regression says about each row: a mixture of simple distributions."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from slimbayes._checks import check_count, check_number

#: Halvings of the interval in which a quantile is sought: float64 has 53 digits.
_BISECTIONS = 60
Array = NDArray[np.float64]


class Kernel(NamedTuple):
    """A distribution of location 0 and scale 1.

    Attributes:
        pdf: Its density.
        cdf: Its distribution function.
        std: Its standard deviation.
        draw: Returns numbers of a shape from a generator.
    """

    pdf: Callable[[Array], Array]
    cdf: Callable[[Array], Array]
    std: float
    draw: Callable[[np.random.Generator, Any], Array]


def normal() -> Kernel:
    """Return N(0, 1)."""
    return Kernel(stats.norm.pdf, stats.norm.cdf, 1.0, lambda rng, shape: rng.standard_normal(shape))


def student_t(df: float) -> Kernel:
    """Return Student's t with so many degrees of freedom."""
    t = stats.t(df)
    return Kernel(t.pdf, t.cdf, math.sqrt(df / (df - 2)), lambda rng, shape: rng.standard_t(df, shape))


def uniform() -> Kernel:
    """Return the uniform distribution from -1/2 to 1/2."""
    u = stats.uniform(-0.5, 1.0)
    return Kernel(u.pdf, u.cdf, math.sqrt(1 / 12), lambda rng, shape: rng.uniform(-0.5, 0.5, shape))


class PredictiveDistribution:
    r"""The predicted distribution of each row's target: a mixture over draws, and over what each draw is made of.

    .. math::
        p(y_n) = \sum_{d=1}^D \frac1D \sum_{c=1}^C \pi_{dcn}\, \frac{1}{s_{dcn}}
        k\left(\frac{y_n - m_{dcn}}{s_{dcn}}\right)

    with the density k of a head (normal, Student-t, or uniform between quantiles). Everything is in the target's units.

    Args:
        weights: :math:`\pi`, which sum to 1 over components.
        locations: m.
        scales: s.
        kernel: k.

    Shape:
        - ``weights``, ``locations``, ``scales``: ``(draws, components, rows)``.

    Example:
        >>> one = np.ones((1, 1, 2))
        >>> d = PredictiveDistribution(one, np.array([[[0.0, 10.0]]]), one, normal())
        >>> d.mean, d.std, abs(d.ppf(0.5).round(6))
        (array([ 0., 10.]), array([1., 1.]), array([ 0., 10.]))
        >>> d.cdf([0.0, 10.0]), d.ppf([0.05, 0.95]).round(2)
        (array([0.5, 0.5]), array([[-1.64,  1.64],
               [ 8.36, 11.64]]))
    """

    def __init__(self, weights: Array, locations: Array, scales: Array, kernel: Kernel) -> None:
        self._weights, self._locations, self._scales, self._kernel = weights, locations, scales, kernel

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._locations.shape[-1]

    def __repr__(self) -> str:
        """Say how many rows there are."""
        return f"PredictiveDistribution({len(self)} rows)"

    @property
    def _draw_means(self) -> Array:
        return (self._weights * self._locations).sum(1)

    @property
    def mean(self) -> Array:
        """The mean of each row."""
        return self._draw_means.mean(0)

    @property
    def noise(self) -> Array:
        r"""Noise in the data: root of the draws' mean variance, :math:`\sqrt{E[Var(y \mid d)]}`."""
        within = (self._scales * self._kernel.std) ** 2 + (self._locations - self._draw_means[:, None]) ** 2
        return np.sqrt((self._weights * within).sum(1).mean(0))

    @property
    def ignorance(self) -> Array:
        r"""Uncertainty of the model: standard deviation of the draws' means, :math:`\sqrt{Var(E[y \mid d])}`."""
        return self._draw_means.std(0)

    @property
    def std(self) -> Array:
        """The standard deviation of each row: noise and ignorance together."""
        return np.hypot(self.noise, self.ignorance)

    def pdf(self, y: Any) -> Array:
        """Return the density at ``y``, one value for each row or one for all."""
        z = (self._values(y) - self._locations) / self._scales
        return (self._weights * self._kernel.pdf(z) / self._scales).sum(1).mean(0)

    def logpdf(self, y: Any) -> Array:
        """Return its logarithm."""
        with np.errstate(divide="ignore"):
            return np.log(self.pdf(y))

    def cdf(self, y: Any) -> Array:
        """Return the probability of at most ``y``, one value for each row or one for all."""
        z = (self._values(y) - self._locations) / self._scales
        return (self._weights * self._kernel.cdf(z)).sum(1).mean(0)

    def ppf(self, q: Any) -> Array:
        r"""Return the quantiles at ``q``: ``(rows,)`` for a number, ``(rows, levels)`` for several.

        By bisection of ``cdf``, between the bounds of Cantelli's inequality for the mixture:
        :math:`\mu - \sigma \sqrt{(1 - q)/q}` and :math:`\mu + \sigma \sqrt{q/(1 - q)}`.
        """
        levels = np.asarray(q, np.float64)
        if levels.ndim:
            return np.stack([self.ppf(level) for level in levels], -1)
        check_number("q", levels.item(), 0.0, 1.0, "Give a probability, such as 0.9.")
        mean, std = self.mean, self.std
        low, high = mean - np.sqrt((1 - levels) / levels) * std, mean + np.sqrt(levels / (1 - levels)) * std
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            below = self.cdf(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Return targets that may have been, ``(n, rows)``.

        Args:
            n: How many of each row.
            random_state: A seed or a ``numpy.random.Generator``.
        """
        check_count("n", n)
        rng = np.random.default_rng(random_state)
        draws, components, rows = self._locations.shape
        row = np.arange(rows)
        out = np.empty((n, rows))
        shares = self._weights.cumsum(1)
        for number in range(n):
            draw = rng.integers(draws, size=rows)
            component = (rng.random(rows) > shares[draw, :, row].T).sum(0).clip(max=components - 1)
            chosen = draw, component, row
            out[number] = self._locations[chosen] + self._scales[chosen] * self._kernel.draw(rng, rows)
        return out

    def _values(self, y: Any) -> Array:
        values = np.asarray(y, np.float64)
        if values.ndim > 1 or values.shape not in ((), (len(self),)):
            raise ValueError(
                f"Expected argument `y` to be a number, or one for each of {len(self)} rows, but got shape "
                f"{values.shape}."
            )
        return values
