"""A multi-layer perceptron."""

from collections.abc import Sequence

from torch import nn

from slimbayes._checks import check_count

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
        check_count("inputs", inputs)
        check_count("outputs", outputs)
        layers: list[nn.Module] = [nn.Flatten()]
        for width in hidden:
            check_count("hidden", width, remedy="Give whole numbers, such as [100, 100].")
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        super().__init__(*layers, nn.Linear(inputs, outputs))
