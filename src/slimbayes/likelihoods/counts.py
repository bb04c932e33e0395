"""Likelihoods of counts 0, 1, 2, ...: Poisson and negative binomial."""

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes.likelihoods._incomplete_beta import incomplete_beta
from slimbayes.likelihoods.base import Likelihood, check_counts, per_example, squeeze_to
from slimbayes.likelihoods.scale import ScaleLikelihood

__all__ = ["NegativeBinomial", "Poisson"]


class Poisson(Likelihood):
    r"""Counts from the logarithm of their mean: :math:`\log p(y) = y f - e^f - \log y!`, summed over an example's.

    Shape:
        - Outputs: ``(draws, batch, *)``, a last axis of one allowed beyond the targets'. Targets: ``(batch, *)``.

    Example:
        >>> Poisson().log_prob(torch.zeros(4, 2, 1), torch.tensor([0, 2]))[0]
        tensor([-1.0000, -1.6931])
        >>> Poisson().quantile(torch.zeros(4, 1), 0.9)
        tensor([2.])
    """

    name = "poisson"
    whole = True

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        log_mean = squeeze_to(outputs, targets)
        return per_example(_poisson_log_prob(log_mean, log_mean.exp(), targets))

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        mean = squeeze_to(outputs, targets).exp().mean(0, keepdim=True)
        return per_example(_poisson_log_prob(mean.log(), mean, targets)).squeeze(0)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return outputs.exp(), (outputs / 2).exp()

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:  # noqa: D102
        mean, values = outputs.exp(), values.floor()
        return torch.where(values < 0, 0.0, torch.special.gammaincc(values.clamp_min(0) + 1, mean))


def _poisson_log_prob(log_mean: Tensor, mean: Tensor, targets: Tensor) -> Tensor:
    check_counts(targets)
    targets = targets.to(log_mean.dtype)
    return targets * log_mean - mean - (targets + 1).lgamma()


class NegativeBinomial(ScaleLikelihood):
    r"""Counts that vary more than a Poisson's: mean :math:`\mu = e^f`, variance :math:`\mu + \alpha \mu^2`.

    With :math:`r = 1 / \alpha`, summed over an example's counts,

    .. math::
        \log p(y) = \log\frac{\Gamma(y + r)}{\Gamma(r)\, y!} + r \log\frac{r}{r + \mu} + y \log\frac{\mu}{r + \mu}

    Args:
        dispersion: :math:`\alpha`: ``"learned"``, ``"predicted"`` or a number, as the noise of ``Gaussian``.
        initial: Where a learned :math:`\alpha` starts.
        outputs: As in ``Gaussian``.

    Shape:
        - As for ``Poisson``; with predicted dispersion ``(draws, batch, 2 * n)``.

    Example:
        >>> NegativeBinomial(dispersion=1.0).log_prob(torch.zeros(4, 2, 1), torch.tensor([0, 1]))[0]
        tensor([-0.6931, -1.3863])
    """

    name = "negative_binomial"
    whole = True
    dispersion: str | float

    def __init__(self, dispersion: str | float = "learned", initial: float = 1.0, outputs: int | None = None) -> None:
        super().__init__("dispersion", dispersion, initial, outputs)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        log_mean, dispersion = (squeeze_to(part, targets) for part in self.location_and_scale(outputs))
        check_counts(targets)
        y, log_r = targets.to(log_mean.dtype), -dispersion.log()
        r, ratio = log_r.exp(), log_mean - log_r  # log(mu / r), and softplus of it is log((r + mu) / r)
        return per_example(_log_ways(r, y) - r * F.softplus(ratio) - y * F.softplus(-ratio))

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        log_mean, dispersion = self.location_and_scale(outputs)
        mean = log_mean.exp()
        return mean, (mean + dispersion * mean.square()).sqrt()

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        r"""Return each draw's :math:`I_{r / (r + \mu)}(r, \lfloor y \rfloor + 1)`."""
        log_mean, dispersion = (part.double() for part in self.location_and_scale(outputs))
        log_r, last = -dispersion.log(), values.floor().double()
        x, rest = (log_r - log_mean).sigmoid(), (log_mean - log_r).sigmoid()
        below = incomplete_beta(log_r.exp(), last.clamp_min(0) + 1, x, rest)
        return torch.where(last < 0, 0.0, below).to(outputs.dtype)


def _log_ways(r: Tensor, y: Tensor) -> Tensor:
    """Return log Gamma(y + r) / (Gamma(r) y!), in double precision: of a large r, two large numbers nearly cancel."""
    wide = r if r.device.type == "mps" else r.double()  # which has no double precision
    return ((y.to(wide) + wide).lgamma() - wide.lgamma() - (y.to(wide) + 1).lgamma()).to(r)
