"""Linear layers of other libraries, which are imported only by networks that have them.

``transformers.pytorch_utils.Conv1D`` stores its weight transposed, as ``(in, out)``; PyTorch Geometric's ``Linear`` is
torch's by another name; bitsandbytes keeps weights in few bits. The Bayesian classes (``Rank1Conv1D``,
``GaussianConv1D``, ``Rank1GraphLinear``, ...) are made when they are first asked for, because they extend those of the
library.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Self

import torch
from torch import Tensor, nn

from slimbayes.layers.base import Pick
from slimbayes.layers.gaussian_layer import Gaussian
from slimbayes.layers.linear import LinearOp
from slimbayes.layers.rank1 import FactorOptions, Rank1, fold_kernel

__all__ = ["FEW_BITS", "FOREIGN", "foreign_converter", "foreign_layer"]


class _Conv1DOp:
    """``x @ W`` without its bias."""

    channel_dim = -1
    #: Axis of the output channels in the weight.
    output_dim = 1
    weight: Tensor

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and output channels."""
        return self.weight.shape[0], self.weight.shape[1]

    def apply_weight(self, x: Tensor, weight: Tensor) -> Tensor:
        """Apply the map with one weight for all rows."""
        return x @ weight

    def apply_weights(self, x: Tensor, weights: Tensor, axis: int) -> Tensor:
        """Apply ``(groups, in, out)`` weights, each to its group of consecutive rows on ``axis``."""
        rows = x.movedim(axis, 0)
        y = rows.reshape(weights.shape[0], -1, x.shape[-1]) @ weights
        return y.view(*rows.shape[:-1], weights.shape[2]).movedim(0, axis)


class _GraphLinearOp(LinearOp):
    """PyTorch Geometric's ``Linear``, which names its sizes as convolutions do."""

    in_channels: int
    out_channels: int

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and output channels."""
        return self.in_channels, self.out_channels


class _Rank1Op(Rank1):
    """What rank-1 layers need beside ``apply_weight``."""

    output_dim: int

    def op(self, x: Tensor, *args: Any) -> Tensor:
        return self.apply_weight(x, self.weight)  # type: ignore[operator]

    def scaled_weight(self, scale: Tensor) -> Tensor:
        return self.weight * (scale.T if self.output_dim else scale)

    def constant_response(self, value: Tensor) -> Tensor:
        return self.op(value)


class _FewBitsOp(Rank1):
    """A linear layer of bitsandbytes, whose own ``forward`` knows how its weight is kept; it is left without a bias.

    It is in training mode always: outside of it, on a CPU, that ``forward`` packs the weight so that no gradient passes
    any more, or rounds its inputs to 8 bits.
    """

    in_features: int
    out_features: int

    def set_up(self, options: FactorOptions, memo: dict[int, nn.Parameter] | None = None) -> None:
        super().set_up(options, memo)
        self.outer_bias, self.bias = self.bias, None
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Stay in training mode."""
        return super().train(True)

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and output channels."""
        return self.in_features, self.out_features

    def op(self, x: Tensor, *args: Any) -> Tensor:
        """Apply the layer's own product."""
        y: Tensor = self.plain_class.forward(self, x)
        if x.requires_grad and torch.is_grad_enabled() and not y.requires_grad:
            raise RuntimeError(
                f"Layer {self.label} passes no gradient on: bitsandbytes has packed its weight for prediction on a "
                "CPU. Convert the network before it has predicted anything."
            )
        return y

    def member_biases(self) -> Tensor | None:
        """Return the biases, ``(members, out)`` or ``(1, out)``."""
        bias: Tensor | None = self.outer_bias
        return bias if bias is None or bias.dim() == 2 else bias.unsqueeze(0)

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Return an ordinary ``nn.Linear`` with the weight that the layer stands for, and the factors in it."""
        s, r = (None if part is None else pick(part) for part in (self.input_factor, self.output_factor))
        biases = self.member_biases()
        with torch.no_grad():
            bias = None if biases is None else biases[member % len(biases)]
            like = s if s is not None else r
            one = torch.eye(self.in_features, device=self.weight.device, dtype=None if like is None else like.dtype)
            weight, bias = fold_kernel(self, self.op(one).T, bias, s, r, self.additive, self.scales_bias)
            plain = nn.Linear(*self.sizes(), bias=bias is not None, device=weight.device, dtype=weight.dtype)
            plain.weight.copy_(weight)
            if bias is not None:
                plain.bias.copy_(bias)
        return plain


#: Layers that keep their weights in few bits, which can have factors around them and no distribution of weights.
FEW_BITS: dict[str, tuple[type, str]] = {
    "bitsandbytes.nn.modules.Linear8bitLt": (_FewBitsOp, "Linear8bitLt"),
    "bitsandbytes.nn.modules.Linear4bit": (_FewBitsOp, "Linear4bit"),
}
#: By the library's class: what its linear map is, and the name of the Bayesian classes.
FOREIGN: dict[str, tuple[type, str]] = {
    "transformers.pytorch_utils.Conv1D": (_Conv1DOp, "Conv1D"),
    "torch_geometric.nn.dense.linear.Linear": (_GraphLinearOp, "GraphLinear"),
}


@cache
def foreign_layer(library_class: str, kind: Any) -> Any:
    """Return the Bayesian class, of kind ``Rank1`` or ``Gaussian``, that extends another library's layer.

    Args:
        library_class: Qualified name of the library's class, one of ``FOREIGN`` or ``FEW_BITS``.
        kind: ``Rank1`` or ``Gaussian``.
    """
    op, name = {**FOREIGN, **FEW_BITS}[library_class]
    module, _, attribute = library_class.rpartition(".")
    plain: type[nn.Module] = getattr(import_module(module), attribute)
    base = _Rank1Op if kind is Rank1 else kind
    bases = (op, plain) if issubclass(op, Rank1) else (op, base, plain)
    doc = f"``{library_class}`` with rank-1 factors." if kind is Rank1 else f"``{library_class}`` of Gaussian weights."
    return type(f"{kind.__name__}{name}", bases, {"__module__": __name__, "__doc__": doc})


def foreign_converter(library_class: str, kind: Any) -> Callable[[nn.Module, Any], nn.Module]:
    """Return the converter of another library's layer, which imports that library only when it is called."""

    def convert(layer: nn.Module, settings: Any) -> nn.Module:
        adopted: nn.Module = foreign_layer(library_class, kind).adopt(layer, settings.options, settings.memo)
        return adopted

    return convert


def __getattr__(name: str) -> Any:
    """Find a Bayesian class by its name, as pickle does."""
    for library_class, (_, own) in {**FOREIGN, **FEW_BITS}.items():
        for kind in (Rank1, Gaussian):
            if name == f"{kind.__name__}{own}":
                return foreign_layer(library_class, kind)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
