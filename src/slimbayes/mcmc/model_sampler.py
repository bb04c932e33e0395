"""The sampler of a model's chains, with the scales that make each chain's target its posterior."""

from typing import Any

from torch import Generator, Tensor, nn

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes.ensembles._chain_factor import KeptFactor
from slimbayes.mcmc._chain_model import ChainModel
from slimbayes.mcmc.sampler import Sampler
from slimbayes.mcmc.samplers import SGHMC, SGLD
from slimbayes.model import unwrapped

__all__ = ["chain_sampler", "chains_of"]

ALGORITHMS: dict[str, type[Sampler]] = {"sgld": SGLD, "sghmc": SGHMC}


def chains_of(model: Any) -> ChainModel:
    """Return the model of chains, unwrapped, or raise."""
    chains = unwrapped(model)[-1]
    if not isinstance(chains, ChainModel):
        raise TypeError(
            f"Expected argument `model` to be one of chains, but got one made by {chains.method}. Use sb.sgmcmc."
        )
    return chains


def chain_sampler(
    model: Any,
    num_data: int,
    algorithm: str = "sghmc",
    *,
    lr: float = 0.01,
    temperature: float = 1.0,
    base_lr: float | None = None,
    base_weight_decay: float = 0.0,
    generator: Generator | None = None,
    **options: Any,
) -> Sampler:
    r"""Return the sampler for a model of ``sb.sgmcmc`` that trains on ``sb.ELBO`` with ``objective="average"``.

    The target of chain k is :math:`\exp(-U_k / T)` with :math:`U_k = N \ell_k - \log p(\theta_k)`, where
    :math:`\ell_k` is the member's own mean loss. What the ELBO gives depends on what the members share:

    - Whole networks share nothing, and the loss is :math:`L = \sum_k \ell_k`. The gradient of
      :math:`\theta_k` is that of :math:`\ell_k`: the sampler of ``Sampler`` fits with ``num_data`` N.
    - Factors share the base, and :math:`L = \frac1K \sum_k \ell_k`. As :math:`N K \, L = \sum_k N \ell_k`, the
      sampler with ``num_data`` N K has the joint target :math:`\prod_k \exp(-U_k / T)`: independent chains, each with
      its own posterior. With the step size K lr besides, each step is the one that a chain alone would take with lr
      and N, by SGLD and SGHMC alike: K lr / K of the loss's gradient, K lr / (N K) of the prior's, and noise by
      K lr / (N K) too.

    So ``lr`` means the same in both: that of SGD on one chain's mean loss. The prior is N(0, ``prior_std``^2) for
    weights and N(1, ``prior_std``^2) for factors (their mean is 1 / R on one side of rank-R layers), with the model's
    ``prior_std``. The padding rows of embedding tables stay as they are, as they do in all training. What the chains
    share, the base or a likelihood's learned noise, is optimised at temperature 0: by SGD with SGLD, and by SGD with
    momentum with SGHMC.

    Args:
        model: The model; build the ELBO first, whose learned noise is a parameter of the model.
        num_data: Number N of training examples, of the whole training set.
        algorithm: ``"sgld"`` or ``"sghmc"``.
        lr: Step size of the chains.
        temperature: T; 1 for the posterior.
        base_lr: Learning rate of what the chains share; None for ``lr``, 0 to let it rest.
        base_weight_decay: Its weight decay.
        generator: Source of the noise; see ``Sampler``. In distributed training every process is to have one of the
            same seed, or its chains would go their own way.
        **options: Those of the sampler, such as ``momentum_decay`` of SGHMC.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.sgmcmc(nn.Linear(8, 3), members=4, over="factors")
        >>> sampler = chain_sampler(model, num_data=1000, lr=0.01, momentum_decay=0.05)
        >>> [(group["num_data"], group["lr"], group["temperature"]) for group in sampler.param_groups]
        [(4000, 0.04, 1.0), (1000, 0.01, 0.0)]
    """
    check_choice("algorithm", algorithm, ALGORITHMS)
    check_count("num_data", num_data, 1, "Give the number of training examples, not the batch size.")
    check_number("lr", lr, 0.0, or_low=True, remedy="Use a rate that would suit SGD, such as 0.01.")
    base_lr = lr if base_lr is None else base_lr
    check_number("base_lr", base_lr, 0.0, or_low=True, remedy="Use a rate that would suit SGD; 0 lets the base rest.")
    chains = chains_of(model)
    members, share = chains.members, 1 if chains.independent else chains.members
    groups = [
        {**group, "lr": lr * share, "num_data": num_data * share, "prior_std": chains.options["prior_std"]}
        for group in _sampled(chains)
    ]
    sampled = {id(parameter) for group in groups for parameter in group["params"]}
    shared = [p for p in chains.parameters() if p.requires_grad and id(p) not in sampled]
    if shared:  # of whole networks only a likelihood's, in each of the K terms of the sum
        scaled = {"lr": base_lr * share / members, "weight_decay": base_weight_decay}
        groups.append({"params": shared, "temperature": 0.0, "prior_std": None, **scaled})
    sampler = ALGORITHMS[algorithm](groups, lr, num_data, temperature=temperature, generator=generator, **options)
    if chains.independent:
        _hold_padding(sampler, chains.net)
    return sampler


def _hold_padding(sampler: Sampler, net: nn.Module) -> None:
    """Let no step move the padding rows of embedding tables: they have no gradient, but prior and noise would."""
    rows: dict[nn.Parameter, set[int | None]] = {}
    for module in net.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                rows.setdefault(parameter, set()).add(getattr(module, "padding_idx", None))
    # A table that is tied to another kind of layer has gradients in all its rows.
    fixed = [(table, row) for table, (row, *more) in rows.items() if row is not None and not more]
    before: list[Tensor] = []

    def note(*_: Any) -> None:
        before[:] = [table.detach()[row].clone() for table, row in fixed]

    def put_back(*_: Any) -> None:
        for (table, row), value in zip(fixed, before, strict=True):
            table.detach()[row] = value

    if fixed:
        sampler.register_step_pre_hook(note)
        sampler.register_step_post_hook(put_back)


def _sampled(chains: ChainModel) -> list[dict[str, Any]]:
    """Return groups of the parameters that are sampled, by the means of their priors."""
    if chains.independent:
        return [{"params": [p for p in chains.net.parameters() if p.requires_grad], "prior_mean": 0.0}]
    by_mean: dict[float, list[nn.Parameter]] = {}
    for factor in chains.stochastic():
        if isinstance(factor, KeptFactor):
            by_mean.setdefault(factor.prior.loc, []).append(factor.loc)
    return [{"params": locs, "prior_mean": mean} for mean, locs in by_mean.items()]
