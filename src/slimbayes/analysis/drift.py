"""How the standard deviations move in training: Figure 10 of the k-tied paper."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.analysis._figures import new_axes
from slimbayes.analysis.matrices import layer_name, posterior_parts
from slimbayes.layers.gaussian import GaussianWeight
from slimbayes.layers.rank1 import Factor
from slimbayes.layers.scale import TiedScale, in_full_precision
from slimbayes.model import BayesianModel

__all__ = ["PosteriorDrift"]


class PosteriorDrift:
    """The mean standard deviation of each layer's weights, or of each rank-1 factor, over the steps of training.

    Biases are left out. Of k-tied weights the mean is taken from U and V, sigma is not made.

    Args:
        model: A mean-field, k-tied or rank-1 model.

    Example:
        >>> import slimbayes as sb
        >>> drift = PosteriorDrift(sb.mean_field(torch.nn.Linear(4, 2), init_jitter=0.0))
        >>> for step in (0, 100):
        ...     drift.update(step)
        >>> drift.steps, drift.scales["weight"].round(3)
        (array([  0, 100]), array([0.01, 0.01]))
    """

    def __init__(self, model: BayesianModel) -> None:
        self.parts = {layer_name(part.name): part for part in posterior_parts(model) if _has_scale(part)}
        if not self.parts:
            raise ValueError(
                f"Expected argument `model` to have posteriors with a spread, but this {model.method} model has none. "
                "Make one with sb.mean_field, sb.k_tied or sb.rank1."
            )
        self._steps: list[int] = []
        self._scales: dict[str, list[float]] = {name: [] for name in self.parts}

    @property
    def steps(self) -> np.ndarray:
        """The steps at which ``update`` was called."""
        return np.array(self._steps, dtype=np.int64)

    @property
    def scales(self) -> dict[str, np.ndarray]:
        """The mean standard deviation at each of them, by layer."""
        return {name: np.array(values) for name, values in self._scales.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Record the standard deviations as they are.

        Args:
            step: Steps of training so far.
        """
        check_count("step", step, 0)
        if self._steps and step <= self._steps[-1]:
            raise ValueError(
                f"Expected argument `step` to be above the last one, {self._steps[-1]}, but got {step}. After a "
                "return to an earlier state of training, return to that of the drift, too: load_state_dict."
            )
        # One tensor, so that an accelerator is waited for once.
        means = torch.stack([_mean_scale(part) for part in self.parts.values()]).tolist()
        self._steps.append(int(step))
        for values, mean in zip(self._scales.values(), means, strict=True):
            values.append(mean)

    def state_dict(self) -> dict[str, Any]:
        """Return the record as lists of numbers."""
        return {"steps": list(self._steps), "scales": {name: list(values) for name, values in self._scales.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a record of the same layers."""
        if set(state["scales"]) != set(self.parts):
            wrong = sorted(set(self.parts).symmetric_difference(state["scales"]))[:3]
            raise ValueError(
                f"Expected argument `state` to be of a model with the same layers, but it differs in {wrong}."
            )
        self._steps = list(state["steps"])
        self._scales = {name: list(state["scales"][name]) for name in self.parts}

    def plot(self, ax: Any = None, annealed_steps: int | None = None) -> Any:
        """Draw Figure 10: a line for each layer.

        Args:
            ax: Axes of matplotlib; None for new ones.
            annealed_steps: Steps in which the KL's weight rises to 1; they are shaded.

        Returns:
            The axes.
        """
        ax = new_axes(width=5) if ax is None else ax
        if annealed_steps is not None:
            check_count("annealed_steps", annealed_steps, 1)
            ax.axvspan(0, annealed_steps, color="0.9", label="annealing")
        for name, values in self.scales.items():
            ax.plot(self.steps, values, label=name)
        ax.set(xlabel="step", ylabel="mean posterior standard deviation")
        ax.legend()
        return ax


def _has_scale(part: Factor | GaussianWeight) -> bool:
    return isinstance(part, GaussianWeight) or part.rho is not None


def _mean_scale(part: Factor | GaussianWeight) -> Tensor:
    if not isinstance(part, GaussianWeight):
        return in_full_precision(part.scale).mean()
    spread, fixed_row = part.spread, part.fixed_row
    if isinstance(spread, TiedScale):
        u, v = in_full_precision(spread.u), in_full_precision(spread.v)
        # The mean over i and j of sum_a u_ia v_ja.
        return u.mean(0) @ _without_row(v, fixed_row).mean(0)
    return _without_row(in_full_precision(spread.values()), fixed_row).mean()


def _without_row(values: Tensor, row: int | None) -> Tensor:
    return values if row is None else torch.cat([values[:row], values[row + 1 :]])
