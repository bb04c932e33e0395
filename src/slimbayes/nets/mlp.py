"""A multi-layer perceptron."""

from collections.abc import Sequence

from torch import nn

__all__ = ["MLP"]


class MLP(nn.Sequential):
    """Linear layers with ReLU between them; inputs of more dimensions are flattened.

    Args:
        inputs: Number of input features.
        hidden: Width of each hidden layer.
        outputs: Number of outputs.

    Example:
        >>> import torch
        >>> MLP(784, [400, 400], 10)(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        layers: list[nn.Module] = [nn.Flatten()]
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        super().__init__(*layers, nn.Linear(inputs, outputs))
