"""Rank-1 multi-head attention: factors on the query, key, value and output projections."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.base import Pick, along_rows, become_plain, member_bias, plain_base
from slimbayes.layers.linear import Rank1Linear
from slimbayes.layers.multihead import Attention
from slimbayes.layers.rank1 import FactorOptions, draws_of, fold_kernel, perturb

__all__ = ["Rank1MultiheadAttention"]


class Rank1MultiheadAttention(Attention):
    """``nn.MultiheadAttention`` with rank-1 factors on its four projections.

    Shape:
        - Query ``(target, members * m, embed_dim)``, key and value ``(source, members * m, ...)``; the first
          two axes are swapped with ``batch_first``. Output: as ``nn.MultiheadAttention``.

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
        self.members, self.scales_bias = options.members, options.scales_bias
        self.factors = nn.ModuleDict()
        for projection in "qkv":
            weight = self.projection_weight(projection)
            like: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
            if options.has("input"):
                summed = options.factors == "input"
                self.factors[f"{projection}_input"] = options.factor(weight.shape[1], summed, **like)
            if options.has("output"):
                self.factors[f"{projection}_output"] = options.factor(weight.shape[0], True, **like)
        if options.member_bias and self.in_proj_bias is not None:
            self.in_proj_bias = member_bias(self.in_proj_bias, options.members, memo)  # type: ignore[assignment]
        out_proj = Rank1Linear.adopt(self.out_proj, options, memo)
        # out_proj sees the attention's own layout whatever the model's batch axis is.
        out_proj.row_dim = self.row_axis

    def projection_weight(self, projection: str) -> Tensor:
        """Return the shared weight of ``"q"``, ``"k"`` or ``"v"``."""
        if self.in_proj_weight is None:
            weight: Tensor = getattr(self, f"{projection}_proj_weight")
            return weight
        return self.in_proj_weight.chunk(3)["qkv".index(projection)]

    def _factor(self, name: str) -> Any:
        return self.factors[name] if name in self.factors else None  # noqa: SIM401

    def project(self, projection: str, x: Tensor) -> Tensor:
        """Project between the factors."""
        weight = self.projection_weight(projection)
        scales_bias = self.scales_bias

        def op(z: Tensor) -> Tensor:
            return self._biased(F.linear(z, weight), projection) if scales_bias else F.linear(z, weight)

        rows = self.rows_of(x, self.row_axis)
        s, r = (draws_of(self, self._factor(f"{projection}_{side}"), rows) for side in ("input", "output"))
        bias = None if scales_bias else self._bias_of(projection)
        return perturb(self, op, x, s, r, self.row_axis, -1, self.additive, bias)

    def _bias_of(self, projection: str) -> Tensor | None:
        if self.in_proj_bias is None:
            return None
        bias = self.in_proj_bias if self.in_proj_bias.dim() == 2 else self.in_proj_bias.unsqueeze(0)
        return bias.chunk(3, 1)["qkv".index(projection)]

    def _biased(self, y: Tensor, projection: str) -> Tensor:
        bias = self._bias_of(projection)
        return y if bias is None else along_rows(y, bias, self.row_axis, -1, True, self.label)

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
                weight, biases[i] = fold_kernel(self, weight, biases[i], s, r, self.additive, self.scales_bias)
                weights.append(weight.detach().clone())
            if self.in_proj_weight is None:
                self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = map(nn.Parameter, weights)
            else:
                self.in_proj_weight = nn.Parameter(torch.cat(weights))
            if bias is not None:
                self.in_proj_bias = nn.Parameter(torch.cat(biases).detach().clone())
        become_plain(self, ("factors",), ("additive", "members", "scales_bias"))
        return self
