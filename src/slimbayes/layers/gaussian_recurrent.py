"""LSTM, GRU and RNN with Gaussian kernels: one draw for a whole sequence."""

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.base import Pick, along_rows, plain_base
from slimbayes.layers.gaussian import GaussianOptions, GaussianWeight, posterior_of
from slimbayes.layers.gaussian_layer import deal_rows, random_signs
from slimbayes.layers.ops import linear_by_group
from slimbayes.layers.rank1 import become_plain
from slimbayes.layers.recurrence import GRUStep, Kernel, LSTMStep, Recurrence, RNNStep

__all__ = ["GaussianGRU", "GaussianLSTM", "GaussianRNN"]


class _GaussianRecurrent(Recurrence):
    """What the three recurrent layers share: a posterior for each kernel, the LSTM's projection included.

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
        for name in self.parameter_names():
            trained = isinstance(getattr(self, name), nn.Parameter)
            if trained and (options.bayesian_bias or not name.startswith("bias")):
                self.posteriors[name] = posterior_of(self, name, options, memo)

    def parameter_names(self) -> Iterator[str]:
        """Yield torch's names of all weights and biases, in the order of its fused kernels."""
        for names in self._all_weights:
            yield from names

    def law(self, name: str) -> GaussianWeight | None:
        """Return the posterior of a parameter, or None for a point estimate."""
        return self.posteriors[name] if name in self.posteriors else None  # type: ignore[return-value]  # noqa: SIM401

    def draws(self) -> int:
        """Return how many weights this pass draws."""
        return 1 if self.sample_per == "batch" else max(self.sampling.samples, 1)

    @property
    def coherent(self) -> bool:
        """Whether all rows of a draw have the same weights in this pass."""
        plain = self.sampling.noise == "shared" or self.estimator == "reparameterization"
        return plain or self.sampling.held is not None or self.sampling.samples == 0

    def values(self, name: str) -> Tensor:
        """Return a parameter's values in a coherent pass: ``(draws, *shape)``, or ``(1, *shape)`` if common."""
        law = self.law(name)
        common: Tensor = getattr(self, name)
        if law is None or (self.sampling.samples == 0 and self.sampling.held is None):
            return common.unsqueeze(0)
        return law.values(self.draws())

    def common_weights(self) -> list[Tensor] | None:
        """Return the weights for torch's fused kernel, if all rows have the same ones."""
        if not self.coherent:
            return None
        values = [self.values(name) for name in self.parameter_names()]
        return [value[0] for value in values] if all(value.shape[0] == 1 for value in values) else None

    def kernel(self, name: str, suffix: str, rows: int) -> Kernel:
        """Return one kernel with the weights, or the perturbation and signs, of this pass."""
        weight, bias = f"weight_{name}_{suffix}", f"bias_{name}_{suffix}"
        with_bias = self.bias and name != "hr"
        if not self.coherent:
            return self._flipout(weight, bias if with_bias else None, rows)
        weights, biases = self.values(weight), self.values(bias) if with_bias else None
        deal_rows(self, rows, weights.shape[0])

        def apply(x: Tensor) -> Tensor:
            y = linear_by_group(x, weights, x.dim() - 2)
            return y if biases is None else along_rows(y, biases, x.dim() - 2, -1, True, self.label)

        return apply

    def _flipout(self, weight: str, bias: str | None, rows: int) -> Kernel:
        law, generator, mean = self.law(weight), self.sampling.generator, getattr(self, weight)
        assert law is not None
        draws, groups = self.draws(), self.sampling.groups(1, rows)
        delta = law.remember("delta", lambda: law.perturbation(draws, generator))
        deal_rows(self, rows, delta.shape[0])
        s = law.remember("s", lambda: random_signs((groups, mean.shape[1]), mean, generator))
        r = law.remember("r", lambda: random_signs((groups, mean.shape[0]), mean, generator))
        bias_mean = None if bias is None else getattr(self, bias)
        bias_law = None if bias is None else self.law(bias)
        shift: Tensor | None = None
        if bias_law is not None:
            shift = bias_law.remember("delta", lambda: bias_law.perturbation(draws, generator))

        def apply(x: Tensor) -> Tensor:
            axis = x.dim() - 2
            noise = linear_by_group(along_rows(x, s, axis, -1, False, self.label), delta, axis)
            if shift is not None:
                noise = along_rows(noise, shift, axis, -1, True, self.label)
            return F.linear(x, mean, bias_mean) + along_rows(noise, r, axis, -1, False, self.label)

        return apply

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain layer with the picked kernels and biases."""
        for name in list(self.posteriors):
            law = self.law(name)
            assert law is not None
            setattr(self, name, law.fold(pick))
        become_plain(self, ("posteriors",), ("estimator", "sample_per"))
        return self


class GaussianLSTM(LSTMStep, _GaussianRecurrent, nn.LSTM):
    """``nn.LSTM`` whose kernels are Gaussian.

    Shape:
        - Input: ``(time, rows, input_size)`` (or batch first, or packed). Output: as ``nn.LSTM``.

    Example:
        >>> import torch
        >>> output, (h, c) = GaussianLSTM(4, 6, num_layers=2, batch_first=True, k=2)(torch.randn(12, 5, 4))
        >>> output.shape, h.shape
        (torch.Size([12, 5, 6]), torch.Size([2, 12, 6]))
    """


class GaussianGRU(GRUStep, _GaussianRecurrent, nn.GRU):
    """``nn.GRU`` whose kernels are Gaussian.

    Shape:
        - Input: ``(time, rows, input_size)`` (or batch first, or packed). Output: as ``nn.GRU``.

    Example:
        >>> import torch
        >>> output, h = GaussianGRU(4, 6, estimator="flipout")(torch.randn(5, 12, 4))
        >>> output.shape, h.shape
        (torch.Size([5, 12, 6]), torch.Size([1, 12, 6]))
    """


class GaussianRNN(RNNStep, _GaussianRecurrent, nn.RNN):
    """``nn.RNN`` (tanh or relu) whose kernels are Gaussian.

    Shape:
        - Input: ``(time, rows, input_size)`` (or batch first, or packed). Output: as ``nn.RNN``.

    Example:
        >>> import torch
        >>> output, h = GaussianRNN(4, 6, nonlinearity="relu")(torch.randn(5, 12, 4))
        >>> output.shape
        torch.Size([5, 12, 6])
    """
