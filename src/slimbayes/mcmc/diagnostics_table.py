"""Accounts of chains: a table of how each factor mixes, and the way to ArviZ."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from slimbayes._text_table import aligned
from slimbayes.mcmc.diagnostics import effective_sample_size, r_hat

__all__ = ["ChainSummary", "FactorMixing", "chain_summary", "to_arviz"]

#: Samples of a chain below which the ESS reads no lag, and is one number whatever the draws.
ESS_NEEDS = 10


class FactorMixing(NamedTuple):
    """How the elements of one factor mix.

    Attributes:
        elements: Number of elements.
        undefined: Number of them whose draws are all one value or not finite; they count nowhere else.
        min_ess: Effective sample size of the slowest element; NaN if there is none, or fewer than 10 samples a chain.
        median_ess: Of the median element.
        max_r_hat: Of the worst element.
    """

    elements: int
    undefined: int
    min_ess: float
    median_ess: float
    max_r_hat: float


@dataclass(frozen=True)
class ChainSummary:
    """How well chains mix, factor by factor; ``print`` it.

    Attributes:
        chains: Number of chains.
        samples: Kept samples of each chain.
        factors: For each name how its elements mix.
    """

    chains: int
    samples: int
    factors: dict[str, FactorMixing]

    def __str__(self) -> str:
        rows = [["factor", "elements", "undefined", "min ESS", "median ESS", "max R-hat"]]
        for name, one in self.factors.items():
            numbers = [f"{one.min_ess:.1f}", f"{one.median_ess:.1f}", f"{one.max_r_hat:.3f}"]
            rows.append([name, f"{one.elements:,}", f"{one.undefined:,}", *numbers])
        few = f"; ESS needs {ESS_NEEDS}" if self.samples < ESS_NEEDS else ""
        return f"{aligned(rows)}\n{self.chains} chains of {self.samples} samples{few}"


def chain_summary(draws: Mapping[str, Any]) -> ChainSummary:
    """Return how each factor mixes, by bulk ESS and rank-normalised R-hat.

    Args:
        draws: For each name ``(chains, samples, *shape)``; all of them of the same chains and samples.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> print(chain_summary({"input_factor": torch.randn(4, 100, 8), "bias": torch.zeros(4, 100)}))
        factor        elements  undefined  min ESS  median ESS  max R-hat
        input_factor  8         0          306.8    361.6       1.020
        bias          1         1          nan      nan         nan
        4 chains of 100 samples
    """
    sizes = {tuple(torch.as_tensor(one).shape[:2]) for one in draws.values()}
    if len(sizes) != 1:
        raise ValueError(
            f"Expected argument `draws` to hold at least one factor, all of the same chains and samples, but got "
            f"{sorted(sizes)}. Give each factor as (chains, samples, *shape)."
        )
    factors = {name: _mixing(torch.as_tensor(one)) for name, one in draws.items()}
    ((chains, samples),) = sizes
    return ChainSummary(chains, samples, factors)


def _mixing(draws: Tensor) -> FactorMixing:
    ess, ratio = effective_sample_size(draws).flatten(), r_hat(draws).flatten()
    defined = ess.isfinite()
    if not defined.any():
        return FactorMixing(ess.numel(), ess.numel(), torch.nan, torch.nan, torch.nan)
    ess, worst = ess[defined], ratio[defined].max()
    if draws.shape[1] < ESS_NEEDS:
        ess = ess.fill_(torch.nan)
    return FactorMixing(len(ratio), len(ratio) - len(ess), ess.min().item(), ess.median().item(), worst.item())


def to_arviz(draws: Mapping[str, Any]) -> Any:
    """Return the draws as ArviZ's inference data, for its plots and further statistics.

    Args:
        draws: For each name ``(chains, samples, *shape)``.

    Raises:
        ImportError: If ArviZ is not installed.
    """
    try:
        arviz = import_module("arviz")
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install arviz") from error
    arrays = {name: torch.as_tensor(one).detach().cpu().numpy() for name, one in draws.items()}
    # From version 1 on the groups are one argument; before, they were one keyword each.
    before_1 = int(arviz.__version__.partition(".")[0]) < 1
    return arviz.from_dict(posterior=arrays) if before_1 else arviz.from_dict({"posterior": arrays})
