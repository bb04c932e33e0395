"""The likelihood of ordered levels: cumulative logits."""

import math
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_count
from slimbayes.families import inverse_softplus, softplus_scale
from slimbayes.likelihoods.base import Likelihood, check_range, mixture, per_example, squeeze_to

__all__ = ["Ordinal"]


class Ordinal(Likelihood):
    r"""Ordered levels 0 to L - 1 from one number: the proportional-odds model (McCullagh 1980).

    .. math::
        p(y \le l) = \text{sigmoid}(\theta_{l+1} - f), \quad
        \theta_1 < \dots < \theta_{L-1}, \quad
        \log p(y = l) = \log \text{sigmoid}(\theta_{l+1} - f) + \log \text{sigmoid}(f - \theta_l)
        + \log(1 - e^{\theta_l - \theta_{l+1}})

    with :math:`\theta_0 = -\infty` and :math:`\theta_L = \infty`. The thresholds are trained with the model: the first,
    and the gaps :math:`\text{softplus}(\rho) + 10^{-7}`. They start where all levels are as likely at f = 0.

    Args:
        levels: L, 2 or more.

    Shape:
        - Outputs: ``(draws, batch, *)``, a last axis of one allowed beyond the targets'. Targets: ``(batch, *)``.

    Example:
        >>> Ordinal(levels=4).class_log_probs(torch.zeros(1, 1, 1)).exp().detach()
        tensor([[[0.2500, 0.2500, 0.2500, 0.2500]]])
    """

    name = "ordinal"

    def __init__(self, levels: int) -> None:
        super().__init__()
        check_count("levels", levels, 2, "Give the number of levels.")
        self.levels = levels
        start = [math.log(level / (levels - level)) for level in range(1, levels)]
        gaps = [inverse_softplus(after - before) for before, after in pairwise(start)]
        self.first = nn.Parameter(torch.tensor(start[0]))
        self.rho = nn.Parameter(torch.tensor(gaps))

    @property
    def thresholds(self) -> Tensor:
        """The thresholds in order, ``(levels - 1,)``."""
        return torch.cat([self.first[None], self.first + softplus_scale(self.rho).cumsum(0)])

    def _log_probs(self, outputs: Tensor) -> Tensor:
        distance = self.thresholds.to(outputs.dtype) - outputs.unsqueeze(-1)
        at_most, above = F.logsigmoid(distance), F.logsigmoid(-distance)
        gaps = torch.log(-torch.expm1(-softplus_scale(self.rho))).to(outputs.dtype)
        between = at_most[..., 1:] + above[..., :-1] + gaps
        return torch.cat([at_most[..., :1], between, above[..., -1:]], -1)

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities of the levels, last."""
        one = outputs.dim() > 2 and outputs.shape[-1] == 1
        return self._log_probs(outputs.squeeze(-1) if one else outputs)

    def _pick(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        check_range(targets, 0, self.levels - 1, "Give the numbers of the levels, or more `levels`.")
        if not torch.compiler.is_compiling() and (between := targets != targets.round()).any():
            raise ValueError(
                f"Expected argument `targets` to be levels 0, 1, ..., {self.levels - 1}, but got "
                f"{targets[between][0].item()}. Give the numbers of the levels."
            )
        index = targets.long().expand(log_probs.shape[:-1]).unsqueeze(-1)
        return per_example(log_probs.gather(-1, index).squeeze(-1))

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return self._pick(self._log_probs(squeeze_to(outputs, targets)), targets)

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        log_probs = mixture(self._log_probs(squeeze_to(outputs, targets)))
        return self._pick(log_probs.unsqueeze(0), targets).squeeze(0)

    def outputs_for(self, targets: int) -> int:  # noqa: D102
        return 1

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"name": self.name, "levels": self.levels}
