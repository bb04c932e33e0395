"""A mean-field embedding shared by all members, as the paper's health-record model has it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch import distributions as td

from slimbayes._checks import check_count, check_number
from slimbayes.divergence import kl_divergence
from slimbayes.families import Normal
from slimbayes.layers.base import BayesianLayer, Pick, Stochastic, plain_base
from slimbayes.layers.rank1 import become_plain
from slimbayes.priors import Prior, inverse_softplus, softplus_scale

__all__ = ["MeanFieldEmbedding"]


class MeanFieldEmbedding(Stochastic, BayesianLayer, nn.Embedding):
    """``nn.Embedding`` whose table is normal: mean ``weight``, scale softplus(rho) + 1e-7.

    Members share the law (there is no member axis) but not the draws. With noise per example, each row
    draws its own table, of which only the entries that it looks up are made; a token that comes twice
    in a row gets the same value.

    Args:
        *args: The arguments of ``nn.Embedding``.
        members: Members of the model around it.
        std: Initial scale; the reference's rho of -3 gives 0.0486.
        prior_std: Scale of the prior N(0, prior_std^2).
        **kwargs: The keyword arguments of ``nn.Embedding``.

    Shape:
        - Input: ``(rows, *)`` of integers. Output: ``(rows, *, embedding_dim)``.

    Example:
        >>> layer = MeanFieldEmbedding(10, 4, members=2)
        >>> layer(torch.tensor([[1, 2, 1], [3, 4, 5]])).shape
        torch.Size([2, 3, 4])
    """

    rho: nn.Parameter
    base_parameters = ("weight",)

    def __init__(
        self, *args: Any, members: int = 4, std: float = 0.0486, prior_std: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.begin(plain_base(type(self)), members, std, prior_std)

    def set_up(self, members: int, std: float = 0.0486, prior_std: float = 1.0) -> None:
        """Add the scales; the table itself becomes the mean."""
        check_count("members", members)
        check_number("std", std, low=0.0)
        if self.max_norm is not None:
            raise ValueError(
                f"Embedding {self.label} has max_norm={self.max_norm}, which rewrites its "
                "table in every pass and has no posterior. Build it without, or exclude it."
            )
        self.members = members
        rho = torch.full_like(self.weight, inverse_softplus(std))
        self.rho = nn.Parameter(rho + nn.init.trunc_normal_(torch.empty_like(rho), 0.0, 0.1, -0.2, 0.2))
        self.prior = Prior("normal", mean=0.0, std=prior_std)

    @property
    def scale(self) -> Tensor:
        """Standard deviations, zero for the padding token."""
        return softplus_scale(self.rho) * self._random_tokens().unsqueeze(1)

    @property
    def distribution(self) -> td.Distribution:
        """The table's law, padding token included."""
        return td.Normal(self.weight, softplus_scale(self.rho), validate_args=False)

    def _random_tokens(self) -> Tensor:
        """Tell for each token whether it is random: all but the padding token are."""
        tokens = torch.arange(self.num_embeddings, device=self.weight.device)
        return tokens != (-1 if self.padding_idx is None else self.padding_idx)

    def rows_axis(self, x: Tensor) -> int:
        """Rows are the model's batch axis, or the only one."""
        if x.dim() <= 1:
            return 0
        return self.sampling.batch_dim if self.row_dim is None else self.row_dim

    def _look_up(self, tokens: Tensor, table: Tensor) -> Tensor:
        return F.embedding(tokens, table, self.padding_idx, None, 2.0, self.scale_grad_by_freq, self.sparse)

    def forward(self, input: Tensor) -> Tensor:
        """Look up a draw of the table for each token."""
        sampling = self.enter()
        if sampling.samples == 0:
            return self._look_up(input, self.weight)
        axis = self.rows_axis(input)
        self.rows_of(input, axis)
        tokens = input.movedim(axis, 0)
        if sampling.held is not None and self.name in sampling.held:
            found = self._from_tables(tokens, sampling.held[self.name])
        elif sampling.noise == "shared":
            tables = self.hold(self.members, sampling.samples, sampling.generator)
            found = self._from_tables(tokens, tables)
        else:
            groups = sampling.groups(self.members, tokens.shape[0])
            found = self._per_example(self._grouped(tokens, groups), sampling.generator)
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
        return found.view(*tokens.shape, self.embedding_dim)

    def _per_example(self, tokens: Tensor, generator: Generator | None) -> Tensor:
        mean = self._look_up(tokens, self.weight)
        scale = softplus_scale(self._look_up(tokens, self.rho))
        noise = Normal().noise(mean.shape, mean, generator).to(mean.dtype)
        first = _first_occurrence(tokens)
        noise = noise.gather(1, first.unsqueeze(-1).expand_as(noise))
        if self.padding_idx is not None:
            noise = noise * (tokens != self.padding_idx).unsqueeze(-1)
        return mean + scale * noise

    def hold(self, members: int, samples: int, generator: Generator | None) -> Tensor:
        """Draw whole tables: ``(members * samples, num_embeddings, embedding_dim)``."""
        if samples == 0:
            return self.weight.expand(members, -1, -1)
        shape = (members * samples, *self.weight.shape)
        noise = Normal().noise(shape, self.weight, generator).to(self.weight.dtype)
        # As in nn.Embedding, the padding token is never trained.
        mean = torch.where(self._random_tokens().unsqueeze(1), self.weight, self.weight.detach())
        return mean + self.scale * noise

    def at_location(self, member: int) -> Tensor:
        """Return the mean table."""
        return self.weight

    def kl(self) -> Tensor:
        """Return the KL to N(0, prior_std^2), a scalar: members share it; the padding token has none."""
        divergence = kl_divergence(self.distribution, self.prior.distribution(self.weight))
        return (divergence.sum(1) * self._random_tokens()).sum()

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain embedding with the drawn table."""
        self.weight = nn.Parameter(pick(self).detach().clone())
        del self.rho
        become_plain(self, ("prior",), ("members",))
        return self


def _first_occurrence(tokens: Tensor) -> Tensor:
    """Return, for each place of ``(rows, length)`` tokens, the first place in its row with the same token."""
    ordered, order = tokens.sort(dim=1, stable=True)
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run_start = torch.where(starts, places, 0).cummax(1).values
    return torch.empty_like(order).scatter_(1, order, order.gather(1, run_start))
