"""The random vectors r and s of section 3.1: K variational posteriors with their prior and KL."""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor, nn
from torch import distributions as td

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes.divergence import kl_divergence
from slimbayes.families import FAMILIES, Cauchy, Family, Normal, StudentT, get_family
from slimbayes.layers.base import fused
from slimbayes.layers.row_factor import RowFactor
from slimbayes.priors import Prior, inverse_softplus, softplus_scale
from slimbayes.sampling import Sampling

__all__ = ["Factor", "FactorOptions"]

FACTORS = ("both", "input", "output")
INITS = ("normal", "sign", "ones")
PERTURBATIONS = ("multiplicative", "additive")


@dataclass
class FactorOptions:
    """Everything that describes a layer's factors; the arguments of ``sb.rank1`` with the same names.

    Args:
        members: Mixture components K.
        family: Law of the posterior: ``"normal"``, ``"cauchy"``, ``"student_t"``, ``"log_normal"``,
            ``"delta"``, or a ``Family`` with parameters, such as ``StudentT(df=5)``.
        prior_mean: Location of the prior; None for the neutral value (1, or 0 if additive).
        prior_std: Scale of the prior.
        prior_family: Law of the prior; None for that of the posterior. Also ``"horseshoe"``, and for log-normal
            factors ``"half_cauchy"`` and ``"inverse_gamma"``, which start at 0 whatever ``prior_mean`` is. The
            delta family has no KL unless one is given.
        prior_scale: ``"fixed"`` or ``"trainable"`` (one scale for each factor vector).
        scale_prior: None, ``"half_cauchy"`` or ``"inverse_gamma"``, see ``Prior``.
        factors: Perturb the layer's ``"input"``, its ``"output"``, or ``"both"``.
        rank: Number R of rank-1 terms that are summed.
        init: Initial locations: ``"normal"`` (neutral value + N(0, init_spread^2)), ``"sign"`` (random
            +1 and -1), or ``"ones"`` (the neutral value: the network starts as it was).
        init_spread: Standard deviation for ``init="normal"``.
        dropout_rate: Initial scale as a dropout rate p, sqrt(p / (1 - p)) (section 3.5).
        perturbation: ``"multiplicative"`` (Eq. 1) or ``"additive"``: op(x + s) + r.
        member_bias: Give each member its own bias.
        clip: Clamp draws to [-clip, clip]; the reference uses 10, the paper does not say so.
    """

    members: int = 4
    family: str | dict[str, Any] | Family = "normal"
    prior_mean: float | None = None
    prior_std: float = 0.1
    prior_family: str | dict[str, Any] | Family | None = None
    prior_scale: str = "fixed"
    scale_prior: str | None = None
    factors: str = "both"
    rank: int = 1
    init: str = "normal"
    init_spread: float = 0.5
    dropout_rate: float = 1e-3
    perturbation: str = "multiplicative"
    member_bias: bool = True
    clip: float | None = None

    #: Whether an output factor scales the bias, too; in the papers it does not.
    scales_bias: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("members", self.members, 1, "Give the number of mixture components, such as 4.")
        check_count("rank", self.rank, 1, "Give the number of rank-1 terms; the papers use 1.")
        self.members, self.rank = int(self.members), int(self.rank)  # NumPy's integers cannot be written as JSON
        check_choice("prior_scale", self.prior_scale, ("fixed", "trainable"))
        check_choice("factors", self.factors, FACTORS)
        check_choice("init", self.init, INITS)
        check_choice("perturbation", self.perturbation, PERTURBATIONS)
        check_number("init_spread", self.init_spread, low=0.0, or_low=True)
        check_number("dropout_rate", self.dropout_rate, 0.0, 1.0, "It sets the initial scale; try 1e-3.")
        if self.clip is not None:
            check_number("clip", self.clip, low=0.0, remedy="The reference uses 10.")
        for name in ("prior_std", "init_spread", "dropout_rate"):
            setattr(self, name, float(getattr(self, name)))  # NumPy's numbers cannot be written as JSON
        self._check_laws()
        if self.prior_mean is None:
            self.prior_mean = self.neutral
        if self.perturbation == "additive" and self.rank > 1:
            raise ValueError(
                f"Expected argument `rank` to be 1 with perturbation='additive', but got {self.rank}. "
                "A sum of additive terms would multiply the weights by the rank."
            )

    def _check_laws(self) -> None:
        family = get_family(self.family)
        prior = family if self.prior_family is None else get_family(self.prior_family, "prior_family")
        if not family.posterior:
            able = [name for name, law in FAMILIES.items() if law.posterior]
            raise ValueError(
                f"Expected argument `family` to be one of {able}, but got {family.name!r}, which can only be "
                "a prior. Give it as `prior_family`."
            )
        if prior.positive and not family.positive:
            raise ValueError(
                f"Expected argument `prior_family` to cover negative values, as the posterior family "
                f"{family.name!r} does, but got {prior.name!r}: the KL would be infinite. "
                "Use family='log_normal', or a real-valued prior."
            )
        if family.random and not prior.random:
            raise ValueError(
                f"Expected argument `prior_family` to have some spread under family={family.name!r}, but got "
                "'delta': the KL would be infinite. Leave it out, or use family='delta' too."
            )
        heavy = isinstance(family, Cauchy) or (isinstance(family, StudentT) and family.df <= 2)
        marginal = self.scale_prior is not None and self.prior_scale == "fixed"
        if heavy and type(prior) is Normal and not marginal:
            raise ValueError(
                f"Expected argument `prior_family` to have tails as heavy as family={family.name!r}, but got "
                f"{prior.name!r}: the KL would be infinite. Use 'cauchy' or 'student_t'."
            )
        trainable = self.prior_scale == "trainable"
        if not family.random and trainable and not (prior.random and self.scale_prior == "inverse_gamma"):
            raise ValueError(
                "Expected argument `prior_scale` to be 'fixed' with family='delta', but got 'trainable': a prior that "
                "shrinks onto a point has no best scale. Give it scale_prior='inverse_gamma', or a random family."
            )
        if family.positive and self.init == "sign":
            raise ValueError(
                f"Expected argument `init` to be 'normal' or 'ones' with the positive family "
                f"{family.name!r}, but got 'sign'. Its factors cannot be negative."
            )
        if family.positive and self.perturbation == "additive":
            raise ValueError(
                f"Expected argument `perturbation` to be 'multiplicative' with the positive family "
                f"{family.name!r}, but got 'additive'. Its factors cannot be zero on average."
            )

    @property
    def neutral(self) -> float:
        """The value that leaves a layer as it was."""
        return 0.0 if self.perturbation == "additive" else 1.0

    def has(self, side: str) -> bool:
        """Tell whether factors are put on ``side``, ``"input"`` or ``"output"``."""
        return self.factors in ("both", side)

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        laws = {"family": get_family(self.family).spec(), "prior_family": None}
        if self.prior_family is not None:
            laws["prior_family"] = get_family(self.prior_family).spec()
        return {**asdict(self), **laws}

    def factor(self, channels: int, summed: bool, device: Any, dtype: torch.dtype) -> Any:
        """Return a new factor of this description; see ``Factor``."""
        return Factor(channels, self, summed, device, dtype)

    @classmethod
    def split(cls, kwargs: dict[str, Any]) -> tuple[Self, dict[str, Any]]:
        """Split keyword arguments into factor options and the rest."""
        names = cls.__dataclass_fields__
        ours = {name: value for name, value in kwargs.items() if name in names}
        return cls(**ours), {name: value for name, value in kwargs.items() if name not in names}


class Factor(RowFactor, nn.Module):
    r"""The posteriors :math:`q_k(f) = \text{family}(loc_k, scale_k)`, one for each member.

    Args:
        channels: Length of the vector.
        options: The factor's description.
        summed: Carries the 1/R that lets R rank-1 terms add up to the prior mean.
        device: Where to put the parameters.
        dtype: Their type.

    Shape:
        - ``loc``, ``rho``, ``scale``: ``(members, channels)``, or ``(members, rank, channels)`` if rank > 1.

    Example:
        >>> factor = Factor(8, FactorOptions(members=4, init="ones"))
        >>> factor.loc.shape, round(factor.scale.mean().item(), 2), factor.kl().shape
        (torch.Size([4, 8]), 0.03, torch.Size([4]))
    """

    def __init__(
        self,
        channels: int,
        options: FactorOptions,
        summed: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.sampling = Sampling()
        self.family = get_family(options.family)
        self.clip = options.clip
        share = options.rank if summed else 1
        shape = (options.members, channels) if options.rank == 1 else (options.members, options.rank, channels)
        self.loc = nn.Parameter(self._initial_loc(shape, options, share, dtype).to(device=device, dtype=dtype))
        self.rho: nn.Parameter | None = None
        if self.family.random:
            self.rho = nn.Parameter(self._initial_rho(shape, options).to(device=device, dtype=dtype))
        assert options.prior_mean is not None
        self.prior = Prior(
            self.family if options.prior_family is None else options.prior_family,
            mean=options.prior_mean / share,
            std=options.prior_std,
            trainable=options.prior_scale == "trainable",
            scale_prior=options.scale_prior,
            device=device,
            dtype=dtype,
        )

    def _initial_loc(
        self, shape: tuple[int, ...], options: FactorOptions, share: int, dtype: torch.dtype | None
    ) -> Tensor:
        if options.init == "sign":
            return (torch.randint(2, shape) * 2.0 - 1) / share
        neutral = self.family.loc_of(options.neutral / share)
        if options.init == "ones":
            return torch.full(shape, neutral, dtype=dtype)
        spread = options.init_spread if self.family.positive else options.init_spread / share
        return neutral + spread * torch.randn(shape)

    def _initial_rho(self, shape: tuple[int, ...], options: FactorOptions) -> Tensor:
        p = options.dropout_rate
        rho = torch.full(shape, inverse_softplus(math.sqrt(p / (1 - p))))
        if self.family.rho_jitter:
            jitter = self.family.rho_jitter
            rho += nn.init.trunc_normal_(torch.empty(shape), 0.0, jitter, -2 * jitter, 2 * jitter)
        return rho

    @property
    def members(self) -> int:
        """Mixture components."""
        return self.loc.shape[0]

    @property
    def random(self) -> bool:
        """Whether the law has a spread."""
        return self.rho is not None

    @property
    def scale(self) -> Tensor:
        """softplus(rho) + 1e-7, or zeros for a point mass."""
        return torch.zeros_like(self.loc) if self.rho is None else softplus_scale(self.rho)

    @property
    def distribution(self) -> td.Distribution:
        """The posteriors as one ``torch.distributions`` object of batch shape ``loc.shape``."""
        return self.family.distribution(self.loc, self.scale)

    @property
    def location(self) -> Tensor:
        """The value at each posterior's location, clipped as draws are: the median of the draws."""
        return self._clipped(self.family.location(self.loc))

    def _draw(self, groups: int, generator: Generator | None) -> Tensor:
        members = self.members
        noise = self.family.noise((members, groups // members, *self.loc.shape[1:]), self.loc, generator)
        drawn = self.family.transform(self.loc.unsqueeze(1), self.scale.unsqueeze(1), noise).flatten(0, 1)
        # Half-precision factors are drawn in float32; what they scale is not.
        return self._clipped(drawn).to(self.loc.dtype)

    def _draw_for_rows(self, rows: int, generator: Generator | None) -> Any:
        found = fused("signed_noise", self, rows, self.sampling) if self.random else None
        return self._draw(rows, generator) if found is None else found

    def _clipped(self, values: Tensor) -> Tensor:
        return values if self.clip is None else values.clamp(-self.clip, self.clip)

    def kl(self) -> Tensor:
        r"""Return :math:`KL(q_k \| p)` summed over elements (Eq. 2): shape ``(members,)``."""
        divergence = kl_divergence(self.distribution, self.prior.distribution(self.loc))
        return divergence.flatten(1).sum(1)

    def kl_key(self) -> Any:
        """Return what factors have in common whose KLs are taken together: family, a prior of fixed scale, type."""
        prior, loc = self.prior, self.loc
        if prior.rho is not None:
            return self
        return self.family, prior.family, prior.loc, prior.std, self.members, loc.dtype, loc.device

    @staticmethod
    def joint_kl(factors: list["Factor"]) -> Tensor:
        """Return the KL of factors with the same ``kl_key``, ``(members,)``: one operation on all their elements."""
        first = factors[0]
        if len(factors) == 1:
            return first.kl()
        loc = torch.cat([factor.loc.flatten(1) for factor in factors], 1)
        scale = torch.cat([factor.scale.flatten(1) for factor in factors], 1)
        return kl_divergence(first.family.distribution(loc, scale), first.prior.distribution(loc)).sum(1)

    def log_scale_gradients(self) -> list[Tensor]:
        """Return dL / d log scale = dL / d rho * scale / softplus'(rho)."""
        if self.rho is None or self.rho.grad is None:
            return []
        with torch.no_grad():
            return [self.rho.grad * self.scale / torch.sigmoid(self.rho)]

    def extra_repr(self) -> str:
        """Show the law and the shape."""
        return f"{self.family.name}, {tuple(self.loc.shape)}"
