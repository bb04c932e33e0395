"""Multi-head attention with Gaussian projections."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from slimbayes.layers._gaussian_kernels import GaussianKernels
from slimbayes.layers.gaussian import GaussianOptions
from slimbayes.layers.linear import GaussianLinear
from slimbayes.layers.multihead import Attention

__all__ = ["GaussianMultiheadAttention"]


class GaussianMultiheadAttention(GaussianKernels, Attention):
    """``nn.MultiheadAttention`` whose projections are Gaussian; the learned extra key and value stay points.

    Shape:
        - Query ``(target, rows, embed_dim)``, key and value ``(source, rows, ...)``; the first two axes are swapped
          with ``batch_first``. Output: as ``nn.MultiheadAttention``.

    Example:
        >>> import torch
        >>> layer = GaussianMultiheadAttention(8, 2, batch_first=True, estimator="flipout")
        >>> x = torch.randn(6, 5, 8)
        >>> layer(x, x, x)[0].shape
        torch.Size([6, 5, 8])
    """

    def set_up(self, options: GaussianOptions, memo: dict[int, Any] | None = None) -> None:
        """Add the posteriors of the projections, and convert the output projection."""
        memo = {} if memo is None else memo
        super().set_up(options, memo)
        out_proj = GaussianLinear.adopt(self.out_proj, options, memo)
        # out_proj sees the attention's own layout whatever the model's batch axis is.
        out_proj.row_dim = self.row_axis

    def kernel_names(self) -> Iterator[str]:
        """Yield the names of the input projections and their bias."""
        if self.in_proj_weight is None:
            yield from ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        else:
            yield "in_proj_weight"
        if self.in_proj_bias is not None:
            yield "in_proj_bias"

    def project(self, projection: str, x: Tensor) -> Tensor:
        """Project with what this pass draws."""
        third = "qkv".index(projection)
        own = slice(third * self.embed_dim, (third + 1) * self.embed_dim)
        rows = self.rows_of(x, self.row_axis)
        bias = None if self.in_proj_bias is None else "in_proj_bias"
        if self.in_proj_weight is not None:
            apply = self.dense_map("in_proj_weight", bias, rows, own, own)
        else:
            apply = self.dense_map(f"{projection}_proj_weight", bias, rows, bias_part=own)
        return apply(x, self.row_axis)
