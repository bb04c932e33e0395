"""The posterior of one weight: q(W) = N(mean, sigma^2), entries independent (Eq. 5), with its prior and KL."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Generator, Tensor, nn
from torch import distributions as td
from torch.nn.utils import parametrize

from slimbayes._checks import SMALLEST_SCALE, check_choice, check_count, check_number
from slimbayes.families import Normal
from slimbayes.layers.base import Pick, Stochastic
from slimbayes.layers.scale import FullScale, Scale, TiedScale, in_full_precision
from slimbayes.sampling import Sampling

__all__ = ["GaussianOptions", "GaussianWeight"]

ESTIMATORS = ("reparameterization", "local", "flipout")
PRIORS = ("normal", "he", "tied_mean")


@dataclass
class GaussianOptions:
    """Everything that describes the weights' posteriors; the arguments of ``sb.mean_field`` with the same names.

    Args:
        k: None for a standard deviation for each weight; a number for k-tied ones.
        estimator: ``"reparameterization"``, ``"local"`` or ``"flipout"``.
        prior: ``"normal"``: N(0, prior_std^2). ``"he"``: N(0, 2 / fan-in) for weights (Eq. 9), N(0, prior_std^2) for
            biases and embeddings. ``"tied_mean"``: N(posterior mean, prior_std^2), which leaves the means alone.
        prior_std: Scale of the prior; ``"initial"`` for ``init_std``.
        init: Initial means: ``"network"`` keeps the network's weights, ``"he"`` draws them from N(0, 2 / fan-in) with
            zero biases, and a number is the standard deviation of N(0, init^2). Embeddings keep theirs under ``"he"``.
        init_std: Initial standard deviation of the weights.
        init_jitter: Its relative spread; for k-tied the standard deviation of noise on log u and log v.
        max_std: Upper bound of the standard deviations, or None.
        bayesian_bias: Give biases a mean-field posterior; otherwise they are point estimates.
        sample_per: Draw the weights (of Flipout: their perturbation) once for each ``"draw"``, or once for the whole
            ``"batch"``, all draws of a pass included.
    """

    k: int | None = None
    estimator: str = "reparameterization"
    prior: str = "normal"
    prior_std: Any = 0.3
    init: str | float = "network"
    init_std: float = 0.01
    init_jitter: float = 0.1
    max_std: float | None = None
    bayesian_bias: bool = True
    sample_per: str = "draw"

    def __post_init__(self) -> None:
        if self.k is not None:
            check_count("k", self.k, 1, "Give the rank of the standard deviations, such as 2.")
            self.k = int(self.k)  # NumPy's integers cannot be written as JSON
        check_choice("estimator", self.estimator, ESTIMATORS)
        check_choice("prior", self.prior, PRIORS)
        if self.prior_std == "initial":
            self.prior_std = self.init_std
        check_number("prior_std", self.prior_std, low=SMALLEST_SCALE, remedy="The paper uses 0.2 or 0.3.")
        if isinstance(self.init, str):
            check_choice("init", self.init, ("network", "he"))
        else:
            check_number("init", self.init, low=0.0, remedy="A number is the standard deviation of the means.")
            self.init = float(self.init)
        check_number("init_std", self.init_std, low=0.0, remedy="The paper uses 0.01.")
        check_number("init_jitter", self.init_jitter, low=0.0, or_low=True, remedy="The paper uses 0.1.")
        for name in ("prior_std", "init_std", "init_jitter"):
            setattr(self, name, float(getattr(self, name)))
        if self.max_std is not None:
            check_number("max_std", self.max_std, low=0.0, remedy="The paper's ResNet uses 0.2.")
            self.max_std = float(self.max_std)
            if self.init_std > self.max_std:
                raise ValueError(
                    f"Expected argument `init_std` to be at most max_std={self.max_std}, but got {self.init_std}."
                )
        if not isinstance(self.bayesian_bias, bool):
            raise TypeError(f"Expected argument `bayesian_bias` to be True or False, but got {self.bayesian_bias!r}.")
        check_choice("sample_per", self.sample_per, ("draw", "batch"))
        if self.estimator == "local" and self.sample_per == "batch":
            raise ValueError(
                "Expected argument `sample_per` to be 'draw' with estimator='local', but got 'batch': that estimator "
                "draws no weights, but outputs. Use estimator='flipout'."
            )

    @classmethod
    def split(cls, kwargs: dict[str, Any]) -> tuple[Self, dict[str, Any]]:
        """Split keyword arguments into these options and the rest."""
        names = cls.__dataclass_fields__
        ours = {name: value for name, value in kwargs.items() if name in names}
        return cls(**ours), {name: value for name, value in kwargs.items() if name not in names}


def random_signs(shape: tuple[int, ...], like: Tensor, generator: Generator | None = None) -> Tensor:
    """Return +1 and -1 with equal probability, in the dtype and on the device of ``like``.

    Example:
        >>> sorted(set(random_signs((100,), torch.ones(1)).tolist()))
        [-1.0, 1.0]
    """
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    options: dict[str, Any] = {} if generator is None else {"generator": generator}
    return torch.randint(2, shape, device=like.device, dtype=dtype, **options).mul_(2).sub_(1)


class GaussianWeight(Stochastic, nn.Module):
    r"""The posterior :math:`q(w) = N(\mu, \sigma^2)` of a layer's weight or bias, whose own values are the means.

    Only the standard deviations are parameters of this module. The means stay where they were, in the layer, so that
    tied weights stay tied and a state dict holds nothing twice; tied weights share one posterior.

    Args:
        layer: The layer that holds the means.
        attribute: Its name for them, such as ``"weight"``.
        scale: The standard deviations.
        prior_std: Scale of the prior N(0, prior_std^2).
        tied_mean: The prior's mean is the posterior's, not 0.
        fixed_row: A row that is not random and has no KL: an embedding's padding token.
        output_dim: Axis of the output channels.

    Example:
        >>> from slimbayes.layers.scale import FullScale
        >>> posterior = GaussianWeight(nn.Linear(4, 3), "weight", FullScale((3, 4), std=0.01))
        >>> posterior.mean.shape, posterior.draw(5).shape
        (torch.Size([3, 4]), torch.Size([5, 3, 4]))
    """

    def __init__(
        self,
        layer: nn.Module,
        attribute: str,
        scale: Scale,
        prior_std: float = 0.3,
        tied_mean: bool = False,
        fixed_row: int | None = None,
        output_dim: int = 0,
    ) -> None:
        super().__init__()
        self.sampling = Sampling()
        self.owner = (layer, attribute)  # in a tuple, or torch would make the layer a child of its own child
        self.spread = scale
        self.prior_std, self.tied_mean, self.fixed_row, self.output_dim = prior_std, tied_mean, fixed_row, output_dim
        self.tied = False  # several layers have this weight
        self._folded: nn.Parameter | None = None

    @property
    def mean(self) -> nn.Parameter:
        """The means: the layer's own weight."""
        layer, attribute = self.owner
        return getattr(layer, attribute)

    @property
    def scale(self) -> Tensor:
        """The standard deviations, in the weight's shape; zero in a fixed row."""
        return self._spare_fixed_row(self.spread.values())

    @property
    def prior_scale(self) -> Tensor:
        """The prior's standard deviation."""
        return torch.tensor(self.prior_std).to(self.mean)

    def take_scale(self, values: Tensor) -> None:
        """Make the standard deviations these, or the nearest tied ones."""
        self.spread.take(values)

    @property
    def distribution(self) -> td.Distribution:
        """The posterior as a ``torch.distributions`` object."""
        return td.Normal(self.mean, self.spread.values(), validate_args=False)

    def _spare_fixed_row(self, values: Tensor) -> Tensor:
        if self.fixed_row is None:
            return values
        rows = torch.arange(self.mean.shape[0], device=values.device) != self.fixed_row
        return values * rows.unsqueeze(1)

    def own_means(self) -> tuple[nn.Parameter, ...]:
        """Return the means, or what they are computed from: parameters of the layer whose posterior this is."""
        layer, attribute = self.owner
        if parametrize.is_parametrized(layer, attribute):
            return tuple(layer.parametrizations[attribute].parameters())  # type: ignore[index, union-attr]
        return (self.mean,)

    # ------------------------------------------------------------------ draws

    def perturbation(self, count: int, generator: Generator | None = None) -> Tensor:
        """Draw sigma * epsilon, ``(count, *shape)``: what a draw adds to the means (Eq. 6)."""
        mean, scale = self.mean, self.scale
        noise = Normal().noise((count, *mean.shape), mean, generator)
        return (scale * noise).to(mean.dtype)

    def draw(self, count: int, generator: Generator | None = None) -> Tensor:
        """Draw whole weights, ``(count, *shape)``."""
        mean = self.mean
        noise = Normal().noise((count, *mean.shape), mean, generator)
        return torch.addcmul(mean, self.scale, noise.to(mean.dtype))

    def remember(self, what: str, make: Callable[[], Tensor]) -> Tensor:
        """Return what this pass drew under that name, or draw it: a layer that is called twice keeps its draw."""
        drawn, key = self.sampling.drawn, f"{self.name}/{what}"
        if drawn is None:
            return make()
        if key not in drawn:
            drawn[key] = make()
        return drawn[key]

    @property
    def held(self) -> Tensor | None:
        """The weights drawn beforehand for this pass, one for each draw, if there are any."""
        held = self.sampling.held
        return None if held is None else held.get(self.name)

    def values(self, count: int) -> Tensor:
        """Return the weights of this pass, ``(count, *shape)``: the held ones, or new ones."""
        if self.held is not None:
            return self.held
        return self.remember("values", lambda: self.for_draws(f"{self.name}/values", count, self.draw))

    def perturbations(self, count: int) -> Tensor:
        """Return what this pass adds to the means, for each of ``count`` draws (Flipout)."""
        return self.remember("delta", lambda: self.for_draws(f"{self.name}/delta", count, self.perturbation))

    def signs(self, side: str, rows: int, channels: int, like: Tensor, members: int = 1) -> Tensor:
        """Return this pass's random signs of each member's rows, ``(rows, channels)``, like a tensor (Flipout)."""

        def draw(shape: tuple[int, int], generator: Generator | None) -> Tensor:
            return random_signs((*shape, channels), like, generator)

        return self.remember(side, lambda: self.for_rows(f"{self.name}/{side}", rows, draw, members))

    def hold(self, members: int, samples: int, generator: Generator | None) -> Tensor:
        """Draw one weight per member and sample: ``(members * samples, *shape)``."""
        if samples == 0:
            return self.mean.expand(members, *self.mean.shape)
        return self.draw(members * samples, generator)

    def at_location(self, member: int) -> Tensor:
        """Return the means."""
        return self.mean

    # ------------------------------------------------------------------ prior

    def kl(self) -> Tensor:
        r"""Return the KL summed over the weights, a scalar.

        .. math::
            KL = \sum_{ij} \log \frac{\sigma_p}{\sigma_{ij}} + \frac{\sigma_{ij}^2 + \mu_{ij}^2}{2 \sigma_p^2} - \frac12

        without :math:`\mu^2` if the prior's mean is tied to the posterior's.
        """
        mean = self.mean
        rows: Tensor | None = None
        if self.fixed_row is not None:
            everything = torch.arange(mean.shape[0], device=mean.device)
            rows = everything[everything != self.fixed_row]
        chosen = mean if rows is None else mean[rows]
        means = None if self.tied_mean else in_full_precision(chosen)
        constant = chosen.numel() * (math.log(self.prior_std) - 0.5)
        return self.spread.weighted_sum(-1.0, 0.5 / self.prior_std**2, means, rows) + constant

    def log_scale_gradients(self) -> list[Tensor]:
        """Return the gradients of the log parameters."""
        return [p.grad for p in self.spread.log_parameters() if p.grad is not None]

    def fold(self, pick: Pick) -> nn.Parameter:
        """Return the picked draw as a parameter, the same one for layers that share this posterior."""
        if self._folded is None:
            self._folded = nn.Parameter(pick(self).detach().clone())
        return self._folded

    def extra_repr(self) -> str:
        """Show the prior."""
        return f"prior N({'mean' if self.tied_mean else 0}, {self.prior_std:g}²)"


def posterior_of(
    layer: nn.Module,
    attribute: str,
    options: GaussianOptions,
    memo: dict[int, Any],
    output_dim: int = 0,
    groups: int = 1,
    fixed_row: int | None = None,
) -> GaussianWeight:
    """Make the posterior of ``layer.attribute``, or return the one that a tied weight has already.

    Args:
        layer: The layer.
        attribute: Its weight or bias; one dimension means a bias, which is never k-tied.
        options: The description.
        memo: Posteriors made so far.
        output_dim: Axis of the output channels.
        groups: Groups of a convolution, for the fan-in of a transposed one.
        fixed_row: An embedding's padding token.
    """
    mean: nn.Parameter = getattr(layer, attribute)
    if id(mean) in memo:
        posterior = memo[id(mean)][0]
        posterior.tied = True
        posterior.fixed_row = fixed_row if posterior.fixed_row is None else posterior.fixed_row
        return posterior
    weight = mean.dim() > 1
    he_std = math.sqrt(2 * mean.shape[output_dim] / mean.numel()) if weight else 0.0
    he_std *= math.sqrt(groups) if output_dim else 1.0
    embedding = isinstance(layer, nn.Embedding)
    if not (embedding and options.init == "he"):
        start_means(layer, attribute, options, he_std, fixed_row)
    shared: dict[str, Any] = {
        "std": options.init_std,
        "jitter": options.init_jitter,
        "max_std": options.max_std,
        "device": mean.device,
        "dtype": mean.dtype,
    }
    scale: Scale
    if options.k is None or not weight:
        scale = FullScale(tuple(mean.shape), **shared)
    else:
        scale = TiedScale(tuple(mean.shape), options.k, output_dim=output_dim, **shared)
    he_prior = options.prior == "he" and weight and not embedding
    posterior = GaussianWeight(
        layer,
        attribute,
        scale,
        he_std if he_prior else options.prior_std,
        tied_mean=options.prior == "tied_mean",
        fixed_row=fixed_row,
        output_dim=output_dim,
    )
    memo[id(mean)] = (posterior, mean)  # the mean is kept alive, so that its id is not used again
    return posterior


def start_means(
    layer: nn.Module, attribute: str, options: GaussianOptions, he_std: float = 0.0, fixed_row: int | None = None
) -> None:
    """Draw new means of ``layer.attribute`` where ``options.init`` asks for that; biases start at zero."""
    if options.init == "network":
        return
    if parametrize.is_parametrized(layer, attribute):
        raise ValueError(
            f"Expected argument `init` to be 'network' for a {type(layer).__name__} whose {attribute} is computed by a "
            f"parametrization, but got {options.init!r}. Call torch.nn.utils.parametrize.remove_parametrizations first."
        )
    mean: nn.Parameter = getattr(layer, attribute)
    std = he_std if isinstance(options.init, str) else options.init
    with torch.no_grad():
        kept = None if fixed_row is None else mean[fixed_row].clone()
        mean.copy_(std * torch.randn_like(mean) if mean.dim() > 1 else torch.zeros_like(mean))
        if kept is not None:
            mean[fixed_row] = kept
