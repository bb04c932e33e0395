"""An LSTM, its loop over time without factors, and with them: what the loop costs, and what factors add to it."""

from functools import partial
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import CLASSES, MEMBERS, BenchNetwork
from benchmarks.price_rows import TRAIN, Row, rank1
from slimbayes.layers.recurrence import Kernel, LSTMStep, Recurrence

__all__ = ["LSTM", "LSTM_ROWS", "plain_loop"]

UNITS, STEPS, ROWS = 128, 80, 32


class LastOutput(nn.Module):
    """An LSTM and a linear head on its last output.

    Shape:
        - Input: ``(batch, time, units)``. Output: ``(batch, 10)``.
    """

    def __init__(self, units: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(units, units, batch_first=True)
        self.head = nn.Linear(units, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        output, _ = self.lstm(x)
        return self.head(output[:, -1])


class _LoopLSTM(LSTMStep, Recurrence, nn.LSTM):
    """``nn.LSTM`` run by the loop that rank-1 layers use, with its own plain kernels."""

    def set_up(self, *args: Any, **kwargs: Any) -> None:
        """Add nothing."""

    def kernel(self, name: str, suffix: str, rows: int) -> Kernel:
        """Return the plain linear map."""
        weight, bias = (getattr(self, f"{part}_{name}_{suffix}") for part in ("weight", "bias"))
        return partial(F.linear, weight=weight, bias=bias)


def plain_loop(net: nn.Module) -> nn.Module:
    """Change the network's LSTM, in place, to run in a loop of Python.

    Example:
        >>> import torch
        >>> x, net = torch.randn(3, 5, 4), LastOutput(4)
        >>> expected = net(x)
        >>> torch.allclose(plain_loop(net)(x), expected, atol=1e-6)
        True
    """
    _LoopLSTM.adopt(cast(LastOutput, net).lstm)
    return net


LSTM = BenchNetwork("lstm_128", f"LSTM {UNITS} x {STEPS} steps", partial(LastOutput, UNITS), (STEPS, UNITS), ROWS)

#: By name. The loop is Python's, with or without factors; how much slower it is than torch's kernel is stated only.
LSTM_ROWS = {
    row.name: row
    for row in (
        Row("plain loop", "our loop without factors, train step", TRAIN, plain_loop),
        Row("nn.LSTM", "torch's kernel, train step", TRAIN),
        Row("rank1 loop", "rank1, noise per example, train step", TRAIN, rank1, MEMBERS, also_against="nn.LSTM"),
    )
}
