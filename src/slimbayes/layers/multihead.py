"""Multi-head attention without torch's fused path, which reads the weights directly and bypasses what is random."""

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.base import BayesianLayer

__all__ = ["Attention"]


class Attention(BayesianLayer, nn.MultiheadAttention):
    """What attention layers share; a subclass adds its projections."""

    @abstractmethod
    def project(self, projection: str, x: Tensor) -> Tensor:
        """Return the queries ``"q"``, keys ``"k"`` or values ``"v"`` of ``x``, with what this pass draws."""

    @property
    def row_axis(self) -> int:
        """Axis of the rows in queries, keys and values."""
        return 0 if self.batch_first else 1

    def _heads(self, x: Tensor) -> Tensor:
        """Bring a projection to ``(rows, heads, length, head_dim)``."""
        x = x if self.batch_first else x.transpose(0, 1)
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, as ``nn.MultiheadAttention`` does; the arguments are its own."""
        self.enter()
        if query.dim() != 3:
            raise ValueError(
                f"Layer {self.label} expected a batched query (3 dimensions), but got shape {tuple(query.shape)}. "
                "Give it a batch, even of one."
            )
        if is_causal and attn_mask is None:
            raise ValueError("`is_causal` is only a hint about `attn_mask`: give the causal mask too.")
        q, k, v = (self.project(p, x) for p, x in zip("qkv", (query, key, value), strict=True))
        mask = self._mask(attn_mask, key_padding_mask, q, k)
        k, v, mask = self._extend(k, v, mask)
        q, k, v = self._heads(q), self._heads(k), self._heads(v)
        dropout = self.dropout if self.training else 0.0
        weights: Tensor | None = None
        if need_weights:
            scores = (q / math.sqrt(self.head_dim)) @ k.transpose(-2, -1)
            weights = (scores if mask is None else scores + mask).softmax(-1)
            weights = F.dropout(weights, dropout)
            attended = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            attended = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        attended = attended.transpose(1, 2).flatten(2)
        return self.out_proj(attended if self.batch_first else attended.transpose(0, 1)), weights

    def _mask(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        """Merge the two masks into one that is added to the scores: ``(rows | 1, heads | 1, target | 1, source)``."""
        rows, target, source = q.shape[self.row_axis], q.shape[1 - self.row_axis], k.shape[1 - self.row_axis]
        mask: Tensor | None = None
        if attn_mask is not None:
            allowed = [(target, source), (rows * self.num_heads, target, source)]
            mask = self._additive("attn_mask", attn_mask, allowed, q.dtype)
            mask = mask.unflatten(0, (rows, self.num_heads)) if mask.dim() == 3 else mask
        if key_padding_mask is not None:
            padding = self._additive("key_padding_mask", key_padding_mask, [(rows, source)], q.dtype)[:, None, None, :]
            mask = padding if mask is None else mask + padding
        return mask

    def _additive(self, argument: str, mask: Tensor, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Tensor:
        """Check a mask and return it as a tensor to add, minus infinity where a boolean one is true."""
        if tuple(mask.shape) not in shapes:
            raise ValueError(
                f"Layer {self.label} expected argument `{argument}` to be of shape {' or '.join(map(str, shapes))}, "
                f"but got {tuple(mask.shape)}. If the model repeated a mask that all rows share, give it as "
                "sb.BatchAxis(mask, dim=None)."
            )
        if mask.dtype == torch.bool:
            return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
        if not mask.is_floating_point():
            raise ValueError(
                f"Layer {self.label} expected argument `{argument}` to be boolean or floating, but got {mask.dtype}."
            )
        return mask.to(dtype)

    def _extend(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the learned and the zero key, where the module was built with them; neither is masked."""
        axis, rows = 1 - self.row_axis, k.shape[self.row_axis]
        extra = 0
        if self.bias_k is not None and self.bias_v is not None:
            shape = (rows, 1, -1) if self.batch_first else (1, rows, -1)
            k, v = (
                torch.cat([k, self.bias_k.expand(shape)], axis),
                torch.cat([v, self.bias_v.expand(shape)], axis),
            )
            extra += 1
        if self.add_zero_attn:
            zero = torch.zeros_like(k.narrow(axis, 0, 1))
            k, v = torch.cat([k, zero], axis), torch.cat([v, zero], axis)
            extra += 1
        return k, v, mask if mask is None or not extra else F.pad(mask, (0, extra))
