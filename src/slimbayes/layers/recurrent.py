"""Rank-1 LSTM, GRU and RNN: factors on the input and recurrent kernels, drawn once per sequence.

The loop over time is our own, since torch's fused kernels take one weight for the whole batch.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from slimbayes.layers.base import BayesianLayer, Pick, member_bias, plain_base
from slimbayes.layers.factor import Factor, FactorOptions
from slimbayes.layers.rank1 import become_plain, fold_kernel

__all__ = ["Rank1GRU", "Rank1LSTM", "Rank1RNN"]

State = tuple[Tensor, ...]


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


class _Rank1Recurrent(BayesianLayer, nn.RNNBase):
    """What the three recurrent layers share; a subclass adds one step of its cell."""

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
            place: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
            outputs, inputs = weight.shape
            if options.has("input"):
                summed = options.factors == "input"
                self.factors[f"{kernel}_{suffix}_input"] = Factor(inputs, options, summed, **place)
            if options.has("output"):
                self.factors[f"{kernel}_{suffix}_output"] = Factor(outputs, options, True, **place)
            if self.bias and options.member_bias:
                bias = f"bias_{kernel}_{suffix}"
                setattr(self, bias, member_bias(getattr(self, bias), options.members, memo))

    def suffixes(self) -> Iterator[str]:
        """Yield torch's suffix of each layer and direction, such as ``l0`` and ``l0_reverse``."""
        for layer in range(self.num_layers):
            yield f"l{layer}"
            if self.bidirectional:
                yield f"l{layer}_reverse"

    def kernels(self) -> Iterator[tuple[str, str]]:
        """Yield each kernel that has factors; the LSTM's projection has none."""
        for suffix in self.suffixes():
            yield "ih", suffix
            yield "hh", suffix

    def flatten_parameters(self) -> None:
        """Do nothing: there is no fused kernel to lay the weights out for."""

    def drawn(self, name: str, rows: int) -> tuple[Tensor, ...] | None:
        """Return a factor's draws, one row of values for each row of the batch."""
        if name not in self.factors:
            return None
        factor = self.factors[name]
        assert isinstance(factor, Factor)
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

    @abstractmethod
    def step(self, inputs: Tensor, recurrent: Tensor, state: State, suffix: str) -> State:
        """Return the next state from the two kernels' answers; the first entry is the output."""

    def state_sizes(self) -> tuple[int, ...]:
        """Return the width of each part of the state."""
        return (self.hidden_size,)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Run the sequences, as the torch class does.

        Args:
            input: ``(time, rows, features)``, ``(rows, time, features)`` if ``batch_first``, or packed.
            hx: Initial state, as the torch class takes it.
        """
        self.enter()
        x, lengths = self._time_first(input)
        rows = self.rows_of(x, 1)
        states = self._initial_states(hx, x, rows)
        finals: list[State] = []
        directions = 2 if self.bidirectional else 1
        suffixes = list(self.suffixes())
        for layer in range(self.num_layers):
            outputs = []
            for suffix in suffixes[layer * directions : (layer + 1) * directions]:
                output, final = self._run(x, suffix, states[len(finals)], lengths)
                outputs.append(output)
                finals.append(final)
            x = torch.cat(outputs, -1)
            if self.dropout and self.training and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout)
        final_state = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
        return self._as_given(x, input), final_state if len(final_state) > 1 else final_state[0]

    def _time_first(self, given: Any) -> tuple[Tensor, Tensor | None]:
        if isinstance(given, PackedSequence):
            x, lengths = pad_packed_sequence(given)
            lengths = lengths.to(x.device)
        elif given.dim() == 3:
            x, lengths = given.transpose(0, 1) if self.batch_first else given, None
        else:
            raise ValueError(
                f"Layer {self.label} expected a batch of sequences (3 dimensions), but got shape "
                f"{tuple(given.shape)}. Give it a batch, even of one."
            )
        if x.shape[2] != self.input_size:
            raise ValueError(f"Layer {self.label} expected {self.input_size} features, but got {x.shape[2]}.")
        return x, lengths

    def _as_given(self, output: Tensor, given: Any) -> Any:
        if not isinstance(given, PackedSequence):
            return output.transpose(0, 1) if self.batch_first else output
        if given.sorted_indices is not None:
            output = output.index_select(1, given.sorted_indices)
        # batch_sizes[t] rows are still running at time t, so the i-th longest ends at this many steps.
        lengths = (given.batch_sizes.unsqueeze(0) > torch.arange(output.shape[1]).unsqueeze(1)).sum(1)
        data = pack_padded_sequence(output, lengths).data
        return PackedSequence(data, given.batch_sizes, given.sorted_indices, given.unsorted_indices)

    def _initial_states(self, hx: Any, x: Tensor, rows: int) -> list[State]:
        count = self.num_layers * (2 if self.bidirectional else 1)
        shapes = [(count, rows, size) for size in self.state_sizes()]
        if hx is None:
            parts = tuple(x.new_zeros(shape) for shape in shapes)
        else:
            parts = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        if [tuple(part.shape) for part in parts] != shapes:
            raise ValueError(
                f"Layer {self.label} expected argument `hx` to have shapes {shapes}, but got "
                f"{[tuple(part.shape) for part in parts]}."
            )
        return [tuple(part[i] for part in parts) for i in range(count)]

    def _run(self, x: Tensor, suffix: str, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        steps, rows = x.shape[:2]
        inputs = _Kernel(self, "ih", suffix, rows)(x)
        recurrent = _Kernel(self, "hh", suffix, rows)
        times = range(steps - 1, -1, -1) if suffix.endswith("reverse") else range(steps)
        outputs: list[Tensor] = []
        for t in times:
            new = self.step(inputs[t], recurrent(state[0]), state, suffix)
            if lengths is not None:  # a sequence that has ended, or not begun backwards, keeps its state
                running = (t < lengths).unsqueeze(1)
                new = tuple(torch.where(running, a, b) for a, b in zip(new, state, strict=True))
            state = new
            outputs.append(state[0])
        if suffix.endswith("reverse"):
            outputs.reverse()
        return torch.stack(outputs), state

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
                    setattr(self, f"bias_{kernel}_{suffix}", nn.Parameter(bias.detach().clone()))
        become_plain(self, ("factors",), ("additive", "members"))
        return self


class Rank1LSTM(_Rank1Recurrent, nn.LSTM):
    """``nn.LSTM`` with rank-1 factors: one s for all four gates, r distinct for each.

    Shape:
        - Input: ``(time, members * m, input_size)`` (or batch first, or packed). Output: as ``nn.LSTM``.

    Example:
        >>> layer = Rank1LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True, members=3)
        >>> output, (h, c) = layer(torch.randn(12, 5, 4))
        >>> output.shape, h.shape
        (torch.Size([12, 5, 12]), torch.Size([4, 12, 6]))
    """

    def state_sizes(self) -> tuple[int, ...]:
        """Return the widths of h (projected if asked for) and c."""
        return (self.proj_size or self.hidden_size, self.hidden_size)

    def step(self, inputs: Tensor, recurrent: Tensor, state: State, suffix: str) -> State:
        """Take one step of the LSTM, gates in torch's order i, f, g, o."""
        i, f, g, o = (inputs + recurrent).chunk(4, -1)
        cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        if self.proj_size:
            hidden = F.linear(hidden, getattr(self, f"weight_hr_{suffix}"))
        return hidden, cell


class Rank1GRU(_Rank1Recurrent, nn.GRU):
    """``nn.GRU`` with rank-1 factors.

    Shape:
        - Input: ``(time, members * m, input_size)`` (or batch first, or packed). Output: as ``nn.GRU``.

    Example:
        >>> output, h = Rank1GRU(4, 6, members=3)(torch.randn(5, 12, 4))
        >>> output.shape, h.shape
        (torch.Size([5, 12, 6]), torch.Size([1, 12, 6]))
    """

    def step(self, inputs: Tensor, recurrent: Tensor, state: State, suffix: str) -> State:
        """Take one step of the GRU, gates in torch's order r, z, n."""
        (reset_x, update_x, new_x), (reset_h, update_h, new_h) = inputs.chunk(3, -1), recurrent.chunk(3, -1)
        update = (update_x + update_h).sigmoid()
        new = (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()
        return ((1 - update) * new + update * state[0],)


class Rank1RNN(_Rank1Recurrent, nn.RNN):
    """``nn.RNN`` (tanh or relu) with rank-1 factors.

    Shape:
        - Input: ``(time, members * m, input_size)`` (or batch first, or packed). Output: as ``nn.RNN``.

    Example:
        >>> output, h = Rank1RNN(4, 6, nonlinearity="relu", members=3)(torch.randn(5, 12, 4))
        >>> output.shape
        torch.Size([5, 12, 6])
    """

    def step(self, inputs: Tensor, recurrent: Tensor, state: State, suffix: str) -> State:
        """Take one step of the simple recurrence."""
        total = inputs + recurrent
        return (total.relu() if self.mode == "RNN_RELU" else total.tanh(),)
