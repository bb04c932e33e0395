"""From a plain network to a Bayesian one: which layers, how each is converted, and what was left and why."""

import copy
import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from slimbayes._checks import check_choice
from slimbayes.layers.base import BayesianLayer

__all__ = ["Conversion", "Converter", "Selector", "convert", "register_converter"]

#: A pattern for names, a layer class, a predicate on (name, module), or several of them.
Selector = str | type[nn.Module] | Callable[[str, nn.Module], bool] | Iterable[Any] | None
#: Takes a plain layer and the method's settings; returns the Bayesian layer, the same object or a new one.
Converter = Callable[[nn.Module, Any], nn.Module]

ModuleT = TypeVar("ModuleT", bound=nn.Module)

_CONVERTERS: dict[str, dict[type[nn.Module], Converter]] = {}


def register_converter(layer_class: type[nn.Module], converter: Converter | None = None, method: str = "rank1") -> Any:
    """Teach ``method`` to convert a layer class; call it or use it as a decorator.

    The converter is called as ``converter(layer, settings)`` on a copy of the layer, and returns the
    Bayesian layer. ``settings.options`` are the ``FactorOptions`` or ``GaussianOptions`` of the conversion.

    Args:
        layer_class: The class, and those subclasses of it that keep its ``forward``.
        converter: The function; leave it out to decorate one.
        method: ``"rank1"``, or ``"mean_field"``, whose converters serve ``sb.k_tied`` too.

    Example:
        >>> from slimbayes.layers import Rank1Linear
        >>> class MyLinear(nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x)
        >>> @register_converter(MyLinear)
        ... def convert_my_linear(layer, settings):
        ...     return Rank1Linear.adopt(layer, settings.options, settings.memo)
    """
    check_choice("method", method, ("rank1", "mean_field"))

    def register(function: Converter) -> Converter:
        _CONVERTERS.setdefault(method, {})[layer_class] = function
        return function

    return register if converter is None else register(converter)


@dataclass
class Part:
    """One module with weights of its own: converted, or left with the reason."""

    name: str
    kind: str
    converted: bool
    reason: str
    before: int
    after: int = 0


@dataclass
class Conversion:
    """A converted network and the account of what happened to each part."""

    net: nn.Module
    parameters_before: int
    parts: list[Part] = field(default_factory=list)

    @property
    def converted(self) -> list[str]:
        """Names of the converted modules."""
        return [part.name for part in self.parts if part.converted]


def matches(selector: Selector, name: str, module: nn.Module) -> bool:
    """Tell whether a selector picks a module.

    A string picks a module by its whole name, by a trailing part of it, by a shell pattern, or as part
    of a module so named: ``"layer1"`` picks ``net.layer1`` and ``layer1.0.conv1`` alike.
    """
    if selector is None:
        return False
    if isinstance(selector, str):
        dotted = f".{name}."
        return fnmatchcase(name, selector) or f".{selector}." in dotted
    if isinstance(selector, type):
        return _is_a(module, selector)
    if callable(selector):
        return bool(selector(name, module))
    return any(matches(one, name, module) for one in selector)


def checked_selector(argument: str, selector: Selector, net: nn.Module) -> Selector:
    """Return a selector that can be read more than once, or raise for what is none or picks nothing."""
    selector = _as_selector(argument, selector)
    _check_patterns(argument, selector, net)
    return selector


def exactly(names: Iterable[str]) -> Selector:
    """Return a selector that picks the modules of these very names."""
    wanted = frozenset(names)
    return lambda name, module: name in wanted


def _as_selector(argument: str, selector: Selector) -> Selector:
    """Return a selector that can be read more than once, or raise for what is none."""
    if selector is None or isinstance(selector, str) or callable(selector):
        return selector
    if not isinstance(selector, Iterable):
        raise TypeError(
            f"Expected argument `{argument}` to be a name pattern, a class, a predicate on (name, module) or a list of "
            f"them, but got {selector!r}."
        )
    return [_as_selector(argument, one) for one in selector]


def _is_a(module: nn.Module, kind: type[nn.Module]) -> bool:
    # An attention's out_proj is a Linear in name only: nobody who picks Linear means it.
    hidden = isinstance(module, NonDynamicallyQuantizableLinear) and kind is nn.Linear
    return isinstance(module, kind) and not hidden


def _check_patterns(argument: str, selector: Selector, net: nn.Module) -> None:
    """Raise for a string or class that picks nothing: most likely a slip of the pen."""
    if isinstance(selector, (str, type)):
        names = [name for name, _ in net.named_modules()]
        if any(matches(selector, name, module) for name, module in net.named_modules()):
            return
        near = difflib.get_close_matches(str(selector), names, n=3, cutoff=0.4)
        hint = f" Near names: {', '.join(near)}." if near else f" The names are: {', '.join(names[1:11])}."
        raise ValueError(f"Expected argument `{argument}` to pick some module, but {selector!r} picks none.{hint}")
    if selector is not None and not callable(selector):
        for one in selector:
            _check_patterns(argument, one, net)


def find_converter(method: str, module: nn.Module) -> tuple[Converter | None, str]:
    """Return the converter for a module, or None and the reason why there is none."""
    kind = type(module)
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return None, "its MultiheadAttention reads its weight directly; it is converted with that module"
    if parametrize.is_parametrized(module):
        return (
            None,
            "its weight is parametrized; call torch.nn.utils.parametrize.remove_parametrizations first",
        )
    if _is_lazy(module):
        return None, "it is lazy and has no weights yet; run the network once first"
    if isinstance(getattr(module, "weight", None), Tensor) and "weight" not in module._parameters:
        return None, "its weight is computed by a hook (weight_norm, spectral_norm, pruning); remove that first"
    for base in kind.__mro__:
        if base in _CONVERTERS.get(method, {}):
            changed = _overridden(kind, base)
            if not changed:
                return _CONVERTERS[method][base], ""
            return None, f"it is a {base.__name__} with a {changed} of its own; register a converter for it"
    return None, f"no converter is registered for {kind.__name__}; its weights stay point estimates"


def _overridden(kind: type, base: type) -> str:
    """Return a method by which a subclass computes something else than ``base``, or ``""``."""
    harmless = {"__init__", "extra_repr", "reset_parameters"}
    for cls in kind.__mro__[: kind.__mro__.index(base)]:
        if cls.__module__.startswith("torch.nn"):
            continue
        for name, value in vars(cls).items():
            if callable(value) and name not in harmless and callable(getattr(base, name, None)):
                return name
    return ""


def _is_lazy(module: nn.Module) -> bool:
    return isinstance(module, LazyModuleMixin) and module.has_uninitialized_params()


def own_parameters(module: nn.Module) -> int:
    """Return the number of parameters that a module holds itself, not in its children."""
    return sum(p.numel() for p in module.parameters(recurse=False) if not is_lazy(p))


def all_parameters(module: nn.Module) -> int:
    """Return the number of parameters of a module and its children, tied ones once."""
    return sum(p.numel() for p in module.parameters() if not is_lazy(p))


def check_plain(net: nn.Module) -> None:
    """Raise unless ``net`` is a network without Bayesian layers."""
    if not isinstance(net, nn.Module):
        raise TypeError(f"Expected argument `net` to be a torch.nn.Module, but got {type(net).__name__}.")
    if any(isinstance(module, BayesianLayer) for module in net.modules()):
        raise ValueError(
            "Expected argument `net` to be a plain network, but it has been converted already. Convert the network "
            "itself, or a member: model.member(0)."
        )


def convert(
    net: nn.Module,
    method: str,
    settings: Any,
    include: Selector = None,
    exclude: Selector = None,
    veto: Callable[[nn.Module], str] = lambda module: "",
    settings_for: Callable[[str, nn.Module], Any] | None = None,
) -> Conversion:
    """Copy a network and convert the layers that were picked.

    Args:
        net: The plain network; it is not touched.
        method: Whose converters to use.
        settings: Handed to each converter.
        include: What to convert; None for all that can be. An explicit choice that cannot be converted
            is an error.
        exclude: What to leave.
        veto: Returns why a module that could be converted is left by default, or ``""``.
        settings_for: Returns the settings for a module of that name, where they differ from module to module.
    """
    check_plain(net)
    include, exclude = checked_selector("include", include, net), checked_selector("exclude", exclude, net)
    # A holder, so that the root can be replaced like any other module.
    holder = nn.ModuleDict({"net": copy_of(net)})
    result = Conversion(holder["net"], all_parameters(net))
    inside: set[int] = set()
    for name, module in list(holder["net"].named_modules()):
        if id(module) in inside or not (own_parameters(module) or _known(method, module) or _is_lazy(module)):
            continue
        before = all_parameters(module) if _known(method, module) else own_parameters(module)
        part = Part(name, type(module).__name__, False, "", before)
        result.parts.append(part)
        part.reason = _why_left(method, name, module, include, exclude, veto)
        if part.reason:
            part.after = before
            continue
        converter, _ = find_converter(method, module)
        assert converter is not None
        inside.update(id(child) for child in module.modules())
        new = converter(module, settings if settings_for is None else settings_for(name, module))
        if new is not module:
            replace(holder, module, new)
        part.converted, part.reason, part.after = True, type(new).__name__, all_parameters(new)
    result.net = holder["net"]
    if not result.converted:
        reasons = [f"{part.name or 'the root'} ({part.kind}): {part.reason}" for part in result.parts[:10]]
        found = "; ".join(reasons) or "no module has weights"
        raise ValueError(f"Expected argument `net` to have a layer to convert, but none was: {found}.")
    return result


def _known(method: str, module: nn.Module) -> bool:
    return any(base in _CONVERTERS.get(method, {}) for base in type(module).__mro__)


def _why_left(
    method: str,
    name: str,
    module: nn.Module,
    include: Selector,
    exclude: Selector,
    veto: Callable[[nn.Module], str],
) -> str:
    if matches(exclude, name, module):
        return "excluded"
    if include is not None and not matches(include, name, module):
        return "not included"
    unable = find_converter(method, module)[1]
    reason = unable or veto(module)
    # A class, predicate or subtree may well cover norms and embeddings that are left by default; what has
    # no converter, or is asked for by its very name, has been chosen.
    if reason and (_by_name(include, name) or (unable and _by_kind(include, name, module))):
        raise ValueError(
            f"Cannot convert {name or 'the root module'} ({type(module).__name__}), which `include` asks for: "
            f"{reason}. Leave it out of `include`, or put it into `exclude`."
        )
    return reason


def _by_kind(selector: Selector, name: str, module: nn.Module) -> bool:
    """Tell whether a class or a predicate picks this module."""
    if selector is None or isinstance(selector, str):
        return False
    if callable(selector):
        return matches(selector, name, module)
    return any(_by_kind(one, name, module) for one in selector)


def _by_name(selector: Selector, name: str) -> bool:
    """Tell whether a selector spells out this very module."""
    if isinstance(selector, str):
        return f".{name}.".endswith(f".{selector}.")
    if selector is None or callable(selector):
        return False
    return any(_by_name(one, name) for one in selector)


def copy_of(module: ModuleT) -> ModuleT:
    """Return a deep copy; tensors with a history, which torch refuses to copy, come without it.

    Such are weights computed by hooks (old weight_norm, pruning) and activations that a network keeps.
    """
    memo = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(module, memo)


def replace(root: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put ``new`` wherever ``old`` is a child below ``root``."""
    for parent in list(root.modules()):
        if parent is new:
            continue  # new may hold old inside, as MemberNorm does
        for name, child in list(parent._modules.items()):
            if child is old:
                parent._modules[name] = new
