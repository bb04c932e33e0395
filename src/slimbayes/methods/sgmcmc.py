"""Stochastic-gradient Markov chain Monte Carlo: members are chains, and draws are samples that they kept."""

from typing import Any

from torch import nn

from slimbayes._checks import check_choice, check_number
from slimbayes.conversion import Selector, convert
from slimbayes.ensembles._chain_factor import KeptOptions
from slimbayes.ensembles._chains import ChainPosterior
from slimbayes.ensembles._states import StateLayout
from slimbayes.mcmc._chain_model import ChainModel
from slimbayes.methods._whole_networks import Source, members_of, saved_networks, whole_model
from slimbayes.methods.rank1 import Rank1Settings
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["sgmcmc"]


def _rebuild(net: Any, **options: Any) -> ChainModel:
    if options["over"] == "weights":
        return sgmcmc(**saved_networks(net, options))
    del options["noise"]
    return sgmcmc(net, **options)


@register_method(title="SGMCMC", rebuild=_rebuild, of_networks=True, sampled=True)
def sgmcmc(
    networks: Source,
    members: int | None = None,
    *,
    over: str = "weights",
    keep: int = 20,
    prior_std: float | None = None,
    include: Selector = None,
    exclude: Selector = None,
    factors: str = "both",
    rank: int = 1,
    init: str = "normal",
    init_spread: float | None = None,
    freeze_base: bool = False,
    batch_dim: int = 0,
    vectorised: bool | None = None,
) -> ChainModel:
    r"""Make a model whose members are Markov chains over all weights, or over rank-1 factors alone.

    The model keeps the samples, and ``sb.chain_sampler`` makes the optimiser that moves the chains: train on the ELBO
    as ever, and call ``model.collect()`` every so often once the chains have settled. When ``keep`` samples are there
    the oldest makes room, so that samples from before the chains had settled go in the end.

    - ``over="weights"``: each chain is a network of its own, and a kept sample is its state: all weights, and the
      running statistics that its norm layers had.
    - ``over="factors"``: all chains share the base W, its biases and norms, and a chain is over its member's factors r
      and s in W ∘ r s^T (Dusenberry et al. 2020, Eq. 1; their section 6 proposes to sample them). A kept sample is one
      number for each channel, not for each weight. The base is optimised, or stays as given with ``freeze_base``.
      Samples are of the factors given the base, and are used with the base as it is in the end: let it rest
      (``base_lr=0``) before the first ``collect()``.

    Args:
        networks: For weights, networks of one architecture, one for each chain, or a function that builds one with new
            random weights. For factors, one network, or a function that builds it.
        members: Chains K; None for as many as networks are given, for factors 4.
        over: ``"weights"`` or ``"factors"``.
        keep: Samples to keep of each chain. The memory for them is taken at once.
        prior_std: Standard deviation of the normal prior; around 0 for all weights, biases and norms of a network
            (None for 1, as Wenzel et al. 2020), around the neutral value 1 for factors (None for 0.1). It is the
            sampler that adds it.
        include: For factors: layers to convert, as for ``sb.rank1``.
        exclude: For factors: layers to leave.
        factors: For factors: on each layer's ``"input"``, ``"output"`` or ``"both"``.
        rank: For factors: rank-1 terms in each layer's perturbation.
        init: For factors: where chains start, ``"normal"``, ``"sign"`` or ``"ones"``.
        init_spread: Standard deviation with ``"normal"``; None for ``prior_std``: chains start at draws of the prior,
            and so apart from each other, which R-hat asks for.
        freeze_base: For factors: everything of the given network stays as it is.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.
        vectorised: For weights: see ``sb.deep_ensemble``.

    Returns:
        A ``BayesianModel`` whose draws are kept samples, and whose ``samples=0`` is each chain's mean of them.

    Example:
        >>> import torch, slimbayes as sb
        >>> x, y = torch.randn(50, 8), torch.randint(3, (50,))
        >>> model = sgmcmc(nn.Linear(8, 3), members=4, over="factors")
        >>> elbo = sb.ELBO(model, num_data=50)
        >>> sampler = sb.chain_sampler(model, num_data=50, lr=0.01)
        >>> for step in range(100):
        ...     sampler.zero_grad()
        ...     elbo(model(x), y).backward()
        ...     sampler.step()
        ...     if step >= 50 and step % 5 == 4:
        ...         model.collect()
        >>> model.eval()(x, samples=10).shape
        torch.Size([40, 50, 3])
    """
    check_choice("over", over, ("weights", "factors"))
    if over == "weights":
        given = {"include": include, "exclude": exclude, "init_spread": init_spread, "freeze_base": freeze_base or None}
        given |= {"factors": None if factors == "both" else factors, "rank": None if rank == 1 else rank}
        _refuse(over, given | {"init": None if init == "normal" else init})
        return _over_weights(networks, members, keep, prior_std, batch_dim, vectorised)
    _refuse(over, {"vectorised": vectorised})
    prior_std = 0.1 if prior_std is None else prior_std
    options = KeptOptions(
        members=4 if members is None else members,
        prior_std=prior_std,
        factors=factors,
        rank=rank,
        init=init,
        init_spread=prior_std if init_spread is None else init_spread,
        keep=keep,
    )
    return _over_factors(networks, options, include, exclude, freeze_base, batch_dim)


def _refuse(over: str, given: dict[str, Any]) -> None:
    """Raise for arguments that have no meaning."""
    for name, value in given.items():
        if value is not None:
            other = "factors" if over == "weights" else "weights"
            raise ValueError(
                f"Expected argument `{name}` to be left out with over={over!r}, but got {value!r}. It belongs to "
                f"over={other!r}."
            )


def _over_weights(
    networks: Source, members: int | None, keep: int, prior_std: float | None, batch_dim: int, vectorised: bool | None
) -> ChainModel:
    prior_std = 1.0 if prior_std is None else prior_std
    check_number("prior_std", prior_std, low=0.0, remedy="It is the prior's standard deviation, such as 1.")
    nets = members_of(networks, members)
    posterior = ChainPosterior(len(nets), keep, StateLayout(nets[0]).vector(nets[0]))
    options = {"over": "weights", "keep": int(keep), "prior_std": float(prior_std), "batch_dim": batch_dim}
    return ChainModel.adopt(whole_model(nets, "sgmcmc", options, posterior, vectorised))


def _over_factors(
    network: Source, options: KeptOptions, include: Selector, exclude: Selector, freeze_base: bool, batch_dim: int
) -> ChainModel:
    net: Any = network() if callable(network) and not isinstance(network, nn.Module) else network
    settings = Rank1Settings(options)
    model = BayesianModel(
        convert(net, "rank1", settings, include, exclude, settings.veto),
        method="sgmcmc",
        options={
            "members": options.members,
            "over": "factors",
            "keep": int(options.keep),
            "prior_std": options.prior_std,
            "factors": options.factors,
            "rank": options.rank,
            "init": options.init,
            "init_spread": options.init_spread,
            "freeze_base": freeze_base,
            "batch_dim": batch_dim,
            "noise": "shared",
        },
    )
    return ChainModel.adopt(model)
