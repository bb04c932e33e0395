"""All methods: what each is called, and what saving, training and reports have to know about it.

A method is one file that calls ``register_method``, and one line in ``BUILT_IN``. Files are imported when a method is
first asked for, so that the command line need not wait for torch.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from slimbayes._checks import check_choice

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel

__all__ = ["BUILT_IN", "Method", "get_method", "method_names", "method_of", "register_method", "trained_methods"]

#: The methods of this package, each a file of this folder with a function of the same name.
BUILT_IN = (
    "deterministic",
    "rank1",
    "batch_ensemble",
    "mean_field",
    "k_tied",
    "mc_dropout",
    "deep_ensemble",
    "swag",
    "subspace",
    "sgmcmc",
    "laplace",
)

_REGISTERED: dict[str, "Method"] = {}
_Make = TypeVar("_Make", bound=Callable[..., Any])


@dataclass(frozen=True)
class Method:
    """What is known about a method; see ``register_method``.

    Attributes:
        name: ``model.method`` of its models, and ``method.name`` of a configuration.
        make: Makes a model of a network, or of networks, and options.
        title: What tables call it, as a format string with the model's options.
        rebuild: Makes a model again from ``(net, include=..., **options)``; its weights are loaded afterwards.
        of_networks: ``make`` is given a function that builds a network, rather than a network.
        after_training: ``make`` is given a network that has been trained already.
        sampled: A sampler moves its members, not an optimiser.
        plain_members: Its members are plain networks, and so can be trained apart.
        finish: What is left to do when a run has ended.
        for_trained: Its options with ``trained=True``, unless they are given.
        for_adapters: The same with ``freeze_base=True``, which goes before.
    """

    name: str
    make: Callable[..., Any]
    title: str
    rebuild: Callable[..., Any]
    of_networks: bool = False
    after_training: bool = False
    sampled: bool = False
    plain_members: bool = False
    finish: Callable[..., None] | None = None
    for_trained: Mapping[str, Any] | None = None
    for_adapters: Mapping[str, Any] | None = None

    @property
    def options(self) -> list[str]:
        """Names of its options."""
        return list(inspect.signature(self.make).parameters)[1:]  # the first is the network

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise unless all options are known."""
        for option in options:
            check_choice("method", option, self.options)


def register_method(
    *,
    title: str | None = None,
    rebuild: Callable[..., Any] | None = None,
    of_networks: bool = False,
    after_training: bool = False,
    sampled: bool = False,
    plain_members: bool = False,
    finish: Callable[..., None] | None = None,
    for_trained: Mapping[str, Any] | None = None,
    for_adapters: Mapping[str, Any] | None = None,
) -> Callable[[_Make], _Make]:
    """Let training, ``sb.load`` and reports know a method; a decorator of the function that makes its models.

    The function's name is that of the method: ``model.method`` must be it. Its first argument is the network, the
    others are the options that a configuration may have.

    Args:
        title: What tables call it; it may name options of the model, as in ``"rank-1 {family}"``. None for the name.
        rebuild: Makes a model again that ``save_pretrained`` wrote. It is given the network, ``include``, which selects
            the layers that were converted, and all of ``model.options`` by name; the weights are loaded afterwards.
            None for the function itself.
        of_networks: The function is given a function that builds a network, rather than a network, and makes members.
        after_training: The function is given a network that has been trained already, and so is not for
            ``slimbayes.training``.
        sampled: A sampler (``sb.chain_sampler``) moves the members, not an optimiser.
        plain_members: The members are plain networks, which can be trained apart.
        finish: What is left to do when a run has ended; called with the ELBO and the training batches, and by name with
            ``draws``, ``inference``, ``seed`` and ``quiet``.
        for_trained: Options that suit a network which is trained already. The function needs an argument ``trained``;
            where that is true, it is called with these values for the options that the caller has not given. A value
            may be a function of the options that are given.
        for_adapters: The same for models whose base is frozen, by an argument ``freeze_base``; these go before.

    ``docs/adding-a-method.md`` has a whole example::

        @sb.register_method(title="noisy inputs")
        def noisy_inputs(net, std=0.1): ...
    """

    def register(make: _Make) -> _Make:
        name = make.__name__
        if name in BUILT_IN and make.__module__ != f"slimbayes.methods.{name}":
            raise ValueError(f"Expected a new name for a method, but {name!r} is one of slimbayes. Choose another.")
        flags = of_networks, after_training, sampled, plain_members
        made = make
        for argument, values in (("trained", for_trained), ("freeze_base", for_adapters)):
            made = made if values is None else _with_values_where(argument, make, made, values)
        _REGISTERED[name] = Method(
            name, made, title or name, rebuild or made, *flags, finish, for_trained, for_adapters
        )
        return made

    return register


def _with_values_where(argument: str, make: _Make, wrapped: Callable[..., Any], values: Mapping[str, Any]) -> _Make:
    """Return a function that calls ``wrapped`` with these values of options not given where an argument is true."""
    signature = inspect.signature(make)

    @wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)
        if given.arguments.get(argument, False):
            own = _filled(values, given.arguments)
            options = {name: value for name, value in own.items() if name not in given.arguments} | options
        return wrapped(*args, **options)

    return made  # type: ignore[return-value]


def _filled(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options, those that depend on other options for what is given of these.

    Example:
        >>> _filled({"rate": 0.1, "spread": lambda given: 2 * given.get("scale", 1.0)}, {"scale": 3.0})
        {'rate': 0.1, 'spread': 6.0}
    """
    return {name: value(given) if callable(value) else value for name, value in values.items()}


def method_names() -> list[str]:
    """Return the names of all methods, those of the package first."""
    return list(dict.fromkeys((*BUILT_IN, *_REGISTERED)))


def trained_methods() -> list[str]:
    """Return the names of the methods that ``slimbayes.training`` can train."""
    return [name for name in method_names() if not get_method(name).after_training]


def get_method(name: str) -> Method:
    """Return what is known about a method.

    Example:
        >>> get_method("swag").title
        'SWAG'
    """
    check_choice("method", name, method_names())
    if name not in _REGISTERED:
        import_module(f"slimbayes.methods.{name}")
    return _REGISTERED[name]


def method_of(model: "BayesianModel") -> Method | None:
    """Return what is known about the method that made a model; None if nobody registered it."""
    return get_method(model.method) if model.method in method_names() else None
