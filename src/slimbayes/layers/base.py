"""The two protocols that layers keep: what is random, and what can be folded into a plain layer."""

import os
from abc import abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Self

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrize, remove_spectral_norm, remove_weight_norm

from slimbayes.sampling import Blocks, Draw, Passes, Sampling

__all__ = ["BayesianLayer", "Collects", "Pick", "Stochastic", "along_rows", "fused"]

#: Gives the value of a stochastic part for the draw that is being folded.
Pick = Callable[["Stochastic"], Tensor]


#: ``slimbayes._fast``, or None without it; ``...`` before anybody has asked.
_fast: Any = ...


def fused(operation: str, *args: Any) -> Any:
    """Ask ``slimbayes._fast`` for the result of an operation; None means: use the plain operations.

    This is the only place that knows of ``_fast``. ``SLIMBAYES_NO_FAST=1`` switches it off.
    """
    global _fast
    if torch.compiler.is_compiling():
        return None
    if _fast is ...:
        _fast = _find_fast()
    return None if _fast is None else getattr(_fast, operation)(*args)


def _find_fast() -> Any:
    if os.environ.get("SLIMBAYES_NO_FAST", "0") not in ("", "0"):
        return None
    spec = find_spec("slimbayes._fast")
    if spec is None or spec.origin is None:  # the folder may be deleted, or hold nothing but a compiled library
        return None
    from slimbayes import _fast as found

    return found


class InPass:
    """What takes part in forward passes.

    Attributes:
        passes: The pass under way in each thread, one object for all layers of a model.
    """

    passes: Passes

    @property
    def sampling(self) -> Sampling:
        """The state of the forward pass under way; set it for a layer that is used on its own."""
        passes = self.passes
        if passes.now is passes.at_rest and passes.reached is not None:  # torch.utils.checkpoint runs a part again
            return passes.reached() or passes.now
        return passes.now

    @sampling.setter
    def sampling(self, state: Sampling) -> None:
        self.passes = Passes(state)

    def for_rows(self, name: str, rows: int, draw: Draw, members: int = 1) -> Tensor:
        """Return random numbers for each of ``rows`` rows, ``(rows, *)``: all noise per example comes from here.

        Args:
            name: Of what they are for.
            rows: Number of rows, a multiple of the pass's.
            draw: Makes them: ``draw((members, n), generator)`` for n rows of each member.
            members: Mixture components.
        """
        generator = self.sampling.generator
        if isinstance(generator, Blocks):
            return generator.for_rows(name, rows, draw, members)
        source = self.source(name)
        return draw((members, rows // members), source).flatten(0, 1)

    def for_draws(self, name: str, count: int, draw: Callable[[int, Generator | None], Tensor]) -> Tensor:
        """Return ``draw(count, generator)``: values of ``count`` draws, each for all rows of a draw."""
        generator = self.sampling.generator
        if isinstance(generator, Blocks):
            return generator.for_draws(name, count, draw)
        return draw(count, self.source(name))

    def source(self, name: str) -> Generator | None:
        """Return what to draw the noise of that name from; None for torch's global source."""
        sampling = self.sampling
        tape, generator = sampling.tape, sampling.generator
        if tape is None or torch.compiler.is_compiling():
            return generator
        device = _device_of(self) if generator is None else generator.device
        state = _state(generator, device)
        if tape.again:
            return tape.source(name, generator, state, device)
        tape.states[name] = state
        return generator


def _device_of(part: Any) -> torch.device:
    """Return the device of a part's own tensors."""
    tensors = (*part.parameters(), *part.buffers()) if isinstance(part, nn.Module) else ()
    return tensors[0].device if tensors else torch.device("cpu")


def _state(generator: Generator | None, device: torch.device) -> Tensor:
    """Return the state of a source of randomness; of the device's global one for None."""
    if generator is not None:
        return generator.get_state()
    if device.type == "cpu":
        return torch.get_rng_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


class Stochastic(InPass):
    """A random tensor: a factor, a weight, an embedding table.

    Attributes:
        name: Its path in the model, under which ``BayesianModel.draw`` keeps its values.
    """

    name: str = ""

    @abstractmethod
    def hold(self, members: int, samples: int, generator: Generator | None) -> Tensor:
        """Draw one value per member and sample: ``(members * samples, *shape)``."""

    @abstractmethod
    def at_location(self, member: int) -> Tensor:
        """Return the value of one member at its location."""

    @abstractmethod
    def kl(self) -> Tensor:
        """Return the KL to the prior: ``(members,)``, or a scalar where members share the posterior."""

    @property
    @abstractmethod
    def scale(self) -> Tensor:
        """The scales of the posterior, in the shape of its locations."""

    @abstractmethod
    def log_scale_gradients(self) -> list[Tensor]:
        """Return the gradients with respect to the logarithms that decide the scales; none before a backward pass."""

    def own_means(self) -> tuple[nn.Parameter, ...]:
        """Return parameters of the plain network that became locations of this posterior."""
        return ()

    @property
    def prior_scale(self) -> Tensor | None:
        """The prior's scale, of a posterior whose scales can be set by ``take_scale``; else None."""
        return None

    def take_scale(self, values: Tensor) -> None:
        """Make the scales these, or the nearest ones that this posterior can have."""
        raise TypeError(f"The scales of {self.name or type(self).__name__} cannot be set.")


class Collects:
    """A part whose posterior is made of values met in training, such as SWAG's moments or a chain's samples.

    Attributes:
        collected: Values taken in so far.
        needed: Values without which there is nothing to draw from.
    """

    collected: int
    needed: int = 1

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether enough has been taken in to draw from."""

    @abstractmethod
    def collect(self) -> None:
        """Take in what training has arrived at."""


class NoRowsError(ValueError):
    """A layer's input does not carry the model's rows."""


class BayesianLayer(InPass):
    """A layer with stochastic parts, made from a plain torch layer by changing its class in place.

    The layer object stays the same, so tied weights, shared modules, hooks and references from
    anywhere in the network survive conversion; ``fold`` goes the other way.

    Attributes:
        name: Its path in the model.
        row_dim: Axis of the rows in its input if not the model's ``batch_dim``.
        plain_class: The class it had before.
    """

    name: str = ""
    row_dim: int | None = None
    plain_class: type[nn.Module]

    @classmethod
    def adopt(cls, layer: nn.Module, *args: Any, **kwargs: Any) -> Self:
        """Turn a plain layer into this class, keeping its weights; ``set_up`` adds the rest."""
        plain_class: type[nn.Module] = type(layer)
        computed = parametrize.is_parametrized(layer)
        # torch computes a parametrized weight in a property of the layer's own class, which must stay one of its bases.
        layer.__class__ = type(cls.__name__, (cls, plain_class), {"__module__": cls.__module__}) if computed else cls
        assert isinstance(layer, cls)
        layer.begin(plain_class, *args, **kwargs)
        return layer

    def begin(self, plain_class: type[nn.Module], *args: Any, **kwargs: Any) -> None:
        """Finish a new layer, after torch's own constructor has made its weights."""
        self.plain_class = plain_class
        self.set_up(*args, **kwargs)
        share_passes(self, Passes())
        name_parts(self)

    @abstractmethod
    def set_up(self, *args: Any, **kwargs: Any) -> None:
        """Add stochastic parts and per-member biases to a layer that has just been adopted."""

    @abstractmethod
    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Turn this layer, in place, into a plain one with the draw given by ``pick`` in its weights."""

    @property
    def label(self) -> str:
        """What error messages call this layer: its path, or its class where it stands alone."""
        return self.name or type(self).__name__

    def enter(self) -> Sampling:
        """Return the sampling state at the start of ``forward``, noting that this layer ran."""
        sampling = self.passes.now
        if sampling.in_model and sampling.rows is None:
            if not self.passes.run_again(self.name):
                raise RuntimeError(
                    f"Layer {self.label} was called outside a forward pass of its model, and cannot know its draws. "
                    "Call the model, or use model.member(k) for a plain network."
                )
            return self.sampling
        if sampling.tape is not None:
            sampling.tape.calls[self.name] = sampling.tape.calls.get(self.name, 0) + 1
        if sampling.seen is not None:
            sampling.seen.setdefault(self.name, [])
        return sampling

    def rows_of(self, x: Tensor, axis: int) -> int:
        """Return the rows on ``axis``, or raise if they are not the model's rows."""
        rows, made, seen = x.shape[axis], self.sampling.rows, self.sampling.seen
        if seen is not None:
            seen[self.name].append((rows,))
        if made is not None and rows % made:
            raise NoRowsError(
                f"Layer {self.label} got {rows} rows on axis {axis} of an input of shape {tuple(x.shape)}, but the "
                f"model's batch has {made} rows. Its input does not carry the batch on that axis: set the layer's "
                "`row_dim`, convert with another `batch_dim`, or exclude it. (The batch size is that of the first "
                "input; if that is shared by all examples, mark it sb.BatchAxis(..., dim=None).)"
            )
        return rows

    def rows_axis(self, x: Tensor) -> int:
        """Return the axis of ``x`` that holds the rows: 0 in two dimensions, else as declared."""
        if x.dim() < 2:
            raise ValueError(
                f"Layer {self.label} got an input of shape {tuple(x.shape)} with no batch axis. "
                "Give it a batch, even of one."
            )
        if x.dim() == 2:
            return 0
        axis = self.sampling.batch_dim if self.row_dim is None else self.row_dim
        if not 0 <= axis < x.dim() - 1:
            raise ValueError(
                f"Layer {self.label} is told that its rows are on axis {axis}, but got an input of shape "
                f"{tuple(x.shape)}, whose last axis holds the channels. Set the layer's `row_dim`."
            )
        return axis


def draw_groups(sampling: Sampling, members: int, rows: int) -> int:
    """Return how many different draws ``rows`` rows of a layer's input are to have."""
    if sampling.noise == "shared":
        return members * sampling.samples
    return rows if sampling.rows is None else sampling.rows


def along_rows(
    x: Tensor, values: Any, axis: int, channel_dim: int, additive: bool, layer: str = "", bias: Tensor | None = None
) -> Tensor:
    """Multiply (or add) one vector of channel values to each group of consecutive rows.

    Args:
        x: Input with rows on ``axis`` and channels on ``channel_dim``.
        values: ``(groups, channels)``; row ``i`` of ``x`` takes ``values[i // (rows / groups)]``. Or something whose
            ``values()`` are that.
        axis: Axis of the rows.
        channel_dim: Axis of the channels (negative counts from the end).
        additive: Add instead of multiply.
        layer: The layer's label, for error messages.
        bias: Added afterwards in the same way, ``(groups, channels)``, or None.

    Example:
        >>> import torch
        >>> along_rows(torch.ones(4, 3), torch.tensor([[1.0, 2, 3], [4, 5, 6]]), 0, 1, False)
        tensor([[1., 2., 3.],
                [1., 2., 3.],
                [4., 5., 6.],
                [4., 5., 6.]])
    """
    if not additive and (found := fused("scale_rows", x, values, bias, axis, channel_dim)) is not None:
        scaled: Tensor = found
        return scaled
    if not isinstance(values, Tensor):
        values = values.values()
    if bias is not None:
        scaled = along_rows(x, values, axis, channel_dim, additive, layer)
        return along_rows(scaled, bias, axis, channel_dim, True, layer)
    groups, rows = values.shape[0], x.shape[axis]
    if rows % groups:
        raise ValueError(
            f"Layer {layer} got {rows} rows on axis {axis} of an input of shape "
            f"{tuple(x.shape)}, which cannot be dealt to {groups} draws. Its input does not carry the model's "
            f"batch on that axis: set the layer's `row_dim`, convert with another `batch_dim`, or exclude it."
        )
    channel_dim = channel_dim % x.dim()
    if x.shape[channel_dim] != values.shape[1]:  # a single channel would broadcast in silence
        raise ValueError(
            f"Layer {layer} expected {values.shape[1]} channels on axis {channel_dim} of its input, but got "
            f"shape {tuple(x.shape)}."
        )
    shape = [1] * x.dim()
    shape[axis], shape[channel_dim] = groups, values.shape[1]
    values = values.to(x.dtype)
    if groups == rows:
        values = values.view(shape)
        return x + values if additive else x * values
    grouped = x.unflatten(axis, (groups, rows // groups))
    values = values.view(shape).unsqueeze(axis + 1)
    return (grouped + values if additive else grouped * values).flatten(axis, axis + 1)


def member_bias(bias: nn.Parameter | None, members: int, memo: dict[int, nn.Parameter]) -> nn.Parameter | None:
    """Return ``bias`` repeated for each member, the same object for biases that were tied."""
    if bias is None:
        return None
    if id(bias) not in memo:
        repeated = bias.detach().expand(members, -1).clone()
        memo[id(bias)] = nn.Parameter(repeated, requires_grad=bias.requires_grad)
        memo[-id(bias)] = bias  # keeps the old object alive, so that its id is not used again
    return memo[id(bias)]


def share_passes(module: Any, passes: Passes) -> None:
    """Make every Bayesian part of ``module`` take part in the same passes."""
    for part in module.modules():
        if isinstance(part, InPass):
            part.passes = passes


def name_parts(module: Any) -> None:
    """Name every Bayesian part below ``module`` by its path; a model will prepend the layer's own."""
    for path, part in module.named_modules():
        if path and isinstance(part, (BayesianLayer, Stochastic)):
            part.name = path


def plain_base(cls: type) -> type[nn.Module]:
    """Return the torch class that a Bayesian layer class extends."""
    return next(base for base in cls.__mro__ if issubclass(base, nn.Module) and not issubclass(base, BayesianLayer))


def computing_hook(layer: nn.Module) -> Callable[[Any], Any] | None:
    """Return what removes the hook by which torch's older weight_norm or spectral_norm computes ``layer.weight``."""
    own = {name for name, _ in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False))}
    if {"weight_g", "weight_v"} <= own:
        return remove_weight_norm
    return remove_spectral_norm if {"weight_orig", "weight_u"} <= own else None


def in_few_bits(weight: Any) -> bool:
    """Tell whether a weight is kept in fewer bits: a tensor of another library's class, such as torchao's.

    Example:
        >>> in_few_bits(nn.Linear(2, 2).weight)
        False
    """
    kind = type(weight)
    return isinstance(weight, Tensor) and kind.dequantize is not Tensor.dequantize


def settle_weight(layer: BayesianLayer) -> None:
    """Put an ordinary parameter, before folding, in the place of a weight that is computed, or kept in fewer bits."""
    assert isinstance(layer, nn.Module)
    weight: Any = None
    if not parametrize.is_parametrized(layer) and in_few_bits(getattr(layer, "weight", None)):
        weight = layer.weight
        layer.register_parameter("weight", nn.Parameter(weight.dequantize()))
        return
    if parametrize.is_parametrized(layer):
        layer.parametrizations.eval()  # type: ignore[union-attr]  # a spectral norm stays what it is
        weight = layer.weight
        del layer.parametrizations
        layer.plain_class = layer.plain_class.__bases__[0]
        layer.__class__ = type(layer).__bases__[0]
        layer.register_parameter("weight", nn.Parameter(weight.detach().clone()))
    elif (remove := computing_hook(layer)) is not None:
        remove(layer)


def become_plain(layer: BayesianLayer, modules: tuple[str, ...], attributes: tuple[str, ...]) -> None:
    """Strip a folded layer of what conversion added, and give it back its class."""
    assert isinstance(layer, nn.Module)
    for name in modules:
        layer._modules.pop(name, None)
        layer.__dict__.pop(name, None)
    plain_class: Any = layer.plain_class
    for name in (*attributes, "name", "row_dim", "passes", "plain_class"):
        layer.__dict__.pop(name, None)
    layer.__class__ = plain_class
