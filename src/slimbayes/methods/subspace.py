"""Subspace inference (Izmailov et al. 2019): the model; ``subspace_inference`` finds its posterior."""

from collections.abc import Iterable
from typing import Any

from slimbayes.ensembles._states import StateLayout
from slimbayes.ensembles._statistics import running_norms
from slimbayes.ensembles.subspace import SubspacePosterior
from slimbayes.methods._whole_networks import Source, members_of, saved_networks, whole_model
from slimbayes.methods.registry import register_method
from slimbayes.methods.subspace_inference import subspace_inference
from slimbayes.model import BayesianModel
from slimbayes.objective import ELBO

__all__ = ["subspace"]


def _finish(elbo: ELBO, batches: Iterable[Any], *, draws: int, inference: str, seed: int, quiet: bool) -> None:
    subspace_inference(elbo, batches, inference, samples=draws, seed=seed, quiet=quiet)
    elbo.model.refresh(batches, draws, seed)


def _rebuild(net: Any, **options: Any) -> BayesianModel:
    return subspace(**saved_networks(net, options))


@register_method(
    title="subspace",
    rebuild=_rebuild,
    of_networks=True,
    finish=_finish,
)
def subspace(
    networks: Source,
    members: int | None = None,
    *,
    rank: int = 5,
    keep: int = 20,
    prior_std: float = 1.0,
    temperature: float = 1.0,
    vectorised: bool | None = None,
    batch_dim: int = 0,
) -> BayesianModel:
    """Make a model whose posterior lies in the subspace of training's principal directions.

    Train it as the network itself, and call ``model.collect()`` every so often in the last part of training, at a
    constant (or cyclical) learning rate; then ``sb.subspace_inference(elbo, batches)``, which explores the subspace.
    A network with batch norm then needs ``model.refresh(batches)``. The subspace is that of
    ``slimbayes.ensembles.subspace.SubspacePosterior``.

    Args:
        networks: One network; or several of one architecture, or a function that builds one: each member has a
            subspace of its own.
        members: Members K, with a function; a list says by itself how many.
        rank: Dimensions of the subspace.
        keep: Last snapshots that span it, more than ``rank``.
        prior_std: Standard deviation of the prior over the coordinates z; at 1 it is the trajectory's.
        temperature: T of the tempered posterior, proportional to p(D | z)^(1/T) p(z): 1 is the posterior,
            the larger, the nearer to the prior. With many data a few coordinates are soon certain; a larger T keeps
            the draws apart.
        vectorised: See ``sb.deep_ensemble``.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.

    Returns:
        A ``BayesianModel``. In training mode the networks themselves run; in evaluation, draws.

    Example:
        >>> import torch, slimbayes as sb
        >>> model = subspace(torch.nn.Linear(8, 3), rank=2, keep=3)
        >>> x, y = torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1])
        >>> elbo = sb.ELBO(model, num_data=5)
        >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> for _ in range(3):
        ...     elbo(model(x), y).backward()
        ...     optimiser.step()
        ...     model.collect()
        >>> sb.subspace_inference(elbo, [(x, y)], samples=10)
        >>> model.predict(x, samples=10).probs.shape
        torch.Size([5, 3])
    """
    nets = members_of(networks, members)
    layout = StateLayout(nets[0])
    has_norms = bool(running_norms(nets[0]))
    vector = layout.vector(nets[0])
    posterior = SubspacePosterior(len(nets), vector, layout.parameters, rank, keep, has_norms, prior_std, temperature)
    options = {"rank": rank, "keep": keep, "prior_std": prior_std, "temperature": temperature, "batch_dim": batch_dim}
    return whole_model(nets, "subspace", options, posterior, vectorised)
