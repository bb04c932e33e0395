"""ResNet-50 v1.5 for large images (He et al. 2016; the stride is in the 3x3 convolution)."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["ResNet", "resnet50"]


class _Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, each with batch norm; four times as many channels come out."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A bottleneck residual network.

    Args:
        blocks: Number of blocks in each of the four stages.
        classes: Number of outputs.
        width: Channels of the first stage's bottleneck.
        channels: Colour channels of the input.

    Shape:
        - Input: ``(batch, channels, h, w)``. Output: ``(batch, classes)``.

    Example:
        >>> import torch
        >>> ResNet([1, 1, 1, 1], classes=5, width=8)(torch.randn(2, 3, 64, 64)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self, blocks: Sequence[int] = (3, 4, 6, 3), classes: int = 1000, width: int = 64, channels: int = 3
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(width)
        inputs, stages = width, []
        for stage, count in enumerate(blocks):
            layers = []
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(_Bottleneck(inputs, width * 2**stage, stride))
                inputs = width * 2**stage * _Bottleneck.expansion
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(self.stages(x).mean((2, 3)))


def resnet50(classes: int = 1000) -> ResNet:
    """Return ResNet-50.

    Example:
        >>> import torch
        >>> with torch.device("meta"):
        ...     sum(p.numel() for p in resnet50().parameters())
        25557032
    """
    return ResNet((3, 4, 6, 3), classes)
