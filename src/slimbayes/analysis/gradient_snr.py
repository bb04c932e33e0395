"""The signal-to-noise ratio of gradients: Figure 6 (top right) and footnote 3 of the k-tied paper."""

from math import nan
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.analysis.matrices import layer_name
from slimbayes.layers.gaussian import GaussianWeight
from slimbayes.layers.scale import in_full_precision
from slimbayes.model import BayesianModel

__all__ = ["SNR", "GradientSNR"]


class SNR(NamedTuple):
    """The ratios of one layer's parameters, summarised.

    Attributes:
        mean: Their mean, the paper's figure.
        median: Their median, which a few parameters with nearly constant gradients do not move.
    """

    mean: float
    median: float


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
        self.parts = {
            layer_name(part.name): part
            for part in model.stochastic()
            if not (isinstance(part, GaussianWeight) and part.mean.dim() < 2)
        }
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
        found = {}
        for name, mean in self._means.items():
            variance = self._squares[name] / self.window
            found[name] = ((mean.square() + variance) / variance).cpu().double().numpy()
        if not found:
            raise RuntimeError("No gradients were seen. Call update() after backward(), before zero_grad().")
        return found

    def compute(self) -> dict[str, SNR]:
        """Return the mean and the median ratio of each layer."""
        found = {}
        for name, ratios in self.ratios().items():
            defined = ratios[~np.isnan(ratios)]
            found[name] = SNR(float(defined.mean()), float(np.median(defined))) if len(defined) else SNR(nan, nan)
        return found
