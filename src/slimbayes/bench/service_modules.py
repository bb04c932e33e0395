"""What a service runs: modules from inputs to class probabilities, for torch, its compilers and ONNX."""

import torch
from torch import Tensor, nn

import slimbayes as sb

__all__ = ["MODULES", "PerExample", "Plain", "Served", "build_modules"]


class Plain(nn.Module):
    """A plain network's class probabilities, in evaluation mode.

    Shape:
        - Input: the network's. Output: ``(batch, classes)``.
    """

    random = False
    draws = 1

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return self.net(x).softmax(-1)


class Served(nn.Module):
    """A model with one draw of its random parts held as buffers: the same answer to the same question.

    Args:
        model: A model of classes; it is put into evaluation mode.
        draw: From ``model.draw``.

    Shape:
        - Input: the network's. Output: ``(batch, classes)``, the mixture of the draws.

    Example:
        >>> model = sb.rank1(nn.Linear(8, 3), members=4)
        >>> served, x = Served(model, model.draw()), torch.randn(5, 8)
        >>> served(x).shape, torch.equal(served(x), served(x))
        (torch.Size([5, 3]), True)
    """

    random = False

    def __init__(self, model: sb.BayesianModel, draw: dict[str, Tensor]) -> None:
        super().__init__()
        self.model = model
        self.eval()
        self.draws = next(iter(draw.values())).shape[0]
        self.names = {f"draw_{place}": name for place, name in enumerate(draw)}  # buffers' names have no dots
        for buffer, name in self.names.items():
            self.register_buffer(buffer, draw[name].detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        draw = {name: getattr(self, buffer) for buffer, name in self.names.items()}
        return self.model(x, draw=draw).softmax(-1).mean(0)


class PerExample(nn.Module):
    """A model that draws anew for each example of each request.

    Shape:
        - Input: the network's. Output: ``(batch, classes)``, the mixture of one draw of each member.
    """

    random = True

    def __init__(self, model: sb.BayesianModel) -> None:
        super().__init__()
        self.model = model
        self.draws = model.members
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return self.model(x, noise="example").softmax(-1).mean(0)


#: In this order; the first is the baseline.
MODULES = ("plain", "rank1 held draw", "rank1 per example")


def build_modules(net: nn.Module, members: int) -> dict[str, Plain | Served | PerExample]:
    """Return what is served of one network, by its name in ``MODULES``.

    Example:
        >>> list(build_modules(nn.Linear(8, 3), members=4))
        ['plain', 'rank1 held draw', 'rank1 per example']
    """
    model = sb.rank1(net, members=members)
    with torch.no_grad():
        draw = model.draw()
    return dict(zip(MODULES, (Plain(net), Served(model, draw), PerExample(model)), strict=True))
