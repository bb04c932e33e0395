"""A dense layer whose weight and bias are one Gaussian, all entries correlated: N(mean, Sigma)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from slimbayes.ensembles._covariance_root import CovarianceRoot
from slimbayes.families import Normal
from slimbayes.layers.base import BayesianLayer, Pick, Stochastic, along_rows, become_plain, draw_groups
from slimbayes.layers.gaussian_layer import deal_rows
from slimbayes.layers.linear import linear_by_group
from slimbayes.layers.scale import in_full_precision
from slimbayes.sampling import Sampling

__all__ = ["DenseNormal", "DenseNormalLinear"]


class DenseNormal(Stochastic, nn.Module):
    """The posterior N(mean, R R^T) of a dense layer's ``[W row by row, b]``, whose own values are the means.

    The spread is fixed: it was computed, not trained.

    Args:
        layer: The layer that holds the means.
        root: R.
        prior_precision: Of the prior N(0, 1 / prior_precision).

    Example:
        >>> from slimbayes.ensembles._covariance_root import DiagonalRoot
        >>> posterior = DenseNormal(nn.Linear(4, 3), DiagonalRoot(3, 4, bias=True), prior_precision=1.0)
        >>> posterior.mean.shape, posterior.draw(6).shape
        (torch.Size([15]), torch.Size([6, 15]))
    """

    def __init__(self, layer: nn.Linear, root: CovarianceRoot, prior_precision: float) -> None:
        super().__init__()
        self.sampling = Sampling()
        self.owner = (layer,)  # in a tuple, or torch would make the layer a child of its own child
        self.root, self.prior_precision = root, prior_precision

    def own_means(self) -> tuple[nn.Parameter, ...]:
        """Return the layer's weight, and its bias if it has one."""
        layer: Any = self.owner[0]
        return (layer.weight,) if layer.bias is None else (layer.weight, layer.bias)

    @property
    def mean(self) -> Tensor:
        """The means, ``(P,)``."""
        return torch.cat([part.flatten() for part in self.own_means()])

    @property
    def scale(self) -> Tensor:
        """The standard deviation of each entry, ``(P,)``."""
        return self.root.variances().sqrt()

    def draw(self, count: int, generator: Generator | None = None) -> Tensor:
        """Draw weights and biases, ``(count, P)``."""
        mean = self.mean
        noise = Normal().noise((count, mean.numel()), mean, generator).to(mean.dtype)
        with torch.autocast(mean.device.type, enabled=False):  # a draw is the same inside and outside
            return mean + self.root(noise).to(mean.dtype)

    def values(self, count: int) -> Tensor:
        """Return the draws of this pass: those held, those that an earlier call of the layer had, or new ones."""
        held, drawn = self.sampling.held, self.sampling.drawn
        if held is not None and self.name in held:
            return held[self.name]
        if drawn is not None and self.name in drawn:
            return drawn[self.name]

        def draw(shape: tuple[int, int], generator: Generator | None) -> Tensor:
            return self.draw(math.prod(shape), generator).unflatten(0, shape)

        values = self.for_rows(self.name, count, draw)
        if drawn is not None:
            drawn[self.name] = values
        return values

    def hold(self, members: int, samples: int, generator: Generator | None) -> Tensor:
        """Draw once per member and sample: ``(members * samples, P)``."""
        if samples == 0:
            return self.mean.expand(members, -1)
        return self.draw(members * samples, generator)

    def at_location(self, member: int) -> Tensor:
        """Return the means."""
        return self.mean

    def kl(self) -> Tensor:
        r"""Return the KL to the prior with precision :math:`\delta`, a scalar.

        .. math::
            KL = \tfrac12 (\delta\, (\operatorname{tr} \Sigma + \|\mu\|^2) - P - \log\det\Sigma - P \log\delta)
        """
        mean, precision = in_full_precision(self.mean), self.prior_precision
        size = precision * (self.root.variances().sum() + mean.square().sum())
        return 0.5 * (size - mean.numel() * (1 + math.log(precision)) - self.root.log_determinant())

    def log_scale_gradients(self) -> list[Tensor]:
        """Return nothing: the scales are not trained."""
        return []


class DenseNormalLinear(BayesianLayer, nn.Linear):
    """``nn.Linear`` whose weight and bias have one Gaussian posterior; made from a trained layer by ``sb.laplace``.

    With noise per example each row has a weight of its own, which takes ``rows * P`` numbers.

    Attributes:
        posterior: A ``DenseNormal``.

    Shape:
        - Input: ``(rows, *, in_features)``. Output: ``(rows, *, out_features)``.

    Example:
        >>> from slimbayes.ensembles._covariance_root import FullRoot
        >>> layer = DenseNormalLinear.adopt(nn.Linear(4, 3), FullRoot(3, 4, bias=True), 1.0)
        >>> layer(torch.randn(6, 4)).shape
        torch.Size([6, 3])
    """

    posterior: DenseNormal

    def set_up(self, root: CovarianceRoot, prior_precision: float) -> None:
        """Add the posterior; weight and bias become its means."""
        self.posterior = DenseNormal(self, root.to(self.weight), prior_precision)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows whose draws follow each other."""
        sampling = self.enter()
        if sampling.samples == 0 and sampling.held is None:
            return F.linear(input, self.weight, self.bias)
        axis = self.rows_axis(input)
        rows = self.rows_of(input, axis)
        weights, biases = self.parts(self.posterior.values(draw_groups(sampling, 1, rows)))
        deal_rows(self, rows, weights.shape[0])
        y = linear_by_group(input, weights, axis)
        return y if biases is None else along_rows(y, biases, axis, -1, True, self.label)

    def parts(self, drawn: Tensor) -> tuple[Tensor, Tensor | None]:
        """Split ``(draws, P)`` into weights ``(draws, out, in)`` and biases ``(draws, out)``."""
        count = self.weight.numel()
        weights = drawn[:, :count].unflatten(1, self.weight.shape)
        return weights, None if self.bias is None else drawn[:, count:]

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain layer with the picked weight and bias, its own even if they were tied to another layer's."""
        weights, biases = self.parts(pick(self.posterior).detach().unsqueeze(0))
        self.weight = nn.Parameter(weights[0].clone())
        if biases is not None:
            self.bias = nn.Parameter(biases[0].clone())
        become_plain(self, ("posterior",), ())
        return self
