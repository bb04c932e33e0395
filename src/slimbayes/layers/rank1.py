"""Rank-1 factors (section 3.1): the random vectors r and s with their prior and KL, and the layer between them."""

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor, nn
from torch import distributions as td

from slimbayes._checks import SMALLEST_SCALE, check_choice, check_count, check_number
from slimbayes.divergence import kl_divergence
from slimbayes.families import (
    FAMILIES,
    SCALE_EPSILON,
    Cauchy,
    Family,
    Normal,
    StudentT,
    get_family,
    inverse_softplus,
    softplus_scale,
)
from slimbayes.layers.base import (
    BayesianLayer,
    Pick,
    Stochastic,
    along_rows,
    become_plain,
    draw_groups,
    fused,
    member_bias,
    plain_base,
    settle_weight,
)
from slimbayes.layers.dropout_mask import ElementMask, refuse_to_fold
from slimbayes.priors import Prior
from slimbayes.sampling import Sampling

__all__ = ["Drawn", "Factor", "FactorOptions", "Rank1", "RowFactor", "draws_of", "fold_kernel", "fold_scale", "perturb"]


class RowFactor(Stochastic):
    """A vector of channel values that members, or rows, draw for themselves."""

    @property
    @abstractmethod
    def members(self) -> int:
        """Mixture components."""

    @property
    @abstractmethod
    def random(self) -> bool:
        """Whether draws differ from the location."""

    @property
    @abstractmethod
    def location(self) -> Tensor:
        """The values at each member's location: ``(members, [rank,] channels)``."""

    @abstractmethod
    def _draw(self, groups: int, generator: Generator | None) -> Tensor:
        """Draw ``(groups, [rank,] channels)`` values, those of a member together."""

    def _draw_for_rows(self, rows: int) -> Any:
        """Draw a vector for each row: ``(rows, [rank,] channels)``, or something whose ``values()`` are that."""

        def draw(shape: tuple[int, int], generator: Generator | None) -> Tensor:
            return self._draw(math.prod(shape), generator).unflatten(0, shape)

        return self.for_rows(self.name, rows, draw, self.members)

    def values(self, rows: int, layer: str) -> tuple[Tensor, ...]:
        """Return the draws that ``rows`` rows take, one tensor ``(groups, channels)`` for each rank.

        Args:
            rows: Rows of the layer's input.
            layer: The layer's label, for the error message.
        """
        drawn = self.drawn(rows, layer)
        drawn = drawn if isinstance(drawn, Tensor) else drawn.values()
        return (drawn,) if drawn.dim() == 2 else drawn.unbind(1)

    def drawn(self, rows: int, layer: str) -> Any:
        """Return the draws of ``values`` as they are, see ``_draw_for_rows``."""
        sampling, name = self.sampling, self.name
        held, found = sampling.held, sampling.drawn
        if held is not None and name in held:
            return held[name]
        if found is not None and name in found:
            return found[name]
        if not self.random or sampling.samples == 0:
            return self.location
        groups = draw_groups(sampling, self.members, rows)
        if groups % self.members:
            raise ValueError(
                f"Layer {layer} got {groups} rows, which is no multiple of its {self.members} members. Repeat "
                "the batch once for each member, as BayesianModel does: x.repeat(members, ...)."
            )
        drawn = self._draw(groups, self.source(name)) if sampling.noise == "shared" else self._draw_for_rows(groups)
        if found is not None:
            found[name] = drawn
        return drawn

    def hold(self, members: int, samples: int, generator: Generator | None) -> Tensor:
        """Draw one value per member and sample: ``(members * samples, [rank,] channels)``."""
        if samples == 0 or not self.random:
            return self.location.repeat_interleave(max(samples, 1), 0)
        return self._draw(self.members * samples, generator)

    def at_location(self, member: int) -> Tensor:
        """Return one member's location: ``([rank,] channels)``."""
        return self.location[member]


FACTORS = ("both", "input", "output")
INITS = ("normal", "sign", "ones")
PERTURBATIONS = ("multiplicative", "additive")


@dataclass
class FactorOptions:
    """Everything that describes a layer's factors; the arguments of ``sb.rank1`` with the same names.

    Args:
        members: Mixture components K.
        family: Of the posterior: ``"normal"``, ``"cauchy"``, ``"student_t"``, ``"log_normal"``,
            ``"delta"``, or a ``Family`` with parameters, such as ``StudentT(df=5)``.
        prior_mean: Location of the prior; None for the neutral value (1, or 0 if additive).
        prior_std: Scale of the prior; ``"initial"`` for that of the members' start: of their posteriors, and of the
            spread of the locations around the neutral value.
        prior_family: Of the prior; None for that of the posterior. Also ``"horseshoe"``, and for log-normal
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
    prior_std: Any = 0.1
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
        if self.prior_std == "initial":
            self.prior_std = self._scale_at_start
        check_number("prior_std", self.prior_std, SMALLEST_SCALE, remedy="The papers use 0.1.")
        if self.prior_mean is not None:
            check_number("prior_mean", self.prior_mean)
        for name in ("prior_std", "init_spread", "dropout_rate"):
            setattr(self, name, float(getattr(self, name)))  # NumPy's numbers cannot be written as JSON
        self._check_families()
        if self.prior_mean is None:
            self.prior_mean = self.neutral
        if self.perturbation == "additive" and self.rank > 1:
            raise ValueError(
                f"Expected argument `rank` to be 1 with perturbation='additive', but got {self.rank}. "
                "A sum of additive terms would multiply the weights by the rank."
            )

    def _check_families(self) -> None:
        family = get_family(self.family)
        prior = family if self.prior_family is None else get_family(self.prior_family, "prior_family")
        if not family.posterior:
            able = [name for name, known in FAMILIES.items() if known.posterior]
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
    def _scale_at_start(self) -> float:
        """Root mean square distance of the members' first draws from the neutral value."""
        variance = self.dropout_rate / (1 - self.dropout_rate)
        # Signs are the neutral value, 1, or 2 away from it.
        return math.sqrt(variance + {"normal": self.init_spread**2, "sign": 2.0, "ones": 0.0}[self.init])

    @property
    def neutral(self) -> float:
        """The value that leaves a layer as it was."""
        return 0.0 if self.perturbation == "additive" else 1.0

    def has(self, side: str) -> bool:
        """Tell whether factors are put on ``side``, ``"input"`` or ``"output"``."""
        return self.factors in ("both", side)

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        families = {"family": get_family(self.family).spec(), "prior_family": None}
        if self.prior_family is not None:
            families["prior_family"] = get_family(self.prior_family).spec()
        return {**asdict(self), **families}

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
        summed: Divide the prior mean, and the first locations, by R, so that R rank-1 terms add up to the prior mean.
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
        """Whether the distribution has a spread."""
        return self.rho is not None

    @property
    def scale(self) -> Tensor:
        """softplus(rho) + 1e-7, or zeros for a point mass."""
        return torch.zeros_like(self.loc) if self.rho is None else softplus_scale(self.rho)

    @property
    def prior_scale(self) -> Tensor | None:
        """The prior's scale; None for a point mass."""
        if self.rho is None:
            return None
        fixed = torch.tensor(self.prior.std) if self.prior.rho is None else softplus_scale(self.prior.rho.detach())
        return fixed.to(self.loc)

    @torch.no_grad()
    def take_scale(self, values: Tensor) -> None:
        """Make the scales these."""
        assert self.rho is not None
        softplus = values.double() - SCALE_EPSILON
        softplus = softplus.clamp_min(torch.finfo(self.rho.dtype).tiny)
        self.rho.copy_(softplus + (-torch.expm1(-softplus)).log())

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

    def _draw_for_rows(self, rows: int) -> Any:
        found = fused("signed_noise", self, rows, self.sampling) if self.random else None
        return super()._draw_for_rows(rows) if found is None else found

    def _clipped(self, values: Tensor) -> Tensor:
        return values if self.clip is None else values.clamp(-self.clip, self.clip)

    def kl(self) -> Tensor:
        r"""Return :math:`KL(q_k \| p)` summed over elements (Eq. 2): shape ``(members,)``."""
        return self.joint_kl([self])

    def kl_key(self) -> Any:
        """Return what factors have in common whose KLs are taken together: family, a prior of fixed scale, type."""
        prior, loc = self.prior, self.loc
        if prior.rho is not None:
            return self
        return self.family, prior.family, prior.loc, prior.std, loc.shape[0], loc.dtype, loc.device

    @staticmethod
    def joint_kl(factors: list["Factor"]) -> Tensor:
        """Return the KL of factors with the same ``kl_key``, ``(members,)``, from few operations on all elements."""
        family, prior = factors[0].family, factors[0].prior
        loc, scale = (
            torch.cat([value.flatten(1) for value in values], 1)
            for values in ([factor.loc for factor in factors], [factor.scale for factor in factors])
        )
        if loc.dtype in (torch.float16, torch.bfloat16):  # too few digits for a KL
            loc, scale = loc.float(), scale.float()
        divergence = None
        if type(family) is type(prior.family) and prior.rho is None:
            divergence = family.kl(loc, scale, prior.loc, prior.std)
        if divergence is None:
            divergence = kl_divergence(family.distribution(loc, scale), prior.distribution(loc))
        return divergence.sum(1)

    def log_scale_gradients(self) -> list[Tensor]:
        """Return dL / d log scale = dL / d rho * scale / softplus'(rho)."""
        if self.rho is None or self.rho.grad is None:
            return []
        with torch.no_grad():
            return [self.rho.grad * self.scale / torch.sigmoid(self.rho)]

    def extra_repr(self) -> str:
        """Show the distribution and the shape."""
        return f"{self.family.name}, {tuple(self.loc.shape)}"


#: What rows take of a factor: values ``(groups, [rank,] channels)``, something whose ``values()`` are that, or a mask
#: that is drawn when the input is there.
Drawn = Any


def draws_of(layer: BayesianLayer, factor: RowFactor | ElementMask | None, rows: int) -> Drawn:
    """Return what ``rows`` rows take of a factor in this pass."""
    return factor.drawn(rows, layer.label) if isinstance(factor, RowFactor) else factor


def _terms(drawn: Any) -> tuple[Any, ...]:
    """Return what each of the R terms takes."""
    return drawn.unbind(1) if isinstance(drawn, Tensor) and drawn.dim() == 3 else (drawn,)


def perturb(
    layer: BayesianLayer,
    op: Any,
    x: Tensor,
    s: Drawn,
    r: Drawn,
    axis: int,
    channel_dim: int,
    additive: bool,
    bias: Tensor | None = None,
) -> Tensor:
    r"""Apply a linear ``op`` between an input and an output factor.

    .. math::
        y = \sum_{j=1}^R op(x \circ s_j) \circ r_j + b \qquad \text{or, additive,} \qquad y = op(x + s) + r + b

    Args:
        layer: The layer, for error messages.
        op: A linear map of ``x`` without bias.
        x: Input with rows on ``axis`` and channels on ``channel_dim``.
        s: What the rows take of the input factor.
        r: What they take of the output factor.
        axis: Axis of the rows.
        channel_dim: Axis of the channels, before and after ``op``.
        additive: Add the factors instead of multiplying.
        bias: b, ``(members, channels)`` or ``(1, channels)``, or None.
    """
    if isinstance(s, ElementMask):
        return _shifted(layer, op(s.masked(x, axis)), bias, axis, channel_dim)
    if isinstance(r, ElementMask):
        return _shifted(layer, r.masked(op(x), axis), bias, axis, channel_dim)
    inputs: tuple[Any, ...] = (None,) if s is None else _terms(s)
    outputs: tuple[Any, ...] = (None,) if r is None else _terms(r)
    if s is None:
        inputs = (None,) * len(outputs)
    elif r is None:
        outputs = (None,) * len(inputs)
    within = bias if len(inputs) == 1 and r is not None else None  # added together with r
    total: Tensor | None = None
    for before, after in zip(inputs, outputs, strict=True):
        term = op(x if before is None else along_rows(x, before, axis, channel_dim, additive, layer.label))
        if after is not None:
            term = along_rows(term, after, axis, channel_dim, additive, layer.label, within)
        total = term if total is None else total + term
    assert total is not None
    return total if within is not None else _shifted(layer, total, bias, axis, channel_dim)


def _shifted(layer: BayesianLayer, y: Tensor, bias: Tensor | None, axis: int, channel_dim: int) -> Tensor:
    return y if bias is None else along_rows(y, bias, axis, channel_dim, True, layer.label)


def fold_scale(s: Tensor | None, r: Tensor | None, inputs: int, outputs: int) -> Tensor | float:
    """Return F = sum_j r_j s_j^T, shape ``(outputs, inputs)``, of one draw; missing factors are ones."""
    if s is None and r is None:
        return 1.0
    some = s if s is not None else r
    assert some is not None
    refuse_to_fold(some)
    rank = 1 if some.dim() == 1 else some.shape[0]
    s = some.new_ones(rank, inputs) if s is None else s.view(rank, inputs)
    r = some.new_ones(rank, outputs) if r is None else r.view(rank, outputs)
    return torch.einsum("jo,ji->oi", r, s)


def fold_kernel(
    layer: BayesianLayer,
    weight: Tensor,
    bias: Tensor | None,
    s: Tensor | None,
    r: Tensor | None,
    additive: bool,
    scales_bias: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the weight ``(out, in)`` and bias of one draw: W ∘ F, or for additive factors b + W s + r."""
    if not additive:
        scaled = weight * fold_scale(s, r, weight.shape[1], weight.shape[0])
        return scaled, bias * r if scales_bias and bias is not None and r is not None else bias
    if bias is None:
        raise ValueError(
            f"Layer {layer.label} has an additive perturbation and no bias to fold it into. "
            "Build it with bias=True, or use perturbation='multiplicative'."
        )
    shifted = bias if s is None else bias + weight @ s
    return weight, shifted if r is None else shifted + r


class Rank1(BayesianLayer, nn.Module):
    """Mixin for layers with one weight and one bias. A subclass names its channels and its linear map.

    To support a layer class of your own, subclass this and your class, implement ``sizes``, ``op``,
    ``scaled_weight`` (and ``constant_response`` for additive perturbations), and register
    ``YourClass.adopt`` with ``sb.register_converter``.

    Attributes:
        weight: The shared weight W.
        bias: ``(members, out)``; ``(out,)`` with ``member_bias=False``; None if the layer has none.
        input_factor: s, a ``Factor`` over input channels, or None.
        output_factor: r, a ``Factor`` over output channels, or None.
    """

    channel_dim: int = -1
    weight: Tensor
    bias: Any
    input_factor: Factor | None
    output_factor: Factor | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options, plain = FactorOptions.split(kwargs)
        super().__init__(*args, **plain)
        self.begin(plain_base(type(self)), options)

    def set_up(self, options: FactorOptions, memo: dict[int, nn.Parameter] | None = None) -> None:
        """Add the factors and repeat the bias for each member."""
        inputs, outputs = self.sizes()
        # A weight that is kept in few bits is no type for factors.
        dtype = self.weight.dtype if self.weight.is_floating_point() else torch.get_default_dtype()
        kwargs: dict[str, Any] = {"device": self.weight.device, "dtype": dtype}
        self.additive = options.perturbation == "additive"
        self.members, self.scales_bias = options.members, options.scales_bias
        self.input_factor = self.output_factor = None
        if options.has("input"):
            self.input_factor = options.factor(inputs, summed=options.factors == "input", **kwargs)
        if options.has("output"):
            self.output_factor = options.factor(outputs, summed=True, **kwargs)
        if options.member_bias and self.bias is not None:
            assert isinstance(self.bias, nn.Parameter)
            self.bias = member_bias(self.bias, options.members, {} if memo is None else memo)

    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and output channels."""

    @abstractmethod
    def op(self, x: Tensor, *args: Any) -> Tensor:
        """Apply the layer's linear map, without bias."""

    @abstractmethod
    def scaled_weight(self, scale: Tensor) -> Tensor:
        """Return the weight times ``scale`` of shape ``(out channels, in channels)``."""

    def constant_response(self, value: Tensor) -> Tensor:
        """Return ``op`` of an input that is ``value`` (one number a channel) everywhere."""
        raise ValueError(
            f"Layer {self.label} has an additive perturbation, which no plain {self.plain_class.__name__} "
            "with its padding can express. Use perturbation='multiplicative'."
        )

    def forward(self, input: Tensor, *args: Any) -> Tensor:
        """Apply the layer to rows that are member-major."""
        self.enter()
        axis = self.rows_axis(input)
        rows = self.rows_of(input, axis)
        s, r = draws_of(self, self.input_factor, rows), draws_of(self, self.output_factor, rows)
        bias = self.member_biases()
        found = self.fused_forward(input, s, r, bias, axis)
        if found is not None:
            return found

        def op(z: Tensor) -> Tensor:
            y = self.op(z, *args)
            return _shifted(self, y, bias, axis, self.channel_dim) if self.scales_bias else y

        outer = None if self.scales_bias else bias
        return perturb(self, op, input, s, r, axis, self.channel_dim, self.additive, outer)

    def fused_forward(self, x: Tensor, s: Drawn, r: Drawn, bias: Tensor | None, axis: int) -> Tensor | None:
        """Return what ``forward`` returns as one operation, or None; see ``slimbayes._fast``."""
        return None

    def member_biases(self) -> Tensor | None:
        """Return the biases, ``(members, out)`` or ``(1, out)``."""
        bias: Tensor | None = self.bias
        return bias if bias is None or bias.dim() == 2 else bias.unsqueeze(0)

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Become the plain layer with weight W ∘ sum_j r_j s_j^T (Eq. 1) and the member's bias."""
        settle_weight(self)
        s = None if self.input_factor is None else pick(self.input_factor)
        r = None if self.output_factor is None else pick(self.output_factor)
        weight, bias = self.weight, self.bias
        with torch.no_grad():
            bias = bias[member] if bias is not None and bias.dim() == 2 else bias
            if self.additive:
                shift = torch.zeros(self.sizes()[1], device=weight.device, dtype=weight.dtype)
                shift = shift if s is None else shift + self.constant_response(s)
                shift = shift if r is None else shift + r
                bias = shift if bias is None else bias + shift
            elif isinstance(scale := fold_scale(s, r, *self.sizes()), Tensor):
                weight = self.scaled_weight(scale.to(weight.dtype))
                if self.scales_bias and bias is not None and r is not None:
                    bias = bias * r
            self.weight = nn.Parameter(weight.detach().clone())
            self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        become_plain(self, ("input_factor", "output_factor"), ("additive", "members", "scales_bias"))
        return self
