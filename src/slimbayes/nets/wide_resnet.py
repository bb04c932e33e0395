"""Wide residual networks for small images (Zagoruyko & Komodakis 2016), as the rank-1 paper has them."""

import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_count

__all__ = ["WideResNet", "wide_resnet"]


class _Block(nn.Module):
    """Pre-activation: norm, ReLU, convolution, twice; the shortcut takes the raw input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        y = self.conv2(F.relu(self.norm2(y)))
        return y + self.shortcut(x)


class WideResNet(nn.Module):
    """WRN-depth-width: three groups of (depth - 4) / 6 blocks, 16, 32 and 64 times ``width`` channels.

    Args:
        depth: 6 n + 4.
        width: Multiplier of the channels.
        classes: Number of outputs.
        channels: Colour channels of the input.

    Shape:
        - Input: ``(batch, channels, h, w)``. Output: ``(batch, classes)``.

    Example:
        >>> import torch
        >>> WideResNet(10, 1, 10)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, depth: int = 28, width: int = 10, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        check_count("width", width)
        check_count("classes", classes)
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"Expected argument `depth` to be 6 n + 4, such as 10, 16 or 28, but got {depth}.")
        blocks = (depth - 4) // 6
        self.stem = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        inputs, groups = 16, []
        for outputs, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
            group = [_Block(inputs, outputs, stride), *(_Block(outputs, outputs, 1) for _ in range(blocks - 1))]
            groups.append(nn.Sequential(*group))
            inputs = outputs
        self.groups = nn.Sequential(*groups)
        self.norm = nn.BatchNorm2d(inputs)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = F.relu(self.norm(self.groups(self.stem(x))))
        return self.head(x.mean((2, 3)))


def wide_resnet(name: str = "28-10", classes: int = 10, channels: int = 3) -> WideResNet:
    """Return the network of a name such as ``"28-10"`` or ``"16-4"``.

    Example:
        >>> len(wide_resnet("16-1").groups)
        3
    """
    try:
        depth, width = map(int, name.split("-"))
    except ValueError:
        raise ValueError(f"Expected argument `name` to be 'depth-width', such as '28-10', but got {name!r}.") from None
    return WideResNet(depth, width, classes, channels)
