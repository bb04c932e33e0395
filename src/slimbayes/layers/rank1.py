"""What all rank-1 layers share: y = op(x ∘ s) ∘ r + b_k, Eq. 1 with a bias for each member."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from slimbayes.layers.base import BayesianLayer, Pick, along_rows, become_plain, member_bias, plain_base
from slimbayes.layers.dropout_mask import ElementMask, refuse_to_fold
from slimbayes.layers.factor import Factor, FactorOptions
from slimbayes.layers.row_factor import RowFactor

__all__ = ["Drawn", "Rank1", "draws_of", "fold_kernel", "fold_scale", "perturb"]

#: What rows take of a factor: values ``(groups, [rank,] channels)``, something whose ``values()`` are that, or a mask
#: that is drawn when the input is there.
Drawn = Any


def draws_of(layer: BayesianLayer, factor: RowFactor | ElementMask | None, rows: int) -> Drawn:
    """Return what ``rows`` rows take of a factor in this pass."""
    return factor.drawn(rows, layer.label) if isinstance(factor, RowFactor) else factor


def _terms(drawn: Any) -> tuple[Any, ...]:
    """Return what each of the R terms takes."""
    return drawn.unbind(1) if isinstance(drawn, Tensor) and drawn.dim() == 3 else (drawn,)


def perturb(
    layer: BayesianLayer,
    op: Any,
    x: Tensor,
    s: Drawn,
    r: Drawn,
    axis: int,
    channel_dim: int,
    additive: bool,
    bias: Tensor | None = None,
) -> Tensor:
    r"""Apply a linear ``op`` between an input and an output factor.

    .. math::
        y = \sum_{j=1}^R op(x \circ s_j) \circ r_j + b \qquad \text{or, additive,} \qquad y = op(x + s) + r + b

    Args:
        layer: The layer, for error messages.
        op: A linear map of ``x`` without bias.
        x: Input with rows on ``axis`` and channels on ``channel_dim``.
        s: What the rows take of the input factor.
        r: What they take of the output factor.
        axis: Axis of the rows.
        channel_dim: Axis of the channels, before and after ``op``.
        additive: Add the factors instead of multiplying.
        bias: b, ``(members, channels)`` or ``(1, channels)``, or None.
    """
    if isinstance(s, ElementMask):
        return _shifted(layer, op(s.masked(x, axis)), bias, axis, channel_dim)
    if isinstance(r, ElementMask):
        return _shifted(layer, r.masked(op(x), axis), bias, axis, channel_dim)
    inputs: tuple[Any, ...] = (None,) if s is None else _terms(s)
    outputs: tuple[Any, ...] = (None,) if r is None else _terms(r)
    if s is None:
        inputs = (None,) * len(outputs)
    elif r is None:
        outputs = (None,) * len(inputs)
    within = bias if len(inputs) == 1 and r is not None else None  # added together with r
    total: Tensor | None = None
    for before, after in zip(inputs, outputs, strict=True):
        term = op(x if before is None else along_rows(x, before, axis, channel_dim, additive, layer.label))
        if after is not None:
            term = along_rows(term, after, axis, channel_dim, additive, layer.label, within)
        total = term if total is None else total + term
    assert total is not None
    return total if within is not None else _shifted(layer, total, bias, axis, channel_dim)


def _shifted(layer: BayesianLayer, y: Tensor, bias: Tensor | None, axis: int, channel_dim: int) -> Tensor:
    return y if bias is None else along_rows(y, bias, axis, channel_dim, True, layer.label)


def fold_scale(s: Tensor | None, r: Tensor | None, inputs: int, outputs: int) -> Tensor | float:
    """Return F = sum_j r_j s_j^T, shape ``(outputs, inputs)``, of one draw; missing factors are ones."""
    if s is None and r is None:
        return 1.0
    some = s if s is not None else r
    assert some is not None
    refuse_to_fold(some)
    rank = 1 if some.dim() == 1 else some.shape[0]
    s = some.new_ones(rank, inputs) if s is None else s.view(rank, inputs)
    r = some.new_ones(rank, outputs) if r is None else r.view(rank, outputs)
    return torch.einsum("jo,ji->oi", r, s)


def fold_kernel(
    layer: BayesianLayer,
    weight: Tensor,
    bias: Tensor | None,
    s: Tensor | None,
    r: Tensor | None,
    additive: bool,
    scales_bias: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the weight ``(out, in)`` and bias of one draw: W ∘ F, or for additive factors b + W s + r."""
    if not additive:
        scaled = weight * fold_scale(s, r, weight.shape[1], weight.shape[0])
        return scaled, bias * r if scales_bias and bias is not None and r is not None else bias
    if bias is None:
        raise ValueError(
            f"Layer {layer.label} has an additive perturbation and no bias to fold it into. "
            "Build it with bias=True, or use perturbation='multiplicative'."
        )
    shifted = bias if s is None else bias + weight @ s
    return weight, shifted if r is None else shifted + r


class Rank1(BayesianLayer, nn.Module):
    """Mixin for layers with one weight and one bias. A subclass names its channels and its linear map.

    To support a layer class of your own, subclass this and your class, implement ``sizes``, ``op``,
    ``scaled_weight`` (and ``constant_response`` for additive perturbations), and register
    ``YourClass.adopt`` with ``sb.register_converter``.

    Attributes:
        weight: The shared weight W.
        bias: ``(members, out)``; ``(out,)`` with ``member_bias=False``; None if the layer has none.
        input_factor: s, a ``Factor`` over input channels, or None.
        output_factor: r, a ``Factor`` over output channels, or None.
    """

    channel_dim: int = -1
    weight: Tensor
    bias: Any
    input_factor: Factor | None
    output_factor: Factor | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options, plain = FactorOptions.split(kwargs)
        super().__init__(*args, **plain)
        self.begin(plain_base(type(self)), options)

    def set_up(self, options: FactorOptions, memo: dict[int, nn.Parameter] | None = None) -> None:
        """Add the factors and repeat the bias for each member."""
        inputs, outputs = self.sizes()
        kwargs: dict[str, Any] = {"device": self.weight.device, "dtype": self.weight.dtype}
        self.additive = options.perturbation == "additive"
        self.members, self.scales_bias = options.members, options.scales_bias
        self.input_factor = self.output_factor = None
        if options.has("input"):
            self.input_factor = options.factor(inputs, summed=options.factors == "input", **kwargs)
        if options.has("output"):
            self.output_factor = options.factor(outputs, summed=True, **kwargs)
        if options.member_bias and self.bias is not None:
            assert isinstance(self.bias, nn.Parameter)
            self.bias = member_bias(self.bias, options.members, {} if memo is None else memo)

    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and output channels."""

    @abstractmethod
    def op(self, x: Tensor, *args: Any) -> Tensor:
        """Apply the layer's linear map, without bias."""

    @abstractmethod
    def scaled_weight(self, scale: Tensor) -> Tensor:
        """Return the weight times ``scale`` of shape ``(out channels, in channels)``."""

    def constant_response(self, value: Tensor) -> Tensor:
        """Return ``op`` of an input that is ``value`` (one number a channel) everywhere."""
        raise ValueError(
            f"Layer {self.label} has an additive perturbation, which no plain {self.plain_class.__name__} "
            "with its padding can express. Use perturbation='multiplicative'."
        )

    def forward(self, input: Tensor, *args: Any) -> Tensor:
        """Apply the layer to rows that are member-major."""
        self.enter()
        axis = self.rows_axis(input)
        rows = self.rows_of(input, axis)
        s, r = draws_of(self, self.input_factor, rows), draws_of(self, self.output_factor, rows)
        bias = self.member_biases()

        def op(z: Tensor) -> Tensor:
            y = self.op(z, *args)
            return _shifted(self, y, bias, axis, self.channel_dim) if self.scales_bias else y

        outer = None if self.scales_bias else bias
        return perturb(self, op, input, s, r, axis, self.channel_dim, self.additive, outer)

    def member_biases(self) -> Tensor | None:
        """Return the biases, ``(members, out)`` or ``(1, out)``."""
        bias: Tensor | None = self.bias
        return bias if bias is None or bias.dim() == 2 else bias.unsqueeze(0)

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain layer with weight W ∘ sum_j r_j s_j^T (Eq. 1) and the member's bias."""
        s = None if self.input_factor is None else pick(self.input_factor)
        r = None if self.output_factor is None else pick(self.output_factor)
        weight, bias = self.weight, self.bias
        with torch.no_grad():
            bias = bias[member] if bias is not None and bias.dim() == 2 else bias
            if self.additive:
                shift = torch.zeros(self.sizes()[1], device=weight.device, dtype=weight.dtype)
                shift = shift if s is None else shift + self.constant_response(s)
                shift = shift if r is None else shift + r
                bias = shift if bias is None else bias + shift
            elif isinstance(scale := fold_scale(s, r, *self.sizes()), Tensor):
                weight = self.scaled_weight(scale.to(weight.dtype))
                if self.scales_bias and bias is not None and r is not None:
                    bias = bias * r
            self.weight = nn.Parameter(weight.detach().clone())
            self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        become_plain(self, ("input_factor", "output_factor"), ("additive", "members", "scales_bias"))
        return self
