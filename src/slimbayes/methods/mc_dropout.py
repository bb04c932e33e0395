"""Monte Carlo dropout (Gal and Ghahramani 2016): dropout that stays on for prediction, each mask a draw."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from slimbayes._checks import check_choice
from slimbayes.conversion import (
    Conversion,
    Part,
    Selector,
    all_parameters,
    check_plain,
    checked_selector,
    convert,
    copy_of,
    exactly,
    find_converter,
    matches,
    own_parameters,
)
from slimbayes.layers._dropout_own import keep_on, own_rate
from slimbayes.layers.dropout import DropoutOptions
from slimbayes.layers.norm import NORMS
from slimbayes.methods import rank1  # noqa: F401  registers the layers that dropout is put around
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["mc_dropout"]

PLACES = ("own", "before", "after")
CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass
class _Settings:
    """What the converters of rank-1 layers read."""

    options: DropoutOptions
    memo: dict[int, nn.Parameter] = field(default_factory=dict)

    def veto(self, module: nn.Module) -> str:
        if isinstance(module, NORMS):
            return "dropout acts around the layers that mix channels, not around norms"
        return "dropout acts on what reads the embedding" if isinstance(module, nn.Embedding) else ""

    def for_module(self, name: str, module: nn.Module) -> "_Settings":
        """Return the settings of one layer: a recurrence's masks are on its inputs, and constant over time."""
        if not isinstance(module, nn.RNNBase):
            return self
        return replace(self, options=replace(self.options, factors="input", unit="filter"))


def _rebuild(net: nn.Module, freeze_base: bool, **options: Any) -> BayesianModel:
    return mc_dropout(net, **options)


@register_method(
    title="MC dropout",
    rebuild=_rebuild,
    for_trained={"rate": 0.02},
)
def mc_dropout(
    net: nn.Module,
    rate: float | Mapping[str, float] = 0.1,
    *,
    place: str | None = None,
    unit: str = "filter",
    noise: str = "example",
    include: Selector = None,
    exclude: Selector = None,
    batch_dim: int = 0,
    trained: bool = False,
) -> BayesianModel:
    r"""Make a network whose draws are its dropout masks; no parameters are added, and there is no KL.

    With z ~ Bernoulli(1 - rate) / (1 - rate) for each input, a linear layer before which dropout stands answers with
    mean and variance (over z)

    .. math::
        E[y_j] = \sum_i W_{ji} x_i + b_j, \qquad Var[y_j] = \frac{rate}{1 - rate} \sum_i W_{ji}^2 x_i^2,

    and one that it follows with mean y and variance rate / (1 - rate) y^2. Training is ordinary dropout
    training; ``samples=0`` is the network without dropout.

    The stronger recipe of Uncertainty Baselines drops whole filters after every layer but the last, and averages 30
    samples: ``mc_dropout(net, 0.1, place="after")`` and ``model.predict(x, samples=30)``. (Inside their residual
    blocks dropout stands after norm and activation, where one would write an ``nn.Dropout2d`` into the network.)

    Args:
        net: Any network; it is copied and its weights are kept.
        rate: Probability of a zero where dropout is inserted. The network's own dropout keeps its own rates; a saved
            model names them, by module, so that it is not loaded into a network with others.
        place: ``"own"``: dropout modules of the network (also those inside recurrent layers and attention) stay on in
            prediction. ``"before"``: dropout is inserted before every layer with weights, the network's inputs
            included; but a convolution that is the first layer is left if whole filters are dropped, which would be
            whole colours of a picture. ``"after"``: after every such layer except the last, whose outputs are the
            answer. First and last are by the order of definition; ``include`` picks them all the same. None for
            ``"own"`` if there is any, else ``"before"``. Calls of ``torch.nn.functional.dropout`` cannot be seen: they
            keep torch's meaning, as do the network's own modules where dropout is inserted.
        unit: What is dropped at once where dropout is inserted, ``"filter"``: a channel at all positions or time
            steps, a rank-1 factor, so that a draw can be folded into weights. ``"element"``: each value by itself.
            Recurrent layers have masks on the inputs of their kernels that are constant over time, whatever ``place``
            and ``unit`` say (Gal and Ghahramani 2016, "A theoretically grounded application of dropout in recurrent
            neural networks").
        noise: ``"example"``: each row its own mask. ``"shared"``: one mask for each sample.
        include: Modules to convert, as in ``sb.rank1``.
        exclude: Modules to leave.
        batch_dim: Axis of the batch in inputs and outputs of two or more dimensions.
        trained: The network is trained already: options that are not given have values that suit it,
            ``rate=0.02``.

    Returns:
        A ``BayesianModel`` of one member.

    Example:
        >>> import torch
        >>> model = mc_dropout(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)))
        >>> model(torch.randn(5, 8), samples=30).shape, model.kl().item()
        (torch.Size([30, 5, 3]), 0.0)
        >>> model.summary().converted
        ['2']
    """
    check_plain(net)
    if place is None:
        place = "own" if any(own_rate(module) for module in net.modules()) else "before"
    check_choice("place", place, PLACES)
    own = place == "own"
    if own and isinstance(rate, Mapping):
        _check_rates(net, rate)
        rate = 0.1  # nothing is inserted
    options = DropoutOptions(factors="output" if place == "after" else "input", rate=rate, unit=unit)  # type: ignore[arg-type]
    conversion = _kept_on(net, include, exclude) if own else _inserted(net, place, options, include, exclude)
    return BayesianModel(
        conversion,
        "mc_dropout",
        {
            "rate": _rates(net, conversion.converted) if own else options.rate,
            "place": place,
            "unit": unit,
            "noise": noise,
            "freeze_base": False,
            "batch_dim": batch_dim,
        },
    )


def _inserted(net: nn.Module, place: str, options: DropoutOptions, include: Selector, exclude: Selector) -> Conversion:
    settings = _Settings(options)
    spared = _spared(net, place, settings) if include is None else {}
    left: Any = [checked_selector("exclude", exclude, net), exactly(spared)] if spared else exclude
    conversion = convert(net, "rank1", settings, include, left, settings.veto, settings.for_module)
    modules = dict(conversion.net.named_modules())
    for part in conversion.parts:
        if part.converted:
            of = settings.for_module(part.name, modules[part.name]).options
            part.reason = f"dropout {'before' if of.has('input') else 'after'} it, rate {of.rate:g}, {of.unit}-wise"
        elif part.name in spared:
            part.reason = f"{spared[part.name]}; `include` it to drop them all the same"
    return conversion


def _spared(net: nn.Module, place: str, settings: _Settings) -> dict[str, str]:
    """Return the names of layers that are left unless they are asked for, with the reason."""
    able = [
        name
        for name, module in net.named_modules()
        if find_converter("rank1", module)[0] is not None and not settings.veto(module)
    ]
    if place == "before":
        pictures = settings.options.unit == "filter" and len(able) > 1 and isinstance(net.get_submodule(able[0]), CONVS)
        return {able[0]: "the first convolution's inputs are whole colours of a picture"} if pictures else {}
    if len(able) < 2:
        raise ValueError(
            f"Expected argument `net` to have layers before its last one for place='after', but it has {len(able)} in "
            "all. Use place='before', or `include` the layer to drop its outputs."
        )
    return {able[-1]: "the last layer's outputs are the answer"}


def _rates(net: nn.Module, names: Iterable[str]) -> dict[str, float | None]:
    modules = dict(net.named_modules(remove_duplicate=False))
    return {name: own_rate(modules[name]) if name in modules else None for name in names}


def _check_rates(net: nn.Module, rates: Mapping[str, float]) -> None:
    found = _rates(net, rates)
    for name, rate in rates.items():
        if found[name] != rate:
            raise ValueError(
                f"Expected argument `net` to have dropout of rate {rate:g} in its module {name!r}, as the saved model "
                f"has, but got {found[name] or 0:g}. Build the network as it was when the model was converted."
            )


def _kept_on(net: nn.Module, include: Selector, exclude: Selector) -> Conversion:
    include, exclude = checked_selector("include", include, net), checked_selector("exclude", exclude, net)
    conversion = Conversion(copy_of(net), all_parameters(net))
    for name, module in conversion.net.named_modules():
        rate, size = own_rate(module), all_parameters(module)
        if rate is None:
            if size := own_parameters(module):
                reason = "the method leaves every weight a point estimate"
                conversion.parts.append(Part(name, type(module).__name__, False, reason, size, size))
            continue
        part = Part(name, type(module).__name__, True, f"its own dropout, rate {rate:g}", size, size)
        conversion.parts.append(part)
        if rate >= 1 or matches(exclude, name, module) or (include is not None and not matches(include, name, module)):
            part.converted = False
            part.reason = "it drops everything" if rate >= 1 else "excluded, or not included"
        else:
            keep_on(module)
    if not conversion.converted:
        raise ValueError(
            "Expected argument `net` to have dropout modules with a rate between 0 and 1 for place='own', but none was "
            "found. Use place='before' or 'after' to insert dropout; calls of torch.nn.functional.dropout cannot be "
            "seen: write them as nn.Dropout."
        )
    return conversion
