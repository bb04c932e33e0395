"""A network for tables: numbers embedded, a perceptron or residual blocks, a head."""

import torch
from torch import Tensor, nn

from slimbayes._checks import check_count, check_number

__all__ = ["ResidualBlock", "TableMLP"]


class ResidualBlock(nn.Module):
    r"""A block of the ResNet for tables of Gorishniy et al. 2021, with a layer norm.

    .. math:: x + \text{Dropout}(W_2\, \text{Dropout}(\text{ReLU}(W_1\, \text{LayerNorm}(x))))

    The paper has a batch norm: its statistics would mix the members of a Bayesian model.

    Args:
        width: Of the input, of the hidden layer and of the output.
        dropout: Rate of both dropout layers.

    Shape:
        - Input and output: ``(batch, width)``.

    Example:
        >>> ResidualBlock(16)(torch.randn(5, 16)).shape
        torch.Size([5, 16])
    """

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the input and what two layers make of it."""
        return x + self.dropout(self.second(self.dropout(self.first(self.norm(x)).relu())))


class TableMLP(nn.Module):
    """A perceptron over the columns of a table, of which the first are numbers.

    The numbers may go through an embedding first (``PiecewiseLinear``, ``Periodic``), which gives each of them several
    features. ``stem`` is the first layer, ``body`` the hidden ones, ``head`` the last.

    Weights shared as in TabM (Gorishniy et al. 2024) are options of the method, not of the network:
    ``sb.batch_ensemble(net, members=32, include=["stem", "head*"], factors="input", init="sign")`` has random signs on
    the inputs of the first layer (the paper's TabM-mini), and shares the body. With ``apart=True`` the
    head has a layer for each output; the factors of a layer with one output are as many numbers as its weight, so that
    each member has a head of its own.

    Args:
        numbers: How many of the inputs are numbers; they come first.
        others: How many other inputs follow: truth values, categories with a column for each.
        outputs: Number of outputs.
        width: Of each hidden layer.
        depth: Hidden layers, or with ``residual`` one layer and ``depth - 1`` residual blocks.
        residual: Whether the hidden layers after the first are residual blocks.
        dropout: Rate of dropout after each hidden layer.
        embedding: Maps ``(batch, numbers)`` to ``(batch, numbers, features)``, and has an attribute ``features``.
        apart: Whether each output has a layer of its own.

    Shape:
        - Input: ``(batch, numbers + others)``. Output: ``(batch, outputs)``.

    Example:
        >>> import slimbayes as sb
        >>> net = TableMLP(numbers=3, others=4, outputs=2, width=16, depth=2)
        >>> net(torch.randn(5, 7)).shape
        torch.Size([5, 2])
        >>> sb.batch_ensemble(net, members=8, include=["stem", "head"], factors="input")(torch.randn(5, 7)).shape
        torch.Size([8, 5, 2])
    """

    def __init__(
        self,
        numbers: int,
        others: int,
        outputs: int,
        width: int = 128,
        depth: int = 2,
        residual: bool = False,
        dropout: float = 0.0,
        embedding: nn.Module | None = None,
        apart: bool = False,
    ) -> None:
        super().__init__()
        check_count("numbers", numbers, 0)
        check_count("others", others, 0)
        if numbers + others == 0:
            raise ValueError("Expected arguments `numbers` and `others` to be one in all at least, but got 0 and 0.")
        for name, value in (("outputs", outputs), ("width", width), ("depth", depth)):
            check_count(name, value)
        check_number("dropout", dropout, 0.0, 1.0, or_low=True)
        self.numbers = numbers
        self.apart = apart
        self.embedding = embedding if numbers else None
        features: int = getattr(self.embedding, "features", 1)
        self.stem = nn.Linear(numbers * features + others, width)
        body: list[nn.Module] = []
        for _ in range(depth - 1):
            if residual:
                body.append(ResidualBlock(width, dropout))
            else:
                body += [nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width)]
        last: list[nn.Module] = [nn.LayerNorm(width)] if residual else []
        self.body = nn.Sequential(*body, *last, nn.ReLU(), nn.Dropout(dropout))
        self.head: nn.Module = (
            nn.ModuleList(nn.Linear(width, 1) for _ in range(outputs)) if apart else nn.Linear(width, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        if self.embedding is not None:
            x = torch.cat([self.embedding(x[:, : self.numbers]).flatten(1), x[:, self.numbers :]], 1)
        hidden = self.body(self.stem(x))
        if isinstance(self.head, nn.ModuleList):
            return torch.cat([head(hidden) for head in self.head], 1)
        return self.head(hidden)
