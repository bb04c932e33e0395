"""What SWAG and subspace inference keep of training: the mean of the states, and the last deviations from it."""

from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.ensembles._weight_posterior import WeightPosterior
from slimbayes.layers.scale import in_full_precision


class TrajectoryPosterior(WeightPosterior):
    r"""Running mean of each member's states, and the last few deviations from it.

    With snapshots :math:`\theta_1, \theta_2, \dots` and the running mean
    :math:`\bar\theta_i = \frac1i \sum_{j \le i} \theta_j`, the deviations are :math:`\theta_i - \bar\theta_i`, each
    from the mean at its time (Maddox et al. 2019, Algorithm 1; Izmailov et al. 2019, Algorithm 2). The first of them is
    0, and counts among the R columns, as in the authors' code.

    Args:
        members: Networks that train side by side.
        like: A state vector, ``(size,)``, whose type and device the posterior takes; float32 instead of half precision,
            which a mean of many snapshots would be lost in.
        weights: Number P of parameters, which come first in a state; running statistics follow.
        keep: Deviations to keep.

    Shape:
        - ``mean``: ``(members, size)``. ``deviations``: ``(members, keep, P)``, of which ``columns`` are filled.
    """

    mean: Tensor
    deviations: Tensor
    needed = 2

    def __init__(self, members: int, like: Tensor, weights: int, keep: int) -> None:
        super().__init__(members, like.numel())
        check_count("keep", keep, 0)
        self.weights, self.keep = weights, keep
        like = in_full_precision(like)
        self.register_buffer("mean", like.new_zeros(members, self.size))
        self.register_buffer("deviations", like.new_zeros(members, keep, weights))
        self.count = self.count.to(like.device)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                self._buffers[name] = in_full_precision(buffer)
        return self

    @property
    def columns(self) -> int:
        """Number R of deviations that are there."""
        return min(self.collected, self.keep)

    def take(self, states: Tensor) -> None:
        """Take in the members' states, unless training has diverged: one such state would spoil the mean."""
        if not states[:, : self.weights].isfinite().all():
            raise ValueError(
                f"Expected finite weights to collect, but those of snapshot {self.collected + 1} are not: training has "
                "diverged. Lower its learning rate."
            )
        super().take(states)

    def absorb(self, states: Tensor) -> None:
        """Move the mean, and put the newest deviation in the place of the oldest."""
        same = states == self.mean  # a constant buffer may hold infinities, which have no difference
        self.mean += torch.where(same, 0, states - self.mean) / (self.collected + 1)
        if self.keep:
            self.deviations[:, self.collected % self.keep] = (states - self.mean)[:, : self.weights]

    def not_ready(self) -> str:
        """Return what to do about too few snapshots."""
        return (
            f"There is nothing to draw from: {self.collected} of at least {self.needed} snapshots have been collected. "
            "Call model.collect() after each of the last epochs of training; samples=0 gives the networks as they are."
        )
