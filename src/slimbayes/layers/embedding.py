"""An embedding whose table is Gaussian, alone or shared by the members of a rank-1 model."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_count
from slimbayes.families import Normal
from slimbayes.layers.base import BayesianLayer, Pick, become_plain, draw_groups, plain_base
from slimbayes.layers.gaussian import GaussianOptions, GaussianWeight, posterior_of, random_signs

__all__ = ["GaussianEmbedding"]


class GaussianEmbedding(BayesianLayer, nn.Embedding):
    """``nn.Embedding`` whose table is Gaussian with means ``weight``.

    Members share the law (there is no member axis) but not the draws. With plain reparameterisation all rows of a
    draw see the same table; with Flipout and local reparameterisation each row draws its own, in which a token that
    comes twice has one value. Of such a table only the entries that are looked up are made; but a table that is tied
    to a decoder is perturbed as Flipout does it, so that both see the same.

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
        if sampling.samples == 0 and posterior.held is None:
            return self._look_up(input, self.weight)
        axis = self.rows_axis(input)
        rows = self.rows_of(input, axis)
        tokens = input.movedim(axis, 0)
        draws = 1 if self.sample_per == "batch" else self.members * sampling.samples
        if posterior.held is not None or sampling.noise == "shared" or self.estimator == "reparameterization":
            found = self._from_tables(tokens, posterior.values(draws))
        else:
            grouped = self._grouped(tokens, draw_groups(sampling, self.members, rows))
            make = self._flipout if posterior.tied else self._entries
            found = self._look_up(grouped, self.weight) + make(grouped, draws)
            found = found.view(*tokens.shape, self.embedding_dim)
        return found.movedim(0, axis)

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
        posterior, generator = self.weight_posterior, self.sampling.generator
        delta = posterior.remember("delta", lambda: posterior.perturbation(draws, generator))
        groups, (outputs, inputs) = tokens.shape[0], self.weight.shape
        s = posterior.remember("s", lambda: random_signs((groups, inputs), self.weight, generator))
        r = posterior.remember("r", lambda: random_signs((groups, outputs), self.weight, generator))
        return self._from_tables(tokens, delta) * s.unsqueeze(1) * r.gather(1, tokens).unsqueeze(-1)

    def _entries(self, tokens: Tensor, draws: int) -> Tensor:
        """Draw the perturbations that ``(groups, length)`` tokens find in a table for each group."""
        scale = self.weight_posterior.spread.at(tokens)
        noise = Normal().noise(tuple(scale.shape), scale, self.sampling.generator).to(scale.dtype)
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
