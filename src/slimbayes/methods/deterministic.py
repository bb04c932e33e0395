"""A network as it is, with one draw: what every other method is compared with."""

from typing import Any

from torch import nn

from slimbayes.conversion import Conversion, Part, all_parameters, copy_of, own_parameters
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["deterministic"]


def _rebuild(net: nn.Module, batch_dim: int, **others: Any) -> BayesianModel:
    return deterministic(net, batch_dim=batch_dim)


@register_method(
    title="deterministic",
    rebuild=_rebuild,
    plain_members=True,
)
def deterministic(net: nn.Module, *, batch_dim: int = 0) -> BayesianModel:
    """Wrap a copy of a network, so that it trains, predicts and is stored like the other methods.

    Args:
        net: Any network.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.

    Returns:
        A ``BayesianModel`` of one member with one draw and no KL.

    Example:
        >>> import torch
        >>> model = deterministic(nn.Linear(8, 3))
        >>> model(torch.randn(5, 8)).shape, model.kl().item()
        (torch.Size([1, 5, 3]), 0.0)
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"Expected argument `net` to be a torch.nn.Module, but got {type(net).__name__}.")
    conversion = Conversion(copy_of(net), all_parameters(net))
    for name, module in net.named_modules():
        if size := own_parameters(module):
            reason = "the method leaves every weight a point estimate"
            conversion.parts.append(Part(name, type(module).__name__, False, reason, size, size))
    return BayesianModel(
        conversion, "deterministic", {"noise": "example", "freeze_base": False, "batch_dim": batch_dim}
    )
