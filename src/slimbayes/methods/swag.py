"""SWAG (Maddox et al. 2019), and MultiSWAG (Wilson and Izmailov 2020) for several networks."""

from typing import Any

from slimbayes._checks import check_count
from slimbayes.ensembles._states import StateLayout
from slimbayes.ensembles._statistics import running_norms
from slimbayes.ensembles.swag import SwagPosterior
from slimbayes.methods._whole_networks import Source, members_of, saved_networks, whole_model
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["swag"]


def _rebuild(net: Any, **options: Any) -> BayesianModel:
    return swag(**saved_networks(net, options))


@register_method(
    title="SWAG",
    rebuild=_rebuild,
    of_networks=True,
    finish=lambda elbo, batches, *, draws, seed, **_: elbo.model.refresh(batches, draws, seed),
)
def swag(
    networks: Source,
    members: int | None = None,
    *,
    rank: int = 20,
    scale: float = 1.0,
    vectorised: bool | None = None,
    batch_dim: int = 0,
) -> BayesianModel:
    """Make a model whose draws are around the mean of the weights that training passes through.

    Train it as the network itself, and call ``model.collect()`` every so often in the last part of training, at a
    constant (or cyclical) learning rate. A network with batch norm then needs ``model.refresh(batches)``. The Gaussian
    is that of ``slimbayes.ensembles.swag.SwagPosterior``, over all parameters.

    Args:
        networks: One network; or several of one architecture, or a function that builds one, for MultiSWAG: each
            member has a Gaussian of its own.
        members: Members K, with a function; a list says by itself how many.
        rank: Deviations to keep, R of the low-rank covariance; 0 for SWAG-Diagonal.
        scale: Multiplies each draw's distance from the mean; 1 is the paper's.
        vectorised: See ``sb.deep_ensemble``.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.

    Returns:
        A ``BayesianModel``. In training mode the networks themselves run; in evaluation, draws.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = swag(nn.Linear(8, 3), rank=2)
        >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> for _ in range(3):
        ...     model(torch.randn(5, 8)).square().mean().backward()
        ...     optimiser.step()
        ...     model.collect()
        >>> model.predict(torch.randn(5, 8), samples=30).draws.shape
        torch.Size([30, 5, 3])
    """
    check_count("rank", rank, 0, "Use 0 for a diagonal covariance.")
    nets = members_of(networks, members)
    layout = StateLayout(nets[0])
    has_norms = bool(running_norms(nets[0]))
    posterior = SwagPosterior(len(nets), layout.vector(nets[0]), layout.parameters, rank, has_norms, scale)
    options = {"rank": rank, "scale": scale, "batch_dim": batch_dim}
    return whole_model(nets, "swag", options, posterior, vectorised)
