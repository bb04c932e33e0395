"""The residual networks of 6n + 2 layers for small images (He et al. 2016, section 4.2)."""

import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_count

__all__ = ["CifarResNet"]


class _Block(nn.Module):
    """Two 3x3 convolutions with batch norm; the shortcut has no parameters (the paper's option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.more:  # channels of zeros on both sides
            x = F.pad(x, (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return F.relu(y + x)


class CifarResNet(nn.Module):
    """ResNet-20, 32, 44, 56 or 110: three stages of n blocks, with 1, 2 and 4 times the width.

    Parameters have the names that public weights for CIFAR-10 have (``conv1``, ``bn1``, ``layer1.0.conv1``, ...,
    ``linear``); these were trained with ``normalise="imagenet"``.

    Args:
        classes: Number of outputs.
        depth: Layers, 6n + 2.
        width: Channels of the first stage.
        channels: Colour channels of the input.

    Shape:
        - Input: ``(batch, channels, h, w)``, 32 x 32 in the paper. Output: ``(batch, classes)``.

    Example:
        >>> import torch
        >>> net = CifarResNet(depth=20)
        >>> net(torch.randn(2, 3, 32, 32)).shape, sum(p.numel() for p in net.parameters())
        (torch.Size([2, 10]), 269722)
    """

    def __init__(self, classes: int = 10, depth: int = 20, width: int = 16, channels: int = 3) -> None:
        super().__init__()
        check_count("classes", classes)
        check_count("width", width)
        check_count("channels", channels)
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"Expected argument `depth` to be 6n + 2, such as 20 or 56, but got {depth}.")
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks = (depth - 2) // 6
        self.layer1 = _stage(width, width, blocks, 1)
        self.layer2 = _stage(width, 2 * width, blocks, 2)
        self.layer3 = _stage(2 * width, 4 * width, blocks, 2)
        self.linear = nn.Linear(4 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="linear")
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    return nn.Sequential(_Block(inputs, outputs, stride), *(_Block(outputs, outputs, 1) for _ in range(blocks - 1)))
