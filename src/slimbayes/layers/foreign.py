"""Linear layers of other libraries, which are imported only by networks that have them.

``transformers.pytorch_utils.Conv1D`` stores its weight transposed, as ``(in, out)``; PyTorch Geometric's ``Linear`` is
torch's by another name. The Bayesian classes (``Rank1Conv1D``, ``GaussianConv1D``, ``Rank1GraphLinear``,
``GaussianGraphLinear``) are made when they are first asked for, because they extend those of the library.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from slimbayes.layers.gaussian_layer import Gaussian
from slimbayes.layers.linear import LinearOp
from slimbayes.layers.rank1 import Rank1

__all__ = ["FOREIGN", "foreign_converter", "foreign_layer"]


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


#: By the library's class: what its linear map is, and the name of the Bayesian classes.
FOREIGN: dict[str, tuple[type, str]] = {
    "transformers.pytorch_utils.Conv1D": (_Conv1DOp, "Conv1D"),
    "torch_geometric.nn.dense.linear.Linear": (_GraphLinearOp, "GraphLinear"),
}


@cache
def foreign_layer(library_class: str, kind: Any) -> Any:
    """Return the Bayesian class, of kind ``Rank1`` or ``Gaussian``, that extends another library's layer.

    Args:
        library_class: Qualified name of the library's class, one of ``FOREIGN``.
        kind: ``Rank1`` or ``Gaussian``.
    """
    op, name = FOREIGN[library_class]
    module, _, attribute = library_class.rpartition(".")
    plain: type[nn.Module] = getattr(import_module(module), attribute)
    base = _Rank1Op if kind is Rank1 else kind
    doc = f"``{library_class}`` with rank-1 factors." if kind is Rank1 else f"``{library_class}`` of Gaussian weights."
    return type(f"{kind.__name__}{name}", (op, base, plain), {"__module__": __name__, "__doc__": doc})


def foreign_converter(library_class: str, kind: Any) -> Callable[[nn.Module, Any], nn.Module]:
    """Return the converter of another library's layer, which imports that library only when it is called."""

    def convert(layer: nn.Module, settings: Any) -> nn.Module:
        adopted: nn.Module = foreign_layer(library_class, kind).adopt(layer, settings.options, settings.memo)
        return adopted

    return convert


def __getattr__(name: str) -> Any:
    """Find a Bayesian class by its name, as pickle does."""
    for library_class, (_, own) in FOREIGN.items():
        for kind in (Rank1, Gaussian):
            if name == f"{kind.__name__}{own}":
                return foreign_layer(library_class, kind)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
