"""The likelihood of survival times: Cox's proportional hazards."""

from typing import Any

import torch
from torch import Tensor

from slimbayes.likelihoods.base import Likelihood, squeeze_to

__all__ = ["Cox"]


class Cox(Likelihood):
    r"""Times to an event, some censored: proportional hazards, :math:`h(t) = h_0(t)\, e^f` (Cox 1972).

    The partial likelihood, which leaves the baseline :math:`h_0` open, with Breslow's way of ties:

    .. math::
        \ell_i = e_i \Big( f_i - \log \sum_{j:\, t_j \ge t_i} e^{f_j} \Big)

    **It is not a sum over independent examples:** those at risk are looked for in the batch, not in the whole
    training set, so that its value depends on the batch. Batches should be large; the objective, its mean over a
    batch, makes an event compete with those of its batch that are still at risk. A prediction's
    ``log_likelihood((time, event))`` is likewise among the examples given: the log of the draws' mean probability that
    of all at risk it was this one. ``mean`` and ``std`` are those of f, the log of the relative hazard, over draws.

    Shape:
        - Outputs: ``(draws, batch)`` or ``(draws, batch, 1)``. Targets: ``(time, event)``, each ``(batch,)``, or
          ``(batch, 2)`` with both; event is 1 or True where it was seen, 0 where the time is censored.

    Example:
        >>> time, event = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 1, 0])
        >>> Cox().log_prob(torch.zeros(1, 3, 1), torch.stack([time, event], -1))  # -log 3, -log 2, censored
        tensor([[-1.0986, -0.6931,  0.0000]])
    """

    name = "cox"

    def read(self, outputs: Any, targets: Any, batch_dim: int) -> tuple[Any, Any]:
        """Take a pair of times and events, too."""
        if isinstance(targets, (tuple, list)) and len(targets) == 2 and all(isinstance(x, Tensor) for x in targets):
            time, event = targets
            targets = torch.stack([time, event.to(time.dtype)], -1)
        return super().read(outputs, targets, batch_dim)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        if targets.dim() != 2 or targets.shape[1] != 2:
            raise ValueError(
                "Expected argument `targets` to be (time, event), each of shape (batch,), or both in (batch, 2), but "
                f"got shape {tuple(targets.shape)}."
            )
        time, event = targets.unbind(1)
        if not torch.compiler.is_compiling():
            _check(time, event)
        log_hazard = squeeze_to(outputs, time)
        later_first = time.argsort(descending=True)
        at_risk = log_hazard[:, later_first].logcumsumexp(1)
        # The last of those with the same time, so that ties are all at risk.
        falling = -time[later_first]
        last = torch.searchsorted(falling.contiguous(), -time, right=True) - 1
        return event.to(log_hazard.dtype) * (log_hazard - at_risk[:, last])

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the relative hazard, and 0: all of its spread comes from the model."""
        return outputs, torch.zeros_like(outputs)

    def quantile(self, outputs: Tensor, q: float) -> Tensor:
        """Return the draws' quantile of the log of the relative hazard."""
        return outputs.quantile(q, dim=0)


def _check(time: Tensor, event: Tensor) -> None:
    wrong = event[(event != 0) & (event != 1)]
    if len(wrong):
        raise ValueError(
            f"Expected argument `targets` to be (time, event) with events 0 or 1, but got {wrong[0].item():g}. Check "
            "the order: times come first."
        )
    wrong = time[~time.isfinite()]
    if len(wrong):
        raise ValueError(f"Expected argument `targets` to have finite times, but got {wrong[0].item()}. Drop those.")
