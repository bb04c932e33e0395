"""The residual network of four blocks in TensorFlow Probability's ``cifar10_bnn`` example."""

import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_count

__all__ = ["ResNet4"]


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)  # Keras's defaults; it calls this momentum 0.99


class _Block(nn.Module):
    """Pre-activation: norm, ReLU, convolution, twice; the shortcut takes the activated input, always projected."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = _norm(inputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.norm2 = _norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(x))
        y = self.conv2(F.relu(self.norm2(self.conv1(x))))
        return y + self.shortcut(x)


class ResNet4(nn.Module):
    """Four pre-activation blocks, which the k-tied Normal paper calls ResNet-18: 13 convolutions and a dense layer.

    Every layer has a bias. Batch norm is as in Keras: epsilon 0.001, and running statistics that move by 0.01 a step.
    Where a 3x3 convolution has stride 2, TensorFlow's "same" padding adds zeros at the bottom and right alone,
    and this network on all sides.

    Args:
        classes: Number of outputs.
        width: Channels of the first block; the others have 2, 4 and 8 times as many.
        channels: Colour channels of the input.

    Shape:
        - Input: ``(batch, channels, h, w)``, 32 x 32 in the paper; the last map, then 4 x 4, is averaged.
          Output: ``(batch, classes)``.

    Example:
        >>> import torch
        >>> ResNet4(width=4)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, classes: int = 10, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        check_count("classes", classes)
        check_count("width", width)
        check_count("channels", channels)
        self.stem = nn.Conv2d(channels, width, 3, 1, 1)
        self.blocks = nn.Sequential(
            _Block(width, width, 1),
            _Block(width, 2 * width, 2),
            _Block(2 * width, 4 * width, 2),
            _Block(4 * width, 8 * width, 2),
        )
        self.norm = _norm(8 * width)
        self.head = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = F.relu(self.norm(self.blocks(self.stem(x))))
        return self.head(x.mean((2, 3)))
