"""Deep ensembles (Lakshminarayanan et al. 2017): members that share nothing but the data."""

import copy
import warnings
from typing import Any

import torch
from torch import nn

from slimbayes.conversion import copy_of
from slimbayes.ensembles.networks import Networks
from slimbayes.methods._whole_networks import Source, members_of, saved_networks, whole_model
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["add_member", "deep_ensemble", "ensemble_of"]

#: Members that a function builds, if nobody says how many; other methods have as many.
MEMBERS = 4


@register_method(
    title="deep ensemble",
    rebuild=lambda net, **options: ensemble_of(**saved_networks(net, options)),
    of_networks=True,
    plain_members=True,
)
def deep_ensemble(
    networks: Source,
    members: int | None = None,
    *,
    train_on: str = "tile",
    vectorised: bool | None = None,
    batch_dim: int = 0,
) -> BayesianModel:
    """Make an ensemble of independent networks.

    Trained together on the average of the members' log-likelihoods (``objective="average"``), each gets the gradient
    that it would get alone: what is minimised is the sum over members. What they share, such as the learned noise of
    a Gaussian likelihood, sees all of them. The other objectives, such as ``"mixture"``, train the ensemble's
    prediction jointly: there the members are no longer independent.

    Members can also be trained apart, on several cores or machines: ``slimbayes.training.fit_ensemble``.

    Args:
        networks: A list of networks, which may differ in architecture but not in their outputs; or a function that
            builds one with new random weights.
        members: Members K, with a function: 4 if not given. A list says by itself how many.
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
    if members is None and callable(networks) and not isinstance(networks, nn.Module):
        members = MEMBERS
    model = ensemble_of(networks, members, train_on=train_on, vectorised=vectorised, batch_dim=batch_dim)
    assert isinstance(model.net, Networks)
    first, *others = model.net.networks
    if train_on == "tile" and any(_equal(first, other) for other in others):
        warnings.warn(
            "Some members start from equal weights. As they see the same batches, they stay equal unless the networks "
            "draw random numbers in training: give networks with different weights, or train_on='split'.",
            stacklevel=2,
        )
    return model


def ensemble_of(
    networks: Source, members: int | None = None, *, vectorised: bool | None = None, **options: Any
) -> BayesianModel:
    """Return the ensemble of any networks, even of equal ones, whose weights are yet to be loaded."""
    return whole_model(members_of(networks, members), "deep_ensemble", options, vectorised=vectorised)


def _equal(one: nn.Module, two: nn.Module) -> bool:
    ours, theirs = list(one.parameters()), list(two.parameters())
    return len(ours) == len(theirs) and all(
        not x.is_meta and torch.equal(x, y) for x, y in zip(ours, theirs, strict=True)
    )


def add_member(model: BayesianModel, network: nn.Module) -> BayesianModel:
    """Return a deep ensemble with one more member; the given one is not changed.

    Members are chosen or left out likewise: ``sb.deep_ensemble([model.member(0), model.member(2)])``.

    Args:
        model: The ensemble, whose members, likelihood, options, device and mode the new one has.
        network: The new member; a copy of it is taken.

    Example:
        >>> model = deep_ensemble(lambda: nn.Linear(8, 3), members=4)
        >>> add_member(model, nn.Linear(8, 3)).members
        5
    """
    net = getattr(model, "net", None)
    if not isinstance(net, Networks) or net.posterior is not None:
        made = f"one made by {model.method}" if isinstance(model, BayesianModel) else type(model).__name__
        raise TypeError(f"Expected argument `model` to be made by sb.deep_ensemble, but got {made}.")
    if not isinstance(network, nn.Module):
        raise TypeError(f"Expected argument `network` to be a torch.nn.Module, but got {type(network).__name__}.")
    own = {name: model.options[name] for name in ("train_on", "vectorised", "batch_dim")}
    new = ensemble_of([*net.networks, copy_of(network).to(model.device)], **own)
    new.likelihood = copy.deepcopy(model.likelihood)
    return new.train(model.training)
