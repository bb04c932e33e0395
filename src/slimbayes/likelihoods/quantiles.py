"""The likelihood of quantile regression: asymmetric Laplace."""

from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_number
from slimbayes.likelihoods.base import check_finite, check_shape, per_example
from slimbayes.likelihoods.scale import ScaleLikelihood

__all__ = ["Quantile"]


class Quantile(ScaleLikelihood):
    r"""Quantiles of real targets, one output for each level: the asymmetric Laplace (Yu and Moyeed 2001).

    .. math::
        \log p_\tau(y) = \log\frac{\tau (1 - \tau)}{s} - \rho_\tau\left(\frac{y - q_\tau}{s}\right), \quad
        \rho_\tau(u) = u\, (\tau - 1[u < 0])

    summed over the levels :math:`\tau` and an example's targets: the pinball loss, up to the scale s. It is a way to
    fit quantiles, not a model of the targets: log-likelihoods are comparable among models with these levels alone.
    A prediction's quantile is the draws' mean, and there are none between the levels. Nothing keeps them from crossing.

    Args:
        levels: Each between 0 and 1.
        scale: s: ``"learned"``, one for all, or a number.
        initial: Where a learned s starts.

    Shape:
        - Outputs: ``(draws, batch, *, levels)``. Targets: ``(batch, *)``, or ``(batch, *, 1)``.

    Example:
        >>> likelihood = Quantile(levels=[0.1, 0.5, 0.9], scale=1.0)
        >>> likelihood.quantile(torch.tensor([[[1.0, 2.0, 3.0]], [[2.0, 3.0, 4.0]]]), 0.9)
        tensor([3.5000])
    """

    name = "quantile"
    scale: str | float

    def __init__(
        self,
        levels: list[float] | tuple[float, ...] = (0.05, 0.5, 0.95),
        scale: str | float = "learned",
        initial: float = 1.0,
    ) -> None:
        if scale == "predicted":
            raise ValueError(
                "Expected argument `scale` to be 'learned' or a number, but got 'predicted': quantiles lack one."
            )
        super().__init__("scale", scale, initial, None)
        if not levels:
            raise ValueError("Expected argument `levels` to hold a level, but it is empty. Give [0.1, 0.5, 0.9].")
        for level in levels:
            check_number("levels", level, 0.0, 1.0, "Give probabilities, such as [0.1, 0.5, 0.9].")
        self.levels = tuple(float(level) for level in levels)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        self._check(outputs)
        if targets.dim() == outputs.dim() - 1 and targets.shape[-1] == 1:
            targets = targets.squeeze(-1)
        check_shape(targets, outputs.shape[1:-1], "One target has one output for each level, on the last axis.")
        check_finite(targets)
        quantiles, scale = self.location_and_scale(outputs)
        level = outputs.new_tensor(self.levels)
        u = (targets.unsqueeze(-1) - quantiles) / scale
        loss = torch.where(u < 0, level - 1, level) * u
        return per_example((level * (1 - level)).log() - scale.log() - loss)

    def quantile(self, outputs: Tensor, q: float) -> Tensor:
        """Return the draws' mean of the quantile at a level."""
        self._check(outputs)
        near = [number for number, level in enumerate(self.levels) if abs(level - q) < 1e-9]
        if not near:
            raise ValueError(
                f"Expected argument `q` to be one of the levels {list(self.levels)}, but got {q:g}. Train with it "
                "among them: sb.Quantile(levels=...); interval(0.9) needs 0.05 and 0.95."
            )
        return outputs[..., near[0]].mean(0)

    def _check(self, outputs: Tensor) -> None:
        if outputs.dim() < 3 or outputs.shape[-1] != len(self.levels):
            raise ValueError(
                f"Expected outputs of shape (draws, batch, *, {len(self.levels)}), one for each level, but got "
                f"{tuple(outputs.shape)}. Give the network {len(self.levels)} outputs for a target."
            )

    def outputs_for(self, targets: int) -> int:  # noqa: D102
        return len(self.levels) * targets

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {**super().spec(), "levels": list(self.levels)}
