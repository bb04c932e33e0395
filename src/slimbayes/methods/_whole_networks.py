"""Models whose members are whole networks: what deep ensembles, SWAG, subspaces and chains have in common."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from slimbayes._checks import check_count
from slimbayes.conversion import Conversion, Part, all_parameters, check_plain, copy_of, own_parameters
from slimbayes.ensembles._weight_posterior import WeightPosterior
from slimbayes.ensembles.networks import Networks
from slimbayes.model import BayesianModel

#: Networks, or a function that builds a new one at each call.
Source = nn.Module | Sequence[nn.Module] | Callable[[], nn.Module]


def members_of(networks: Source, members: int | None, argument: str = "networks") -> list[nn.Module]:
    """Return copies of the given networks, or ``members`` newly built ones.

    Args:
        networks: One network, several, or a function that builds one with new random weights.
        members: How many; None for as many as are given. One network cannot become several.
        argument: Its name in error messages.
    """
    if isinstance(networks, nn.Module) and not isinstance(networks, nn.ModuleList):
        networks = [networks]
    elif callable(networks) and not isinstance(networks, nn.ModuleList):
        check_count("members", 1 if members is None else members, 1)
        networks = [networks() for _ in range(members or 1)]
        members = None
        if len(set(map(id, networks))) < len(networks):
            raise ValueError(
                f"Expected argument `{argument}` to build a new network at each call, but got the same one again: the "
                "members would be equal. Build it within the function."
            )
    given = list(networks) if isinstance(networks, Iterable) else [networks]
    for network in given:
        if not isinstance(network, nn.Module):
            raise TypeError(
                f"Expected argument `{argument}` to be networks or a function that builds one, but got "
                f"{type(network).__name__}."
            )
        check_plain(network)
        if any(map(is_lazy, (*network.parameters(), *network.buffers()))):
            raise ValueError(
                f"Expected argument `{argument}` to have networks with weights, but got one with lazy modules, which "
                "have none yet. Run each network on a batch first."
            )
    if not given or (members is not None and members != len(given)):
        raise ValueError(
            f"Expected argument `{argument}` to give {members or 'some'} networks, but got {len(given)}: members are "
            "to start from different weights. Give a list of networks, or a function that builds one."
        )
    _check_same("device", [{str(x.device) for x in network.parameters()} for network in given], argument)
    _check_same("dtype", [{str(x.dtype) for x in network.parameters()} for network in given], argument)
    return [copy_of(network) for network in given]


def saved_networks(net: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that make a saved model of whole networks again.

    Args:
        net: One network for all members, or all of them.
        options: Those of the saved model, with ``include``.
    """
    members = options["members"]
    if not isinstance(net, nn.Module) and len(net) != members:
        raise ValueError(
            f"Expected argument `net` to be one network, if all are alike, or the {members} of the saved model, "
            f"but got {len(net)}."
        )
    own = {name: value for name, value in options.items() if name not in ("include", "noise", "freeze_base")}
    return {**own, "networks": [net] * members if isinstance(net, nn.Module) else net}


def _check_same(what: str, values: list[set[str]], argument: str) -> None:
    for index, value in enumerate(values):
        if value != values[0]:
            raise ValueError(
                f"Expected argument `{argument}` to have members of one {what}, but member 0 has "
                f"{', '.join(sorted(values[0]))} and member {index} {', '.join(sorted(value))}. Use network.to(...)."
            )


def whole_model(
    networks: Sequence[nn.Module],
    method: str,
    options: dict[str, Any],
    posterior: WeightPosterior | None = None,
    vectorised: bool | None = None,
) -> BayesianModel:
    """Return the model of some networks; they are not copied.

    Args:
        networks: The members.
        method: Name of the method.
        options: Its options as JSON values; those that all models have are filled in.
        posterior: Posterior over the members' states, or None for the members themselves.
        vectorised: See ``Networks``.
    """
    parts = []
    for name, module in networks[0].named_modules():
        if size := own_parameters(module):
            reason = f"each member has its own; {method} leaves them as they are"
            parts.append(Part(name, type(module).__name__, False, reason, size, size * len(networks)))
    conversion = Conversion(Networks(networks, posterior, vectorised), all_parameters(networks[0]), parts)
    common = {"members": len(networks), "noise": "shared", "freeze_base": False, "batch_dim": 0}
    model = BayesianModel(conversion, method, {**common, **options, "vectorised": vectorised})
    model.train(networks[0].training)
    if posterior is not None:
        # Processes that train together collect the same; DistributedDataParallel need not send it in every step.
        ignored = [f"net.posterior.{name}" for name, _ in posterior.named_buffers()]
        model._ddp_params_and_buffers_to_ignore = ignored  # type: ignore
    return model
