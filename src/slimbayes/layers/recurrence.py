"""The recurrences of torch's LSTM, GRU and RNN, with kernels that differ from row to row.

Torch's fused kernels take one weight for the whole batch; where rows differ, the loop over time is our own.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from slimbayes.layers.base import BayesianLayer

__all__ = ["GRUStep", "Kernel", "LSTMStep", "RNNStep", "Recurrence", "State"]

State = tuple[Tensor, ...]
#: A linear map of ``(*, rows, in)`` to ``(*, rows, out)``, bias included.
Kernel = Callable[[Tensor], Tensor]


class Recurrence(BayesianLayer, nn.RNNBase):
    """What recurrent layers share; a subclass adds its kernels and one of the steps below."""

    def suffixes(self) -> Iterator[str]:
        """Yield torch's suffix of each layer and direction, such as ``l0`` and ``l0_reverse``."""
        for layer in range(self.num_layers):
            yield f"l{layer}"
            if self.bidirectional:
                yield f"l{layer}_reverse"

    def flatten_parameters(self) -> None:
        """Do nothing: there is no fused kernel to lay the weights out for."""

    @abstractmethod
    def kernel(self, name: str, suffix: str, rows: int) -> Kernel:
        """Return the map of one kernel (``"ih"``, ``"hh"`` or ``"hr"``) with what was drawn for this pass."""

    @abstractmethod
    def step(self, inputs: Tensor, recurrent: Tensor, state: State, project: Kernel | None) -> State:
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
        initial = self._initial_state(hx, x, rows)
        weights = self.common_weights() if lengths is None else None
        run = self._loop(x, initial, lengths) if weights is None else self._fused(x, initial, weights)
        output, final_state = run
        return self._as_given(output, input), final_state if len(final_state) > 1 else final_state[0]

    def common_weights(self) -> list[Tensor] | None:
        """Return the weights in torch's order if all rows have the same ones in this pass, else None."""
        return None

    def _fused(self, x: Tensor, initial: State, weights: list[Tensor]) -> tuple[Tensor, State]:
        """Run torch's own kernel, several times faster than a loop."""
        kernels: dict[str, Any] = {
            "LSTM": torch.lstm,
            "GRU": torch.gru,
            "RNN_TANH": torch.rnn_tanh,
            "RNN_RELU": torch.rnn_relu,
        }
        state = initial if len(initial) > 1 else initial[0]
        shape = (self.num_layers, self.dropout, self.training, self.bidirectional)
        output, *final = kernels[self.mode](x, state, weights, self.bias, *shape, False)
        return output, tuple(final)

    def _loop(self, x: Tensor, initial: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        states = list(zip(*initial, strict=True))
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
        return x, tuple(torch.stack(parts) for parts in zip(*finals, strict=True))

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

    def _initial_state(self, hx: Any, x: Tensor, rows: int) -> State:
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
        return parts

    def _run(self, x: Tensor, suffix: str, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        steps, rows = x.shape[:2]
        inputs = self.kernel("ih", suffix, rows)(x)
        recurrent = self.kernel("hh", suffix, rows)
        project = self.kernel("hr", suffix, rows) if self.proj_size else None
        times = range(steps - 1, -1, -1) if suffix.endswith("reverse") else range(steps)
        outputs: list[Tensor] = []
        for t in times:
            new = self.step(inputs[t], recurrent(state[0]), state, project)
            if lengths is not None:  # a sequence that has ended, or not begun backwards, keeps its state
                running = (t < lengths).unsqueeze(1)
                new = tuple(torch.where(running, a, b) for a, b in zip(new, state, strict=True))
            state = new
            outputs.append(state[0])
        if suffix.endswith("reverse"):
            outputs.reverse()
        return torch.stack(outputs), state


class LSTMStep:
    """The LSTM's cell."""

    hidden_size: int
    proj_size: int

    def state_sizes(self) -> tuple[int, ...]:
        """Return the widths of h (projected if asked for) and c."""
        return (self.proj_size or self.hidden_size, self.hidden_size)

    def step(self, inputs: Tensor, recurrent: Tensor, state: State, project: Kernel | None) -> State:
        """Take one step of the LSTM, gates in torch's order i, f, g, o."""
        i, f, g, o = (inputs + recurrent).chunk(4, -1)
        cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        return hidden if project is None else project(hidden), cell


class GRUStep:
    """The GRU's cell."""

    def step(self, inputs: Tensor, recurrent: Tensor, state: State, project: Kernel | None) -> State:
        """Take one step of the GRU, gates in torch's order r, z, n."""
        (reset_x, update_x, new_x), (reset_h, update_h, new_h) = inputs.chunk(3, -1), recurrent.chunk(3, -1)
        update = (update_x + update_h).sigmoid()
        new = (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()
        return ((1 - update) * new + update * state[0],)


class RNNStep:
    """The cell of the simple recurrence."""

    mode: str

    def step(self, inputs: Tensor, recurrent: Tensor, state: State, project: Kernel | None) -> State:
        """Take one step of the simple recurrence."""
        total = inputs + recurrent
        return (total.relu() if self.mode == "RNN_RELU" else total.tanh(),)
