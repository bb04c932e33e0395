"""The signal-to-noise ratio of gradients: Figure 6 (top right) and footnote 3 of the k-tied paper."""

from math import nan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.analysis.matrices import layer_name, posterior_parts
from slimbayes.layers.gaussian import GaussianWeight
from slimbayes.layers.rank1 import Factor
from slimbayes.layers.scale import in_full_precision
from slimbayes.model import BayesianModel

__all__ = ["SNR", "GradientSNR"]


class SNR(NamedTuple):
    r"""The ratios of one layer's parameters, summarised.

    The weights of a hidden unit that is never active have a gradient from the KL alone, which hardly changes: their
    ratios are in the billions and decide the mean. The layer's own ratio, of sums over parameters, is of the size that
    the paper reports.

    Attributes:
        mean: Mean of the ratios.
        median: Their median.
        layer: :math:`\sum_i E[g_i^2] / \sum_i Var[g_i]`, the ratio of the layer's whole gradient.
    """

    mean: float
    median: float
    layer: float


class GradientSNR:
    r"""The signal-to-noise ratio of each standard deviation's gradient (footnote 3), over windows of batches.

    .. math::
        SNR = E[g^2] / Var[g]

    for each parameter alone, with expectation and variance over the batches of a window; g is the gradient with
    respect to the logarithm: log sigma, log u and log v, or the log scale of a rank-1 factor. Two running moments a
    parameter are kept (Welford's), and only while a window is open. A gradient that is always zero has no ratio and
    is left out; one that never changes has an infinite one.

    Args:
        model: A mean-field, k-tied or rank-1 model.
        window: Batches in a window; the paper's is 10.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.mean_field(torch.nn.Linear(4, 2))
        >>> snr = GradientSNR(model, window=10)
        >>> for _ in range(10):
        ...     model.zero_grad()
        ...     model(torch.randn(8, 4)).square().sum().backward()
        ...     snr.update()
        >>> list(snr.compute())
        ['weight']
    """

    def __init__(self, model: BayesianModel, window: int = 10) -> None:
        check_count("window", window, 2, "One gradient has no variance; the paper uses 10.")
        self.window = window
        self.parts = {layer_name(part.name): part for part in posterior_parts(model)}
        if not any(_trains_scales(part) for part in self.parts.values()):
            raise ValueError(
                "Expected argument `model` to have scales that are trained, but it has none. Make one with "
                "sb.mean_field, sb.k_tied or sb.rank1."
            )
        self.reset()

    def reset(self) -> None:
        """Open a new window."""
        self.batches = 0
        self._means: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}

    def update(self) -> None:
        """Take in the gradients of one batch: call it after ``backward``, before they are cleared.

        The call after a full window opens the next one.
        """
        if self.batches == self.window:
            self.reset()
        self.batches += 1
        for name, part in self.parts.items():
            gradients = part.log_scale_gradients()
            if self.batches > 1 and bool(gradients) != (name in self._means):
                now, before = ("a", "none") if gradients else ("no", "one")
                raise RuntimeError(f"{name} has {now} gradient now, but had {before} earlier in this window.")
            if not gradients:
                continue
            g = in_full_precision(torch.cat([gradient.detach().flatten() for gradient in gradients]))
            if self.batches == 1:
                self._means[name], self._squares[name] = torch.zeros_like(g), torch.zeros_like(g)
            change = g - self._means[name]
            self._means[name] += change / self.batches
            self._squares[name] += change * (g - self._means[name])

    def state_dict(self) -> dict[str, Any]:
        """Return the window as it is: numbers and tensors."""
        return {"batches": self.batches, "means": dict(self._means), "squares": dict(self._squares)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a window of the same model."""
        self.batches = state["batches"]
        devices = {name: next(part.parameters()).device for name, part in self.parts.items()}
        self._means, self._squares = (
            {name: values.to(devices[name]) for name, values in state[moment].items()}
            for moment in ("means", "squares")
        )

    @property
    def full(self) -> bool:
        """Whether the window is complete."""
        return self.batches == self.window

    def ratios(self) -> dict[str, np.ndarray]:
        """Return the ratio of each parameter, flat, by layer; not a number where the gradient is always zero."""
        if not self.full:
            raise RuntimeError(
                f"The window has {self.batches} of {self.window} batches. Call update() after each backward pass, and "
                "compute() when it is full."
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            found = {name: second / variance for name, (second, variance) in self._moments().items()}
        if not found:
            raise RuntimeError("No gradients were seen. Call update() after backward(), before zero_grad().")
        return found

    def _moments(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return E[g^2] and Var[g] of each parameter, by layer."""
        found = {}
        for name, mean in self._means.items():
            variance = self._squares[name].cpu().double().numpy() / self.window
            found[name] = (mean.cpu().double().numpy() ** 2 + variance, variance)
        return found

    def of_model(self) -> float:
        r"""Return the ratio of the whole gradient: :math:`\sum_i E[g_i^2] / \sum_i Var[g_i]` over all layers."""
        self.ratios()  # raises unless there is a full window
        seconds, variances = zip(*self._moments().values(), strict=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(sum(one.sum() for one in seconds) / sum(one.sum() for one in variances))

    def compute(self) -> dict[str, SNR]:
        """Return the ratios of each layer, summarised."""
        found, ratios = {}, self.ratios()
        with np.errstate(divide="ignore", invalid="ignore"):
            for name, (second, variance) in self._moments().items():
                defined = ratios[name][~np.isnan(ratios[name])]
                if len(defined):
                    own = float(second.sum() / variance.sum())
                    found[name] = SNR(float(defined.mean()), float(np.median(defined)), own)
                else:
                    found[name] = SNR(nan, nan, nan)
        return found


def _trains_scales(part: Factor | GaussianWeight) -> bool:
    if isinstance(part, GaussianWeight):
        return any(parameter.requires_grad for parameter in part.spread.log_parameters())
    return part.rho is not None and part.rho.requires_grad
