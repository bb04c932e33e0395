"""A recurrent network over real-valued time series."""

from torch import Tensor, nn

from slimbayes._checks import check_count

__all__ = ["SeriesClassifier"]


class SeriesClassifier(nn.Module):
    """An LSTM whose last output is read by a dense layer.

    Args:
        inputs: Features at each time.
        hidden: Width of the LSTM.
        outputs: Number of outputs.
        layers: LSTMs on top of each other.

    Shape:
        - Input: ``(batch, time, inputs)``. Output: ``(batch, outputs)``.

    Example:
        >>> import torch
        >>> SeriesClassifier(inputs=7, hidden=16)(torch.randn(4, 48, 7)).shape
        torch.Size([4, 1])
    """

    def __init__(self, inputs: int, hidden: int = 64, outputs: int = 1, layers: int = 1) -> None:
        super().__init__()
        for name, value in {"inputs": inputs, "hidden": hidden, "outputs": outputs, "layers": layers}.items():
            check_count(name, value)
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, series: Tensor) -> Tensor:
        """Return the head's outputs at the last time."""
        return self.head(self.lstm(series)[0][:, -1])
