"""Likelihoods of real targets with a mean: Gaussian and Student-t."""

import math
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_number
from slimbayes.likelihoods._incomplete_beta import incomplete_beta
from slimbayes.likelihoods.base import check_finite, per_example, squeeze_to
from slimbayes.likelihoods.scale import ScaleLikelihood

__all__ = ["Gaussian", "StudentT"]

#: Steps of a mixture's noise at most; a few tens are usual.
EM_STEPS = 1000


class Gaussian(ScaleLikelihood):
    r"""Real targets: :math:`N(y \mid \mu, \sigma^2)`, summed over an example's dimensions.

    Args:
        noise: ``"learned"``: one :math:`\sigma` for all, trained with the model. ``"predicted"``: the network's
            last axis holds the means, then as many rhos, :math:`\sigma = \text{softplus}(\rho) + 10^{-7}`.
            A number: :math:`\sigma` itself, fixed.
        initial: Where a learned :math:`\sigma` starts.
        outputs: Of learned noise, the length of the outputs' last axis, for a :math:`\sigma` of each; None for one.

    Shape:
        - Outputs: ``(draws, batch, *)``, a last axis of one allowed beyond the targets';
          with predicted noise ``(draws, batch, 2 * n)``. Targets: ``(batch, *)``.

    Example:
        >>> Gaussian(noise=1.0).log_prob(torch.zeros(4, 2, 1), torch.tensor([0.0, 1.0]))[0]
        tensor([-0.9189, -1.4189])
        >>> Gaussian(outputs=3).rho.shape
        torch.Size([3])
    """

    name = "gaussian"
    noise: str | float

    def __init__(self, noise: str | float = "learned", initial: float = 1.0, outputs: int | None = None) -> None:
        super().__init__("noise", noise, initial, outputs)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return each draw's mean and standard deviation."""
        return self.location_and_scale(outputs)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        mean, std = (squeeze_to(part, targets) for part in self.moments(outputs))
        return per_example(_normal_log_prob(mean, std, targets))

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        mean, std = (squeeze_to(part, targets) for part in self.moments(outputs))
        mean, variance = mean.mean(0, keepdim=True), std.square().mean(0, keepdim=True)
        return per_example(_normal_log_prob(mean, variance.sqrt(), targets)).squeeze(0)

    @torch.no_grad()
    def residual_variance(self, outputs: Tensor, targets: Tensor) -> Tensor:
        r"""Return the :math:`\sigma^2` with the largest mean log-likelihood of the draws: their mean squared residual.

        It is one number, or with ``outputs`` one for each of the last axis.
        """
        return self._mean(self._squares(outputs, targets))

    @torch.no_grad()
    def mixture_variance(self, outputs: Tensor, targets: Tensor) -> Tensor:
        r"""Return the :math:`\sigma^2` with the largest log-likelihood of the draws' mixture.

        It is smaller than ``residual_variance`` because the mixture has the spread of the draws' means
        :math:`\mu_{dn}` besides the noise. It maximises

        .. math::
            \sum_n \log \frac1D \sum_d N(y_n \mid \mu_{dn}, \sigma^2)

        by EM: from ``residual_variance``, which is never too small,

        .. math::
            \sigma^2 \leftarrow \frac1N \sum_{nd} r_{dn} (y_n - \mu_{dn})^2,\quad
            r_{dn} \propto \exp\left(-\frac{(y_n - \mu_{dn})^2}{2 \sigma^2}\right),\quad \sum_d r_{dn} = 1

        until it stands. It is one number, or with ``outputs`` one for each of the last axis.

        Example:
            >>> means, targets = torch.tensor([[-1.0], [1.0]]).expand(2, 4), torch.tensor([-1.1, -0.9, 0.9, 1.1])
            >>> for variance in (Gaussian().residual_variance, Gaussian().mixture_variance):
            ...     print(round(variance(means, targets).item(), 4))
            2.01
            0.01
        """
        squares = self._squares(outputs, targets)
        variance = self._mean(squares)
        for _ in range(EM_STEPS):
            # Where all draws are alike, or right, there is nothing to divide by.
            distances = squares / variance.clamp_min(torch.finfo(variance.dtype).tiny)
            shares = (-0.5 * per_example(distances)).softmax(0)
            weighed = shares.view(*shares.shape, *(1,) * (squares.dim() - 2)) * squares
            before, variance = variance, self._mean(weighed.sum(0))
            if torch.allclose(variance, before, rtol=1e-6, atol=0.0):
                break
        return variance

    def _squares(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (targets - squeeze_to(self.moments(outputs)[0], targets)).square().double()

    def _mean(self, squares: Tensor) -> Tensor:
        return squares.mean() if self.outputs is None else squares.reshape(-1, self.outputs).mean(0)

    @torch.no_grad()
    def set_noise(self, variance: Tensor) -> None:
        r"""Set a learned :math:`\sigma`.

        Example:
            >>> likelihood = Gaussian()
            >>> likelihood.set_noise(torch.tensor(0.25))
            >>> round(likelihood.moments(torch.zeros(1, 1))[1].item(), 4)
            0.5
        """
        self.set_scale(variance.sqrt())

    def best_scale(self, outputs: Tensor, targets: Tensor, mixed: bool = False) -> Tensor:
        """Return the root of ``mixture_variance`` or ``residual_variance``."""
        outputs, targets = outputs.detach().cpu(), targets.cpu()
        return (self.mixture_variance if mixed else self.residual_variance)(outputs, targets).sqrt()

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:  # noqa: D102
        mean, std = self.moments(outputs)
        return torch.special.ndtr((values - mean) / std)


def _normal_log_prob(mean: Tensor, std: Tensor, value: Tensor) -> Tensor:
    check_finite(value)
    return -0.5 * ((value - mean) / std).square() - std.log() - 0.5 * math.log(2 * math.pi)


class StudentT(ScaleLikelihood):
    r"""Real targets with outliers: a Student-t with location :math:`\mu`, scale s and :math:`\nu` degrees of freedom.

    .. math::
        \log p(y) = \log\frac{\Gamma(\frac{\nu+1}2)}{\Gamma(\frac\nu2) \sqrt{\nu\pi}\, s}
        - \frac{\nu+1}2 \log\left(1 + \frac{(y-\mu)^2}{\nu s^2}\right)

    summed over an example's dimensions. The standard deviation is :math:`s \sqrt{\nu / (\nu - 2)}`.

    Args:
        df: :math:`\nu`, above 2; fixed. Few are heavy tails.
        noise: The scale s, as in ``Gaussian``.
        initial: Where a learned s starts.
        outputs: As in ``Gaussian``.

    Shape:
        - As for ``Gaussian``.

    Example:
        >>> StudentT(df=3.0, noise=1.0).log_prob(torch.zeros(1, 2, 1), torch.tensor([0.0, 100.0]))
        tensor([[ -1.0009, -17.2249]])
    """

    name = "student_t"
    noise: str | float

    def __init__(
        self, df: float = 4.0, noise: str | float = "learned", initial: float = 1.0, outputs: int | None = None
    ) -> None:
        super().__init__("noise", noise, initial, outputs)
        check_number("df", df, low=2.0, remedy="With 2 or fewer there is no standard deviation.")
        self.df = df

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        location, scale = (squeeze_to(part, targets) for part in self.location_and_scale(outputs))
        check_finite(targets)
        norm = math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2) - 0.5 * math.log(self.df * math.pi)
        # The square of a distance could overflow; that of the logarithm of 1 + u^2 cannot.
        u = (targets - location).abs() / (scale * math.sqrt(self.df))
        large, small = u.clamp_min(1), u.clamp_max(1)
        grown = torch.where(u > 1, 2 * large.log() + large.pow(-2).log1p(), small.square().log1p())
        return per_example(norm - scale.log() - (self.df + 1) / 2 * grown)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        location, scale = self.location_and_scale(outputs)
        return location, scale * math.sqrt(self.df / (self.df - 2))

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        r"""Return each draw's :math:`1 - \frac12 I_{\nu/(\nu + t^2)}(\frac\nu2, \frac12)` for :math:`t \ge 0`."""
        location, scale = self.location_and_scale(outputs)
        t = ((values - location) / scale).double()
        df, total = t.new_tensor(self.df), self.df + t.square()
        tail = incomplete_beta(df / 2, t.new_tensor(0.5), df / total, t.square() / total) / 2
        return torch.where(t > 0, 1 - tail, tail).to(outputs.dtype)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {**super().spec(), "df": self.df}
