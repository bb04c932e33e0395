"""Networks for trials of whole experiments in seconds, on data that need no files."""

from torch import Tensor

from slimbayes.data.dataset import Task
from slimbayes.nets.lstm import SequenceClassifier

__all__ = ["digits_lstm"]

#: Shades of a pixel in scikit-learn's digits.
SHADES = 17


class _PixelReader(SequenceClassifier):
    """Reads an image pixel by pixel, each shade a token."""

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        return super().forward((images.flatten(1) * (SHADES - 1)).round().long())


def digits_lstm(task: Task, hidden: int = 8) -> SequenceClassifier:
    """Return the text classifier of the k-tied paper, made small, for images of digits.

    Args:
        task: Digits, with values from 0 to 1.
        hidden: Width of the embedding and of the LSTM.

    Example:
        >>> import torch
        >>> digits_lstm(Task("categorical", 10, (1, 8, 8)))(torch.rand(3, 1, 8, 8)).shape
        torch.Size([3, 10])
    """
    return _PixelReader(SHADES, hidden, hidden, task.outputs)
