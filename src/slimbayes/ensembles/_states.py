"""The state of a whole network as one vector: its parameters, then the running statistics of its norm layers."""

from typing import Any

from torch import Tensor, cat, nn, no_grad
from torch.func import functional_call


class StateLayout:
    """Where each tensor of a network's state stands in the vector; tied parameters stand there once.

    Args:
        net: The network.

    Attributes:
        parameters: Number P of parameters.
        size: P plus the number of running statistics: buffers of floating point.

    Example:
        >>> net = nn.BatchNorm1d(2)
        >>> layout = StateLayout(net)
        >>> layout.parameters, layout.size, layout.vector(net)
        (4, 8, tensor([1., 1., 0., 0., 0., 0., 1., 1.]))
    """

    def __init__(self, net: nn.Module) -> None:
        parameters = dict(net.named_parameters())
        statistics = {name: buffer for name, buffer in net.named_buffers() if buffer.is_floating_point()}
        self.shapes = {name: tensor.shape for name, tensor in (parameters | statistics).items()}
        self.parameters = sum(p.numel() for p in parameters.values())
        self.size = self.parameters + sum(b.numel() for b in statistics.values())
        first = {id(tensor): name for name, tensor in self._tensors(net).items()}
        #: Every name of each tied parameter or buffer. functional_call finds them by itself, but where a module has
        #: two names it does not put back what was there (torch 2.13).
        self.tied = {
            f"{path}.{name}" if path else name: first[id(tensor)]
            for path, module in net.named_modules()
            for name, tensor in (*module._parameters.items(), *module._buffers.items())
            if tensor is not None
        }

    @property
    def statistics(self) -> int:
        """Number of running statistics."""
        return self.size - self.parameters

    def vector(self, net: nn.Module) -> Tensor:
        """Return a network's state, ``(size,)``, without its history."""
        own = self._tensors(net)
        return cat([own[name].detach().flatten() for name in self.shapes])

    def state(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the tensors of a state vector by name.

        Args:
            vector: ``(*, size)``; leading axes are kept.
        """
        pieces = vector.split([shape.numel() for shape in self.shapes.values()], -1)
        return {
            name: piece.unflatten(-1, shape) if shape else piece.squeeze(-1)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def call(self, net: nn.Module, state: dict[str, Tensor], args: Any, kwargs: Any) -> Any:
        """Run a network with another state, whose tensors take the types of the network's own."""
        own = self._tensors(net)  # a network of several types has a vector of the widest
        state = {name: value.to(own[name].dtype) for name, value in state.items()}
        tied = {other: state[name] for other, name in self.tied.items() if name in state}
        return functional_call(net, {**state, **tied}, args, kwargs, tie_weights=False)

    def load(self, net: nn.Module, vector: Tensor) -> None:
        """Copy a state vector ``(size,)`` into a network."""
        own = self._tensors(net)
        with no_grad():
            for name, value in self.state(vector).items():
                own[name].copy_(value)

    def _tensors(self, net: nn.Module) -> dict[str, Tensor]:
        return {**dict(net.named_parameters()), **dict(net.named_buffers())}
