"""What layers with several Gaussian kernels share: the recurrent ones and attention."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.base import BayesianLayer, Pick, along_rows, become_plain, draw_groups, plain_base
from slimbayes.layers.gaussian import GaussianOptions, GaussianWeight, posterior_of, start_means
from slimbayes.layers.gaussian_layer import deal_rows
from slimbayes.layers.linear import linear_by_group

#: A dense map of ``(*, rows, *, in)`` with the rows on the given axis, bias included.
DenseMap = Callable[[Tensor, int], Tensor]
EVERYTHING = slice(None)


class GaussianKernels(BayesianLayer, nn.Module):
    """Mixin for layers that apply several dense kernels, each to a row more than once.

    Plain reparameterisation draws one kernel for each draw; Flipout, which ``"local"`` means here, flips one
    perturbation for each row, with the same signs at all positions and times.

    Attributes:
        posteriors: A ``GaussianWeight`` for each random parameter, by torch's name of it, such as ``weight_ih_l0``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options, plain = GaussianOptions.split(kwargs)
        super().__init__(*args, **plain)
        self.begin(plain_base(type(self)), options)

    def set_up(self, options: GaussianOptions, memo: dict[int, Any] | None = None) -> None:
        """Add a posterior for each kernel and, if asked for, each bias."""
        memo = {} if memo is None else memo
        self.estimator, self.sample_per = options.estimator, options.sample_per
        self.posteriors = nn.ModuleDict()
        for name in self.kernel_names():
            parameter = getattr(self, name)
            if not isinstance(parameter, nn.Parameter):
                continue  # a buffer is no weight of the network's
            if options.bayesian_bias or parameter.dim() > 1:
                self.posteriors[name] = posterior_of(self, name, options, memo)
            else:
                start_means(self, name, options)

    @abstractmethod
    def kernel_names(self) -> Iterator[str]:
        """Yield torch's names of the kernels and biases that may be random."""

    def posterior(self, name: str) -> GaussianWeight | None:
        """Return the posterior of a parameter, or None for a point estimate."""
        return self.posteriors[name] if name in self.posteriors else None  # type: ignore[return-value]  # noqa: SIM401

    def draws(self) -> int:
        """Return how many weights this pass draws."""
        return max(self.sampling.weights(self.sample_per), 1)

    @property
    def coherent(self) -> bool:
        """Whether all rows of a draw have the same weights in this pass."""
        plain = self.sampling.noise == "shared" or self.estimator == "reparameterization"
        return plain or self.sampling.held is not None or self.sampling.samples == 0

    def values(self, name: str) -> Tensor:
        """Return a parameter's values in a coherent pass: ``(draws, *shape)``, or ``(1, *shape)`` if common."""
        posterior = self.posterior(name)
        common: Tensor = getattr(self, name)
        if posterior is None or (self.sampling.samples == 0 and self.sampling.held is None):
            return common.unsqueeze(0)
        return posterior.values(self.draws())

    def dense_map(
        self, weight: str, bias: str | None, rows: int, part: slice = EVERYTHING, bias_part: slice = EVERYTHING
    ) -> DenseMap:
        """Return a kernel as a map with what this pass draws for it.

        Args:
            weight: The kernel's name.
            bias: Its bias's name, or None.
            rows: Rows of the input.
            part: The output channels that are wanted, of a kernel that holds several maps.
            bias_part: The same of the bias.
        """
        if not self.coherent:
            return self._flipout_map(weight, bias, rows, part, bias_part)
        weights = self.values(weight)[:, part]
        biases = None if bias is None else self.values(bias)[:, bias_part]
        deal_rows(self, rows, weights.shape[0])

        def apply(x: Tensor, axis: int) -> Tensor:
            y = linear_by_group(x, weights, axis)
            return y if biases is None else along_rows(y, biases, axis, -1, True, self.label)

        return apply

    def _flipout_map(self, weight: str, bias: str | None, rows: int, part: slice, bias_part: slice) -> DenseMap:
        posterior, mean = self.posterior(weight), getattr(self, weight)
        assert posterior is not None
        draws, groups = self.draws(), draw_groups(self.sampling, 1, rows)
        delta = posterior.perturbations(draws)[:, part]
        deal_rows(self, rows, delta.shape[0])
        s = posterior.signs("s", groups, mean.shape[1], mean)
        r = posterior.signs("r", groups, mean.shape[0], mean)[:, part]
        bias_mean = None if bias is None else getattr(self, bias)[bias_part]
        bias_posterior = None if bias is None else self.posterior(bias)
        shift: Tensor | None = None
        shared: Tensor | None = None
        if bias_posterior is not None and bias_posterior.tied:  # with another layer, whose signs are others
            bias_mean, shared = None, bias_posterior.values(draws)[:, bias_part]
        elif bias_posterior is not None:
            shift = bias_posterior.perturbations(draws)[:, bias_part]

        def apply(x: Tensor, axis: int) -> Tensor:
            noise = linear_by_group(along_rows(x, s, axis, -1, False, self.label), delta, axis)
            if shift is not None:
                # The signs of the outputs make the bias's perturbation differ between rows, too.
                noise = along_rows(noise, shift, axis, -1, True, self.label)
            y = F.linear(x, mean[part], bias_mean) + along_rows(noise, r, axis, -1, False, self.label)
            return y if shared is None else along_rows(y, shared, axis, -1, True, self.label)

        return apply

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain layer with the picked kernels and biases."""
        for name in list(self.posteriors):
            posterior = self.posterior(name)
            assert posterior is not None
            setattr(self, name, posterior.fold(pick))
        become_plain(self, ("posteriors",), ("estimator", "sample_per"))
        return self
