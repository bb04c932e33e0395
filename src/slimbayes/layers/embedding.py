"""An embedding whose table is Gaussian, alone or shared by the members of a rank-1 model."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_count
from slimbayes.families import Normal
from slimbayes.layers.base import BayesianLayer, Pick, become_plain, draw_groups, plain_base, settle_weight
from slimbayes.layers.gaussian import GaussianOptions, GaussianWeight, posterior_of

__all__ = ["GaussianEmbedding"]


class GaussianEmbedding(BayesianLayer, nn.Embedding):
    """``nn.Embedding`` whose table is Gaussian with means ``weight``.

    Members share the posterior (there is no member axis), not the draws. With plain reparameterisation all rows of a
    draw see the same table; with Flipout and local reparameterisation each row draws its own, in which a token that
    comes twice has one value. Of such a table only the entries that are looked up are made; but a table that is tied
    to a decoder is perturbed as Flipout does it, so that both see the same.

    A table that a network reads by position, ``(1, length)`` or ``(length,)`` whatever the batch, answers with a row
    axis: the positions are looked up for every row, in the table of its draw.

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
    #: Whether a pass has shown that its input is the same for any batch.
    by_position: bool = False

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
        check_count("members", members)
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
        sampling, posterior = self.enter(), self.weight_posterior
        if sampling.seen is not None:
            sampling.seen[self.name].append(tuple(input.shape))
        axis = self.rows_axis(input)
        if self._has_no_rows(input, axis):
            input, axis = self._for_every_row(input, axis)
        if sampling.samples == 0 and posterior.held is None:
            return self._look_up(input, self.weight)
        rows = self.rows_of(input, axis)
        tokens = input.movedim(axis, 0)
        draws = sampling.weights(self.sample_per, self.members)
        if posterior.held is not None or sampling.noise == "shared" or self.estimator == "reparameterization":
            found = self._from_tables(tokens, posterior.values(draws))
        else:
            grouped = self._grouped(tokens, draw_groups(sampling, self.members, rows))
            make = self._flipout if posterior.tied else self._entries
            found = self._look_up(grouped, self.weight) + make(grouped, draws)
            found = found.view(*tokens.shape, self.embedding_dim)
        return found.movedim(0, axis)

    def _has_no_rows(self, x: Tensor, axis: int) -> bool:
        """Tell whether the input is read by position: as was seen, or as its length cannot be that of the batch."""
        if self.sampling.rows is None:
            return False
        if self.passes.looking is None and x.dim() > 1 and x.shape[axis] > 1:
            return False  # positions that differ from row to row, such as those of padded sequences
        return self.by_position or (x.shape[axis] % self.sampling.rows > 0 and (x.dim() == 1 or x.shape[axis] == 1))

    def _for_every_row(self, positions: Tensor, axis: int) -> tuple[Tensor, int]:
        """Repeat positions for each row, and return the axis of the rows."""
        rows = self.sampling.rows
        assert rows is not None
        if positions.dim() == 1 and self.sampling.batch_dim == 0:
            return positions.expand(rows, -1), 0
        if positions.dim() == 1 or positions.shape[axis] != 1:
            raise ValueError(
                f"Embedding {self.label} is read by position: its input of shape {tuple(positions.shape)} does not "
                f"carry the batch of {rows} rows, and has no axis of length 1 in its place. No row could have a draw "
                f"of its own: exclude={self.label!r} leaves the table a point estimate."
            )
        return positions.expand(*positions.shape[:axis], rows, *positions.shape[axis + 1 :]), axis

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
        found = found.view(*tokens.shape, self.embedding_dim)
        if self.padding_idx is None:
            return found
        # As in nn.Embedding, the padding token is never trained by being looked up.
        return torch.where((tokens == self.padding_idx).unsqueeze(-1), found.detach(), found)

    def _flipout(self, tokens: Tensor, draws: int) -> Tensor:
        """Return what ``(groups, length)`` tokens find in the perturbations that a tied decoder has, too."""
        posterior = self.weight_posterior
        delta = posterior.perturbations(draws)
        groups, (outputs, inputs) = tokens.shape[0], self.weight.shape
        members = self.members if groups % self.members == 0 else 1
        s = posterior.signs("s", groups, inputs, self.weight, members)
        r = posterior.signs("r", groups, outputs, self.weight, members)
        return self._from_tables(tokens, delta) * s.unsqueeze(1) * r.gather(1, tokens).unsqueeze(-1)

    def _entries(self, tokens: Tensor, draws: int) -> Tensor:
        """Draw the perturbations that ``(groups, length)`` tokens find in a table for each group."""
        scale = self.weight_posterior.spread.at(tokens)
        own = scale.shape[1:]
        noise = self.for_rows(
            f"{self.weight_posterior.name}/entries",
            len(scale),
            lambda shape, source: Normal().noise((*shape, *own), scale, source),
            self.members if len(scale) % self.members == 0 else 1,
        ).to(scale.dtype)
        length = tokens.shape[1]
        if (drawn := self.sampling.drawn) is not None:  # a token of an earlier call has its value already
            name = self.weight_posterior.name
            for key, new in ((f"{name}/tokens", tokens), (f"{name}/noise", noise)):
                drawn[key] = torch.cat([drawn[key], new], 1) if key in drawn else new
            tokens, noise = drawn[f"{name}/tokens"], drawn[f"{name}/noise"]
        first = _first_occurrence(tokens)[:, -length:]
        noise = noise.gather(1, first.unsqueeze(-1).expand_as(scale))
        if self.padding_idx is not None:
            noise = noise * (tokens[:, -length:] != self.padding_idx).unsqueeze(-1)
        return scale * noise

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain embedding with the picked table."""
        settle_weight(self)
        self.weight = self.weight_posterior.fold(pick)
        become_plain(self, ("weight_posterior",), ("members", "estimator", "sample_per", "by_position"))
        return self


def _first_occurrence(tokens: Tensor) -> Tensor:
    """Return, for each position of ``(rows, length)`` tokens, the first position in its row with the same token."""
    ordered, order = tokens.sort(dim=1, stable=True)
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run_start = torch.where(starts, positions, 0).cummax(1).values
    return torch.empty_like(order).scatter_(1, order, order.gather(1, run_start))
