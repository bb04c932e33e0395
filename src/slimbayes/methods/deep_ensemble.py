"""Deep ensembles (Lakshminarayanan et al. 2017): members that share nothing but the data."""

from slimbayes.methods.whole import Source, members_of, whole_model
from slimbayes.model import BayesianModel

__all__ = ["deep_ensemble"]


def deep_ensemble(
    networks: Source,
    members: int | None = None,
    *,
    train_on: str = "tile",
    vectorised: bool | None = None,
    batch_dim: int = 0,
) -> BayesianModel:
    """Make an ensemble of independent networks.

    Trained together, each member gets the gradient that it would get alone: the objective is the sum over members.

    Args:
        networks: A list of networks, which may differ in architecture but not in their outputs; or a function that
            builds one with new random weights.
        members: Members K, with a function; a list says by itself how many.
        train_on: In training, ``"tile"``: every member sees the whole batch. ``"split"``: the batch is dealt out
            among the members.
        vectorised: Evaluate in one pass of ``torch.func.vmap`` where the architecture allows, and one by one where
            not. None for one pass on an accelerator and one by one on a CPU, where that was measured faster.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.

    Returns:
        A ``BayesianModel`` with a draw for each member.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = deep_ensemble(lambda: nn.Linear(8, 3), members=4)
        >>> model(torch.randn(5, 8)).shape
        torch.Size([4, 5, 3])
    """
    nets = members_of(networks, members)
    return whole_model(nets, "deep_ensemble", {"train_on": train_on, "batch_dim": batch_dim}, vectorised=vectorised)
