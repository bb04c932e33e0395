"""The LeNet of the k-tied Normal paper: two convolutions and two dense layers."""

from collections.abc import Sequence

from torch import nn

from slimbayes._checks import check_count

__all__ = ["LeNet"]


class LeNet(nn.Sequential):
    """Convolutions of 32 and 64 channels, each with ReLU and 2x2 max-pooling, then dense layers of 512 and ``classes``.

    The paper's text (appendix D.1) says 3x3 kernels, but its parameter counts are those of 5x5 kernels with
    "same" padding, which are therefore the default.

    Args:
        classes: Number of outputs.
        channels: Colour channels of the input.
        size: Height and width of the input, or one number for both.
        kernel: Height and width of the convolutions' kernels.
        width: Channels of the first convolution; the second has twice, the dense layer 16 times as many.

    Shape:
        - Input: ``(batch, channels, height, width)``. Output: ``(batch, classes)``.

    Example:
        >>> import torch
        >>> net = LeNet()
        >>> net(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 100])
        >>> sum(p.numel() for p in net.parameters())
        2202660
    """

    def __init__(
        self,
        classes: int = 100,
        channels: int = 3,
        size: int | Sequence[int] = 32,
        kernel: int = 5,
        width: int = 32,
    ) -> None:
        sides = [*size] if isinstance(size, Sequence) else [size, size]
        check_count("classes", classes)
        check_count("channels", channels)
        if len(sides) != 2:
            raise ValueError(f"Expected argument `size` to be a height and a width, but got {size!r}.")
        for side in sides:
            check_count("size", side, 4, "Two poolings halve it twice.")
        check_count("kernel", kernel)
        check_count("width", width)
        super().__init__(
            nn.Conv2d(channels, width, kernel, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, kernel, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * width * (sides[0] // 4) * (sides[1] // 4), 16 * width),
            nn.ReLU(),
            nn.Linear(16 * width, classes),
        )
