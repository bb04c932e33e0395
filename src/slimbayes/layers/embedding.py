"""An embedding whose table is Gaussian, alone or shared by the members of a rank-1 model."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from slimbayes.families import Normal
from slimbayes.layers.base import BayesianLayer, Pick, plain_base
from slimbayes.layers.gaussian import GaussianOptions, GaussianWeight, posterior_of
from slimbayes.layers.rank1 import become_plain

__all__ = ["GaussianEmbedding"]


class GaussianEmbedding(BayesianLayer, nn.Embedding):
    """``nn.Embedding`` whose table is Gaussian with means ``weight``.

    Members share the law (there is no member axis) but not the draws. Of a drawn table only the entries that are
    looked up are made. With plain reparameterisation all rows of a draw see the same table; with Flipout and local
    reparameterisation each row draws its own, in which a token that comes twice has one value.

    Args:
        *args: The arguments of ``nn.Embedding``.
        members: Members of the model around it.
        **kwargs: The keyword arguments of ``nn.Embedding``, and the fields of ``GaussianOptions``.

    Shape:
        - Input: ``(rows, *)`` of integers. Output: ``(rows, *, embedding_dim)``.

    Example:
        >>> layer = GaussianEmbedding(10, 4, estimator="flipout")
        >>> layer(torch.tensor([[1, 2, 1], [3, 4, 5]])).shape
        torch.Size([2, 3, 4])
    """

    weight_posterior: GaussianWeight

    def __init__(self, *args: Any, members: int = 1, **kwargs: Any) -> None:
        options, plain = GaussianOptions.split(kwargs)
        super().__init__(*args, **plain)
        self.begin(plain_base(type(self)), options, members=members)

    def set_up(self, options: GaussianOptions, memo: dict[int, Any] | None = None, members: int = 1) -> None:
        """Add the posterior; the table itself becomes the means."""
        if self.max_norm is not None:
            raise ValueError(
                f"Embedding {self.label} has max_norm={self.max_norm}, which rewrites its "
                "table in every pass and has no posterior. Build it without, or exclude it."
            )
        self.members, self.estimator, self.sample_per = members, options.estimator, options.sample_per
        memo = {} if memo is None else memo
        self.weight_posterior = posterior_of(self, "weight", options, memo, fixed_row=self.padding_idx)

    def rows_axis(self, x: Tensor) -> int:
        """Rows are the model's batch axis, or the only one."""
        if x.dim() <= 1:
            return 0
        return self.sampling.batch_dim if self.row_dim is None else self.row_dim

    def _look_up(self, tokens: Tensor, table: Tensor) -> Tensor:
        return F.embedding(tokens, table, self.padding_idx, None, 2.0, self.scale_grad_by_freq, self.sparse)

    def forward(self, input: Tensor) -> Tensor:
        """Look up a draw of the table for each token."""
        sampling, held = self.enter(), self.weight_posterior.held
        if sampling.samples == 0 and held is None:
            return self._look_up(input, self.weight)
        axis = self.rows_axis(input)
        rows = self.rows_of(input, axis)
        tokens = input.movedim(axis, 0)
        if held is not None:
            return self._from_tables(tokens, held).movedim(0, axis)
        groups = sampling.groups(self.members, rows)
        if self.estimator == "reparameterization":
            groups = 1 if self.sample_per == "batch" else self.members * sampling.samples
        found = self._entries(self._grouped(tokens, groups), sampling.generator)
        return found.view(*tokens.shape, self.embedding_dim).movedim(0, axis)

    def _grouped(self, tokens: Tensor, groups: int) -> Tensor:
        """Reshape tokens to ``(groups, *)``, those of one draw together."""
        if tokens.shape[0] % groups:
            raise ValueError(
                f"Embedding {self.label} got {tokens.shape[0]} rows, which cannot be dealt to {groups} draws. Its "
                "input does not carry the model's batch: set the layer's `row_dim`, or exclude it."
            )
        return tokens.reshape(groups, -1)

    def _from_tables(self, tokens: Tensor, tables: Tensor) -> Tensor:
        offsets = torch.arange(tables.shape[0], device=tokens.device).unsqueeze(1) * self.num_embeddings
        found = F.embedding(self._grouped(tokens, tables.shape[0]) + offsets, tables.flatten(0, 1))
        return found.view(*tokens.shape, self.embedding_dim)

    def _entries(self, tokens: Tensor, generator: Generator | None) -> Tensor:
        """Draw the entries that ``(groups, length)`` tokens look up in a table for each group."""
        mean = self._look_up(tokens, self.weight)
        scale = self.weight_posterior.spread.at(tokens)
        noise = Normal().noise(tuple(mean.shape), mean, generator).to(mean.dtype)
        first = _first_occurrence(tokens)
        noise = noise.gather(1, first.unsqueeze(-1).expand_as(noise))
        if self.padding_idx is not None:
            noise = noise * (tokens != self.padding_idx).unsqueeze(-1)
        return mean + scale * noise

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain embedding with the picked table."""
        self.weight = self.weight_posterior.fold(pick)
        become_plain(self, ("weight_posterior",), ("members", "estimator", "sample_per"))
        return self


def _first_occurrence(tokens: Tensor) -> Tensor:
    """Return, for each place of ``(rows, length)`` tokens, the first place in its row with the same token."""
    ordered, order = tokens.sort(dim=1, stable=True)
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run_start = torch.where(starts, places, 0).cummax(1).values
    return torch.empty_like(order).scatter_(1, order, order.gather(1, run_start))
