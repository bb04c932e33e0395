"""The networks whose price is measured, each with its rows."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from slimbayes import nets
from slimbayes._checks import check_choice

__all__ = ["CLASSES", "MEMBERS", "NETWORKS", "PLAIN_NETWORKS", "BenchNetwork", "find_network"]

CLASSES = 10
MEMBERS = 4


@dataclass(frozen=True)
class BenchNetwork:
    """A plain network and the rows that it is measured on.

    Attributes:
        name: What the command line calls it.
        title: What tables call it.
        build: Makes it from torch's global generator.
        row_shape: Of one input.
        rows: Rows of a batch; a model of K members gets rows / K examples, so that it, too, runs on this many.
        channels_last: Memory format of the weights and inputs.
        bfloat16: Forward pass and loss run under bfloat16 autocast, of the plain network as of the others.
        threads: Of torch; None for the run's.

    Example:
        >>> network = NETWORKS["mlp_512"]
        >>> network.inputs(3).shape, network.build()(network.inputs(3)).shape
        (torch.Size([3, 512]), torch.Size([3, 10]))
    """

    name: str
    title: str
    build: Callable[[], nn.Module]
    row_shape: tuple[int, ...]
    rows: int
    channels_last: bool = False
    bfloat16: bool = False
    threads: int | None = None

    def precision(self) -> AbstractContextManager[object]:
        """Return the context that forward passes run in."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16)

    @property
    def memory_format(self) -> torch.memory_format:
        """How weights and inputs of four dimensions lie in memory."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def inputs(self, rows: int | None = None, device: torch.device | str = "cpu") -> Tensor:
        """Return standard normal inputs, ``(rows, *row_shape)``, from torch's global generator.

        Args:
            rows: None for the network's own.
            device: Where to put them.
        """
        x = torch.randn(self.rows if rows is None else rows, *self.row_shape, device=device)
        return x.contiguous(memory_format=self.memory_format)

    def place(self, model: nn.Module, device: torch.device | str = "cpu") -> nn.Module:
        """Return a model on its device, its weights in the network's memory format."""
        return model.to(device).to(memory_format=self.memory_format)  # type: ignore[call-overload]


def conv_net(width: int) -> nn.Sequential:
    """Return six 3x3 convolutions in three stages, each with batch norm and ReLU, pooling and a linear head.

    Args:
        width: Channels of the first stage; the next two have twice and four times as many, and a stride of 2.

    Shape:
        - Input: ``(batch, 3, height, width)``. Output: ``(batch, 10)``.

    Example:
        >>> conv_net(2)(torch.randn(5, 3, 8, 8)).shape
        torch.Size([5, 10])
    """
    layers: list[nn.Module] = []
    inputs = 3
    for stage, outputs in enumerate((width, 2 * width, 4 * width)):
        for position in range(2):
            stride = 2 if stage and not position else 1
            layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def dense_net(width: int) -> nn.Sequential:
    """Return an MLP of width-width-width-10 with ReLU.

    Example:
        >>> dense_net(4)(torch.randn(5, 4)).shape
        torch.Size([5, 10])
    """
    hidden = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, CLASSES))


IMAGE = (3, 32, 32)

#: In float32, with the run's number of threads, by name; other libraries are measured on these.
PLAIN_NETWORKS = {
    network.name: network
    for network in (
        BenchNetwork("conv_16", "conv 16", partial(conv_net, 16), IMAGE, 128, True),
        BenchNetwork("conv_64", "conv 64", partial(conv_net, 64), IMAGE, 64, True),
        BenchNetwork("mlp_512", "MLP 512", partial(dense_net, 512), (512,), 256),
        BenchNetwork("mlp_1024", "MLP 1024", partial(dense_net, 1024), (1024,), 512),
        BenchNetwork("wrn_16_4", "WRN-16-4", partial(nets.wide_resnet, "16-4", CLASSES), IMAGE, 32, True),
    )
}
RESNET = partial(nets.CifarResNet, CLASSES, 20)
#: All of the table, by name. One network in three ways shows what precision and threads change.
NETWORKS = PLAIN_NETWORKS | {
    network.name: network
    for network in (
        BenchNetwork("resnet_20", "ResNet-20", RESNET, IMAGE, 128, True),
        BenchNetwork("resnet_20_bf16", "ResNet-20, bf16", RESNET, IMAGE, 128, True, bfloat16=True),
        BenchNetwork("resnet_20_2", "ResNet-20, 2 threads", RESNET, IMAGE, 128, True, threads=2),
    )
}


def find_network(
    network: str | BenchNetwork, argument: str, known: dict[str, BenchNetwork] | None = None
) -> BenchNetwork:
    """Return a network by its name; one that is given as such is returned.

    Args:
        network: A network or its name.
        argument: The argument's name, for the error message.
        known: Networks by name; None for ``NETWORKS``.

    Example:
        >>> find_network("mlp_512", "networks").rows
        256
    """
    if isinstance(network, BenchNetwork):
        return network
    known = NETWORKS if known is None else known
    check_choice(argument, network, known)
    return known[network]
