"""Rank-1 multi-head attention: factors on the query, key, value and output projections."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.base import BayesianLayer, Pick, along_rows, member_bias, plain_base
from slimbayes.layers.factor import Factor, FactorOptions
from slimbayes.layers.linear import Rank1Linear
from slimbayes.layers.rank1 import become_plain, fold_kernel, perturb

__all__ = ["Rank1MultiheadAttention"]


class Rank1MultiheadAttention(BayesianLayer, nn.MultiheadAttention):
    """``nn.MultiheadAttention`` with rank-1 factors on its four projections.

    Torch's own module has a fused path that reads the weights directly; this one has none, so that the
    factors are never bypassed.

    Shape:
        - Query ``(target, members * m, embed_dim)``, key and value ``(source, members * m, ...)``; the first
          two axes change places with ``batch_first``. Output: as ``nn.MultiheadAttention``.

    Example:
        >>> layer = Rank1MultiheadAttention(8, 2, batch_first=True, members=3)
        >>> x = torch.randn(6, 5, 8)
        >>> output, weights = layer(x, x, x)
        >>> output.shape, weights.shape
        (torch.Size([6, 5, 8]), torch.Size([6, 5, 5]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options, plain = FactorOptions.split(kwargs)
        super().__init__(*args, **plain)
        self.begin(plain_base(type(self)), options)

    def set_up(self, options: FactorOptions, memo: dict[int, nn.Parameter] | None = None) -> None:
        """Add factors to the projections and repeat their biases for each member."""
        memo = {} if memo is None else memo
        self.additive = options.perturbation == "additive"
        self.members = options.members
        self.factors = nn.ModuleDict()
        for projection in "qkv":
            weight = self.projection_weight(projection)
            place: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
            if options.has("input"):
                summed = options.factors == "input"
                self.factors[f"{projection}_input"] = Factor(weight.shape[1], options, summed, **place)
            if options.has("output"):
                self.factors[f"{projection}_output"] = Factor(weight.shape[0], options, True, **place)
        if options.member_bias and self.in_proj_bias is not None:
            self.in_proj_bias = member_bias(self.in_proj_bias, options.members, memo)  # type: ignore[assignment]
        out_proj = Rank1Linear.adopt(self.out_proj, options, memo)
        # out_proj sees the attention's own layout whatever the model's batch axis is.
        out_proj.row_dim = self.row_axis

    @property
    def row_axis(self) -> int:
        """Axis of the rows in queries, keys and values."""
        return 0 if self.batch_first else 1

    def projection_weight(self, projection: str) -> Tensor:
        """Return the shared weight of ``"q"``, ``"k"`` or ``"v"``."""
        if self.in_proj_weight is None:
            weight: Tensor = getattr(self, f"{projection}_proj_weight")
            return weight
        return self.in_proj_weight.chunk(3)["qkv".index(projection)]

    def _factor(self, name: str) -> Factor | None:
        return self.factors[name] if name in self.factors else None  # type: ignore[return-value]  # noqa: SIM401

    def _project(self, projection: str, x: Tensor) -> Tensor:
        weight = self.projection_weight(projection)
        y = perturb(
            self,
            lambda z: F.linear(z, weight),
            x,
            self._factor(f"{projection}_input"),
            self._factor(f"{projection}_output"),
            self.row_axis,
            -1,
            self.additive,
        )
        if self.in_proj_bias is None:
            return y
        bias = self.in_proj_bias if self.in_proj_bias.dim() == 2 else self.in_proj_bias.unsqueeze(0)
        bias = bias.chunk(3, 1)["qkv".index(projection)]
        return along_rows(y, bias, self.row_axis, -1, True, self.label)

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
        q, k, v = (self._project(p, x) for p, x in zip("qkv", (query, key, value), strict=True))
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

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain attention with the member's projections; ``out_proj`` folds itself."""
        with torch.no_grad():
            bias: Tensor | None = self.in_proj_bias
            bias = bias[member] if bias is not None and bias.dim() == 2 else bias
            biases: list[Any] = [None] * 3 if bias is None else list(bias.chunk(3))
            weights = []
            for i, projection in enumerate("qkv"):
                weight = self.projection_weight(projection)
                s, r = (
                    None if (f := self._factor(f"{projection}_{side}")) is None else pick(f)
                    for side in ("input", "output")
                )
                weight, biases[i] = fold_kernel(self, weight, biases[i], s, r, self.additive)
                weights.append(weight.detach().clone())
            if self.in_proj_weight is None:
                self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = map(nn.Parameter, weights)
            else:
                self.in_proj_weight = nn.Parameter(torch.cat(weights))
            if bias is not None:
                self.in_proj_bias = nn.Parameter(torch.cat(biases).detach().clone())
        become_plain(self, ("factors",), ("additive", "members"))
        return self
