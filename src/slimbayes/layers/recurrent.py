"""Rank-1 LSTM, GRU and RNN: factors on the input and recurrent kernels, drawn once per sequence."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.base import Pick, become_plain, member_bias, plain_base
from slimbayes.layers.rank1 import FactorOptions, RowFactor, fold_kernel
from slimbayes.layers.recurrence import GRUStep, Kernel, LSTMStep, Recurrence, RNNStep

__all__ = ["Rank1GRU", "Rank1LSTM", "Rank1RNN"]


class _Kernel:
    """One kernel with the factors drawn for this pass: x -> sum_j ((x ∘ s_j) W^T) ∘ r_j + b."""

    def __init__(self, layer: "_Rank1Recurrent", kernel: str, suffix: str, rows: int) -> None:
        self.weight = getattr(layer, f"weight_{kernel}_{suffix}")
        self.additive = layer.additive
        s, r = (
            layer.drawn(f"{kernel}_{suffix}_input", rows),
            layer.drawn(f"{kernel}_{suffix}_output", rows),
        )
        rank = len(s or r or (None,))
        self.factors = list(zip(s or (None,) * rank, r or (None,) * rank, strict=True))
        self.bias = layer.bias_rows(f"bias_{kernel}_{suffix}", rows)

    def __call__(self, x: Tensor) -> Tensor:
        total: Tensor | None = None
        for s, r in self.factors:
            z = x if s is None else (x + s.to(x.dtype) if self.additive else x * s.to(x.dtype))
            y = F.linear(z, self.weight)
            if r is not None:
                y = y + r.to(y.dtype) if self.additive else y * r.to(y.dtype)
            total = y if total is None else total + y
        assert total is not None
        return total if self.bias is None else total + self.bias.to(total.dtype)


class _Rank1Recurrent(Recurrence):
    """What the three recurrent layers share: their factors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options, plain = FactorOptions.split(kwargs)
        super().__init__(*args, **plain)
        self.begin(plain_base(type(self)), options)

    def set_up(self, options: FactorOptions, memo: dict[int, nn.Parameter] | None = None) -> None:
        """Add factors to each input and recurrent kernel, and repeat the biases for each member."""
        self.additive = options.perturbation == "additive"
        self.members = options.members
        self.factors = nn.ModuleDict()
        memo = {} if memo is None else memo
        for kernel, suffix in self.kernels():
            weight = getattr(self, f"weight_{kernel}_{suffix}")
            like: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
            outputs, inputs = weight.shape
            if options.has("input"):
                summed = options.factors == "input"
                self.factors[f"{kernel}_{suffix}_input"] = options.factor(inputs, summed, **like)
            if options.has("output"):
                self.factors[f"{kernel}_{suffix}_output"] = options.factor(outputs, True, **like)
            if self.bias and options.member_bias:
                bias = f"bias_{kernel}_{suffix}"
                if isinstance(given := getattr(self, bias), nn.Parameter):  # a buffer is no weight of the network's
                    setattr(self, bias, member_bias(given, options.members, memo))

    def kernels(self) -> Iterator[tuple[str, str]]:
        """Yield each kernel that has factors; the LSTM's projection has none."""
        for suffix in self.suffixes():
            yield "ih", suffix
            yield "hh", suffix

    def kernel(self, name: str, suffix: str, rows: int) -> Kernel:
        """Return a kernel between its factors, or the LSTM's plain projection."""
        if name == "hr":
            return partial(F.linear, weight=getattr(self, f"weight_hr_{suffix}"))
        return _Kernel(self, name, suffix, rows)

    def drawn(self, name: str, rows: int) -> tuple[Tensor, ...] | None:
        """Return a factor's draws, one row of values for each row of the batch."""
        if name not in self.factors:
            return None
        factor = self.factors[name]
        assert isinstance(factor, RowFactor)
        values = factor.values(rows, self.label)
        if rows % values[0].shape[0]:
            raise ValueError(
                f"Layer {self.label} got {rows} rows, which cannot be dealt to {values[0].shape[0]} draws. "
                "Check `batch_first`, or exclude the layer."
            )
        return tuple(value.repeat_interleave(rows // value.shape[0], 0) for value in values)

    def bias_rows(self, name: str, rows: int) -> Tensor | None:
        """Return a bias for each row, or the one bias that all rows share."""
        if not self.bias:
            return None
        bias: Tensor = getattr(self, name)
        return bias if bias.dim() == 1 else bias.repeat_interleave(rows // self.members, 0)

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain layer with kernels W ∘ sum_j r_j s_j^T and the member's biases."""
        with torch.no_grad():
            for kernel, suffix in self.kernels():
                name = f"weight_{kernel}_{suffix}"
                weight = getattr(self, name)
                s, r = (
                    pick(self.factors[key]) if (key := f"{kernel}_{suffix}_{side}") in self.factors else None  # type: ignore[arg-type]
                    for side in ("input", "output")
                )
                bias = getattr(self, f"bias_{kernel}_{suffix}") if self.bias else None
                bias = bias[member] if bias is not None and bias.dim() == 2 else bias
                weight, bias = fold_kernel(self, weight, bias, s, r, self.additive)
                setattr(self, name, nn.Parameter(weight.detach().clone()))
                if bias is not None:
                    name, bias = f"bias_{kernel}_{suffix}", bias.detach().clone()
                    setattr(self, name, bias if name in self._buffers else nn.Parameter(bias))
        become_plain(self, ("factors",), ("additive", "members"))
        return self


class Rank1LSTM(LSTMStep, _Rank1Recurrent, nn.LSTM):
    """``nn.LSTM`` with rank-1 factors: one s for all four gates, r distinct for each.

    Shape:
        - Input: ``(time, members * m, input_size)`` (or batch first, or packed). Output: as ``nn.LSTM``.

    Example:
        >>> layer = Rank1LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True, members=3)
        >>> output, (h, c) = layer(torch.randn(12, 5, 4))
        >>> output.shape, h.shape
        (torch.Size([12, 5, 12]), torch.Size([4, 12, 6]))
    """


class Rank1GRU(GRUStep, _Rank1Recurrent, nn.GRU):
    """``nn.GRU`` with rank-1 factors.

    Shape:
        - Input: ``(time, members * m, input_size)`` (or batch first, or packed). Output: as ``nn.GRU``.

    Example:
        >>> output, h = Rank1GRU(4, 6, members=3)(torch.randn(5, 12, 4))
        >>> output.shape, h.shape
        (torch.Size([5, 12, 6]), torch.Size([1, 12, 6]))
    """


class Rank1RNN(RNNStep, _Rank1Recurrent, nn.RNN):
    """``nn.RNN`` (tanh or relu) with rank-1 factors.

    Shape:
        - Input: ``(time, members * m, input_size)`` (or batch first, or packed). Output: as ``nn.RNN``.

    Example:
        >>> output, h = Rank1RNN(4, 6, nonlinearity="relu", members=3)(torch.randn(5, 12, 4))
        >>> output.shape
        torch.Size([5, 12, 6])
    """
