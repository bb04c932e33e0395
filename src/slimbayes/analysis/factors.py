"""The factors of a rank-1 model: where each member is, how wide, and how far the members are from each other."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from slimbayes.analysis._figures import new_axes
from slimbayes.analysis.matrices import chosen_layer
from slimbayes.layers.rank1 import Factor
from slimbayes.model import BayesianModel, unwrapped

__all__ = ["FactorSummary", "factor_summary", "member_distance", "plot_factors", "plot_member_distance"]

#: Under this key ``member_distance`` has the distances over all factors together.
ALL = "all"


class FactorSummary(NamedTuple):
    """One factor of a rank-1 model; each array is ``(members, channels)``, or ``(members, rank, channels)``.

    Attributes:
        location: Values at the locations of the posteriors: means of normal distributions, medians of others.
        scale: Scales of the posteriors: of log-normal ones those of the logarithm, of points zero.
        low: Values one scale below the location.
        high: Values one scale above it.
    """

    location: np.ndarray
    scale: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def mean_location(self) -> float:
        """The mean of the locations."""
        return float(self.location.mean())

    @property
    def mean_scale(self) -> float:
        """The mean of the scales."""
        return float(self.scale.mean())


def factor_summary(model: BayesianModel) -> dict[str, FactorSummary]:
    """Return locations and scales of each factor of each member, by the factor's name.

    Args:
        model: A rank-1 model or BatchEnsemble.

    Example:
        >>> import torch, slimbayes as sb
        >>> summary = factor_summary(sb.rank1(torch.nn.Linear(8, 3), members=4, init="ones"))
        >>> {name: factor.location.shape for name, factor in summary.items()}
        {'input_factor': (4, 8), 'output_factor': (4, 3)}
        >>> summary["input_factor"].mean_location
        1.0
    """
    return {
        factor.name: FactorSummary(
            *(_array(values) for values in (factor.location, factor.scale, _beside(factor, -1), _beside(factor, 1)))
        )
        for factor in factors_of(model)
    }


def factors_of(model: BayesianModel) -> list[Factor]:
    """Return the factors, or raise if there are none."""
    found = [part for part in unwrapped(model)[-1].stochastic() if isinstance(part, Factor)]
    if not found:
        raise ValueError(
            f"Expected argument `model` to have rank-1 factors, but this {model.method} model has none. Make one with "
            "sb.rank1 or sb.batch_ensemble."
        )
    return found


def _beside(factor: Factor, scales: float) -> Tensor:
    values = factor.family.transform(factor.loc, factor.scale, factor.loc.new_full((1,), scales))
    return values if factor.clip is None else values.clamp(-factor.clip, factor.clip)


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()


def member_distance(model: BayesianModel) -> dict[str, np.ndarray]:
    r"""Return how far the members are from each other, in each factor and over all of them.

    .. math::
        d_{kl} = \sqrt{\tfrac1n \sum_{i=1}^n (f_{ki} - f_{li})^2}

    over the n elements of the members' locations. Members' own biases and norms are not looked at.

    Args:
        model: A rank-1 model or BatchEnsemble.

    Returns:
        Arrays ``(members, members)``, by the factor's name and, for all factors together, under ``"all"``.

    Example:
        >>> import torch, slimbayes as sb
        >>> distances = member_distance(sb.batch_ensemble(torch.nn.Linear(8, 3), members=2))
        >>> list(distances), distances["all"].shape, distances["all"][1, 1]
        (['input_factor', 'output_factor', 'all'], (2, 2), np.float64(0.0))
    """
    locations = {name: _by_member(factor.location) for name, factor in factor_summary(model).items()}
    locations[ALL] = np.concatenate(list(locations.values()), axis=1)
    return {name: _distances(values) for name, values in locations.items()}


def _by_member(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)


def _distances(values: np.ndarray) -> np.ndarray:
    # Member by member, as all differences at once would need K times the memory of the factors.
    return np.stack([np.sqrt(np.square(values - one).mean(1)) for one in values])


def plot_member_distance(
    distances: BayesianModel | Mapping[str, np.ndarray], layer: str | None = ALL, ax: Any = None
) -> Any:
    """Draw the distances between members as a heat map.

    Args:
        distances: A model, or what ``member_distance`` returned.
        layer: Name of a factor; ``"all"`` for all of them together.
        ax: Axes of matplotlib; None for new ones.

    Returns:
        The axes.

    Example:
        >>> import matplotlib, torch, slimbayes as sb
        >>> matplotlib.use("Agg")
        >>> plot_member_distance(sb.rank1(torch.nn.Linear(8, 3), members=4)).get_title()
        'distance between members: all'
    """
    distances = member_distance(distances) if isinstance(distances, BayesianModel) else distances
    name = chosen_layer(list(distances), layer)
    ax = new_axes(width=4) if ax is None else ax
    image = ax.imshow(distances[name], vmin=0)
    members = np.arange(len(distances[name]))
    ax.set(title=f"distance between members: {name}", xlabel="member", ylabel="member", xticks=members, yticks=members)
    ax.figure.colorbar(image, ax=ax, label="root mean square")
    return ax


def plot_factors(summary: BayesianModel | Mapping[str, FactorSummary], layer: str | None = None, ax: Any = None) -> Any:
    """Draw one factor: a line a member through its locations, shaded from one scale below to one above.

    Args:
        summary: A model, or what ``factor_summary`` returned.
        layer: Name of the factor; None for the only one.
        ax: Axes of matplotlib; None for new ones.

    Returns:
        The axes.

    Example:
        >>> import matplotlib, torch, slimbayes as sb
        >>> matplotlib.use("Agg")
        >>> len(plot_factors(sb.rank1(torch.nn.Linear(8, 3), members=4), "input_factor").lines)
        4
    """
    summary = factor_summary(summary) if isinstance(summary, BayesianModel) else summary
    name = chosen_layer(list(summary), layer)
    location, low, high = (_by_member(getattr(summary[name], what)) for what in ("location", "low", "high"))
    ax = new_axes(width=6) if ax is None else ax
    channels = np.arange(location.shape[1])
    for member in range(len(location)):
        (line,) = ax.plot(channels, location[member], marker=".", label=f"member {member}")
        ax.fill_between(channels, low[member], high[member], color=line.get_color(), alpha=0.2)
    ax.set(title=name, xlabel="channel", ylabel="location ± scale")
    ax.legend()
    return ax
