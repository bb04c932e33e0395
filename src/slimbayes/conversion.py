"""From a plain network to a Bayesian one: which layers, how each is converted, and what was left and why."""

import copy
import difflib
import warnings
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
from slimbayes.layers.base import BayesianLayer, computing_hook

__all__ = ["Conversion", "Converter", "Selector", "convert", "register_converter"]

#: A pattern for names, a layer class, a predicate on (name, module), or several of them.
Selector = str | type[nn.Module] | Callable[[str, nn.Module], bool] | Iterable[Any] | None
#: Takes a plain layer and the method's settings; returns the Bayesian layer, the same object or a new one.
Converter = Callable[[nn.Module, Any], nn.Module]

#: Parameters of torch's layers that may be computed from others; recurrent layers name theirs.
WEIGHTS = (
    "weight",
    "bias",
    "in_proj_weight",
    "in_proj_bias",
    "q_proj_weight",
    "k_proj_weight",
    "v_proj_weight",
    "bias_k",
    "bias_v",
)

ModuleT = TypeVar("ModuleT", bound=nn.Module)

#: By method: a class, or the qualified name of one whose library is not imported for it, and its converter.
_CONVERTERS: dict[str, dict[type[nn.Module] | str, Converter]] = {}


def register_converter(
    layer_class: type[nn.Module] | str, converter: Converter | None = None, method: str = "rank1"
) -> Any:
    """Teach ``method`` to convert a layer class; call it or use it as a decorator.

    The converter is called as ``converter(layer, settings)`` on a copy of the layer, and returns the
    Bayesian layer. ``settings.options`` are the ``FactorOptions`` or ``GaussianOptions`` of the conversion.

    Args:
        layer_class: The class, and those subclasses of it that keep its ``forward``. Of a library that is not to be
            imported for it, the class's qualified name: ``"package.module.Class"``, where the class is defined.
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
    """A converted network, and what happened to each of its parts."""

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
    of a module so named: ``"layer1"`` picks both ``net.layer1`` and ``layer1.0.conv1``.
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
    if _is_lazy(module):
        return None, "it is lazy and has no weights yet; run the network once first"
    for base in kind.__mro__:
        if (converter := _registered(method, base)) is not None:
            changed = _overridden(kind, base)
            if changed:
                return None, f"it is a {base.__name__} with a {changed} of its own; register a converter for it"
            reason = _why_not_computed(module)
            return (None, reason) if reason else (converter, "")
    return None, f"no converter is registered for {_qualified(kind)}; its weights stay point estimates"


def _registered(method: str, kind: type) -> Converter | None:
    """Return the converter of this very class, registered by itself or by its name."""
    converters = _CONVERTERS.get(method, {})
    return converters.get(kind) or converters.get(f"{kind.__module__}.{kind.__qualname__}")


def _qualified(kind: type) -> str:
    """Return a class's name, with its module's unless the class is torch's."""
    return kind.__name__ if kind.__module__.startswith("torch.nn.") else f"{kind.__module__}.{kind.__qualname__}"


def _why_not_computed(module: nn.Module) -> str:
    """Return why a layer whose weights are computed from others cannot be converted, or ``""``."""
    if parametrize.is_parametrized(module) and (others := set(module.parametrizations) - {"weight"}):  # type: ignore[arg-type]
        return (
            f"its {', '.join(sorted(others))} is parametrized; call "
            "torch.nn.utils.parametrize.remove_parametrizations first"
        )
    # Torch's own parameters, where something puts a tensor in their place before each pass.
    names = (*WEIGHTS, *getattr(module, "_flat_weights_names", ()))
    computed = [name for name in names if isinstance(vars(module).get(name), Tensor)]
    if computed == ["weight"] and computing_hook(module) is not None:
        return ""
    if computed:
        return (
            f"its {', '.join(computed)} is computed by a hook (pruning, weight norm); remove that first "
            "(torch.nn.utils.prune.remove, torch.nn.utils.remove_weight_norm)"
        )
    return ""


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
    mixin = isinstance(module, LazyModuleMixin) and module.has_uninitialized_params()
    return mixin or any(map(is_lazy, module.parameters(recurse=False)))


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
    unable: Callable[[nn.Module], str] = lambda module: "",
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
        unable: Returns why this method cannot convert a module for which there is a converter, or ``""``.
    """
    check_plain(net)
    include, exclude = checked_selector("include", include, net), checked_selector("exclude", exclude, net)
    _check_not_lazy(net, include, exclude)
    # A holder, so that the root can be replaced like any other module.
    holder = nn.ModuleDict({"net": copy_of(net)})
    result = Conversion(holder["net"], all_parameters(net))
    inside: set[int] = set()
    rowless = _without_rows(holder["net"])
    chosen: list[int] = []
    left: list[int] = []
    reasons: dict[str, list[str]] = {}
    for name, module in list(holder["net"].named_modules()):
        if id(module) in inside or not (own_parameters(module) or _known(method, module) or _is_lazy(module)):
            continue
        before = all_parameters(module) if _known(method, module) else own_parameters(module)
        part = Part(name, type(module).__name__, False, "", before)
        result.parts.append(part)
        converter, why = find_converter(method, module)
        why = why or rowless.get(id(module), "") or unable(module)
        part.reason = _why_left(name, module, include, exclude, why or veto(module), converter is None)
        sizes = [p.numel() for p in module.parameters(recurse=converter is not None) if not is_lazy(p) and p.dim() > 1]
        if sizes and part.reason and part.reason == why:
            reasons.setdefault(why, []).append(name or "the root")
            left.append(sum(sizes))
        elif sizes and part.reason in ("", "excluded"):
            chosen.append(sum(sizes))
        if part.reason:
            part.after = before
            continue
        assert converter is not None
        inside.update(id(child) for child in module.modules())
        new = converter(module, settings if settings_for is None else settings_for(name, module))
        if new is not module:
            replace(holder, module, new)
        part.converted, part.reason, part.after = True, type(new).__name__, all_parameters(new)
    result.net = holder["net"]
    if not result.converted:
        listed = [f"{part.name or 'the root'} ({part.kind}): {part.reason}" for part in result.parts[:10]]
        found = "; ".join(listed) or "no module has weights"
        if any(".quantized" in type(module).__module__ for module in net.modules()):
            found = "it is quantized, and its weights can neither be trained nor drawn. Convert it before quantizing"
        raise ValueError(f"Expected argument `net` to have a layer to convert, but none was: {found}.")
    _warn_if_half_left(chosen, left, reasons)
    return result


def _check_not_lazy(net: nn.Module, include: Selector, exclude: Selector) -> None:
    """Raise for a lazy layer that is to be converted: it has no weights yet."""
    for name, module in net.named_modules():
        wanted = include is None or matches(include, name, module)
        if _is_lazy(module) and wanted and not matches(exclude, name, module):
            raise ValueError(
                f"Layer {name or 'the root'} ({type(module).__name__}) is lazy and has no weights yet: run one batch "
                "through the network first, net(x), then convert it; or put the layer into `exclude`."
            )


def _warn_if_half_left(chosen: list[int], left: list[int], reasons: dict[str, list[str]]) -> None:
    """Warn if most weights in matrices have stayed points although nobody asked for that.

    Args:
        chosen: Numbers of weights with two axes or more in layers that were converted, or excluded by the user.
        left: The same in layers that cannot be converted.
        reasons: The names of the latter, by reason.
    """
    if sum(left) <= sum(chosen):
        return
    whys = [
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {reason}"
        for reason, names in reasons.items()
    ]
    warnings.warn(
        f"Most of the network stays as it is: {len(left)} of {len(left) + len(chosen)} layers with weight matrices, "
        f"and {sum(left):,} of their {sum(left) + sum(chosen):,} weights, cannot be converted. {'; '.join(whys)}. "
        "If that is meant, put them into `exclude`.",
        stacklevel=4,
    )


def _without_rows(net: nn.Module) -> dict[int, str]:
    """Return, by id, the layers whose inputs are known not to hold the rows in the order of the draws, and why."""
    found = {}
    for name, module in net.named_modules():
        if isinstance(edges := getattr(module, "lin_edge", None), nn.Module) and getattr(
            module, "add_self_loops", False
        ):
            found[id(edges)] = (
                f"its {type(module).__name__} appends self-loops after the edges of all draws; build that with "
                "add_self_loops=False to convert it"
            )
        if isinstance(module, nn.Embedding) and name.endswith("relative_attention_bias"):
            found[id(module)] = "its table is read by pairs of positions, which have no rows; it stays a point estimate"
    return found


def _known(method: str, module: nn.Module) -> bool:
    return any(_registered(method, base) is not None for base in type(module).__mro__)


def _why_left(
    name: str, module: nn.Module, include: Selector, exclude: Selector, reason: str, no_converter: bool
) -> str:
    if matches(exclude, name, module):
        return "excluded"
    if include is not None and not matches(include, name, module):
        return "not included"
    # A class, predicate or subtree may well cover norms and embeddings that are left by default; what has
    # no converter, or is asked for by its very name, has been chosen.
    if reason and (_by_name(include, name) or (no_converter and _by_kind(include, name, module))):
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


def copy_of(module: ModuleT, keep: Iterable[Tensor] = ()) -> ModuleT:
    """Return a deep copy, but for tensors to keep; those with a history, which torch refuses to copy, come without it.

    Such are weights computed by hooks (old weight_norm, pruning) and activations that a network keeps, also in lists.
    """
    kept = (value for part in module.modules() for value in vars(part).values())
    memo = {id(x): x.detach().clone() for value in kept for x in _tensors_in(value) if not x.is_leaf}
    memo.update((id(x), x) for x in keep)
    return copy.deepcopy(module, memo)


def _tensors_in(value: Any) -> list[Tensor]:
    """Return a tensor, or those of a list, tuple or dict; torch's recurrent layers have such a list."""
    if isinstance(value, Tensor):
        return [value]
    nested = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return [x for x in nested if isinstance(x, Tensor)]


def replace(root: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put ``new`` wherever ``old`` is a child below ``root``."""
    for parent in list(root.modules()):
        if parent is new:
            continue  # new may hold old inside, as MemberNorm does
        for name, child in list(parent._modules.items()):
            if child is old:
                parent._modules[name] = new
