"""The distributions that a factor, a weight or a prior can have.

A family is a location-scale distribution written as ``transform(loc, scale, noise)`` with noise of a fixed
standard distribution, so that one draw of noise is all the randomness there is and gradients reach both
parameters. ``distribution`` gives the same in the vocabulary of ``torch.distributions``.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch import distributions as td

from slimbayes._checks import check_choice, check_number
from slimbayes.distributions import Delta, Horseshoe, RootInverseGamma

__all__ = [
    "FAMILIES",
    "SCALE_EPSILON",
    "Cauchy",
    "DeltaFamily",
    "Family",
    "HalfCauchy",
    "HorseshoeFamily",
    "InverseGamma",
    "LogNormal",
    "Normal",
    "StudentT",
    "get_family",
    "inverse_softplus",
    "softplus_scale",
]


#: Keras' epsilon: scale = softplus(rho) + 1e-7, in the reference and here.
SCALE_EPSILON = 1e-7


def softplus_scale(rho: Tensor) -> Tensor:
    """Return softplus(rho) + 1e-7, the one map from a free parameter to a scale.

    Example:
        >>> softplus_scale(torch.tensor(-3.43752))
        tensor(0.0316)
    """
    return F.softplus(rho) + SCALE_EPSILON


def inverse_softplus(scale: float) -> float:
    """Return the rho whose softplus is ``scale``.

    Example:
        >>> round(inverse_softplus(0.031639), 4)
        -3.4375
    """
    return scale + math.log(-math.expm1(-scale))


@dataclass(frozen=True)
class Family(ABC):
    """One kind of distribution. Subclasses are immutable and carry only their shape parameters.

    Example:
        >>> family = get_family("student_t", df=5.0)
        >>> family.distribution(torch.zeros(3), torch.ones(3)).df
        tensor([5., 5., 5.])
    """

    name: ClassVar[str]
    #: Values are positive (log-normal, half-Cauchy) rather than real.
    positive: ClassVar[bool] = False
    #: Draws differ from each other; False for a point mass.
    random: ClassVar[bool] = True
    #: May be a posterior; False for those that only serve as priors.
    posterior: ClassVar[bool] = True
    #: Standard deviation of the truncated-normal jitter that the reference puts on the initial rho.
    rho_jitter: ClassVar[float] = 0.0

    @property
    def shares_magnitudes(self) -> bool:
        """Whether rows may share the magnitudes of their noise, each with signs of its own.

        The noise is then symmetric, a draw is ``loc + scale * noise``, and its fourth moment is finite: without that,
        the rows would meet outliers together, and the correlation of two over many draws would not settle at 0.
        """
        return False

    @abstractmethod
    def noise(self, shape: tuple[int, ...], like: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw standard noise of ``shape`` on the device of ``like``, of its dtype or float32 for half precision."""

    @abstractmethod
    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:
        """Turn standard noise into a draw; differentiable in ``loc`` and ``scale``."""

    @abstractmethod
    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:
        """Return it as a ``torch.distributions`` object."""

    def kl(self, loc: Tensor, scale: Tensor, prior_loc: float, prior_scale: float) -> Tensor | None:
        """Return the KL to a prior of the same family, element by element, or None where there is no closed form."""
        return None

    def location(self, loc: Tensor) -> Tensor:
        """Return the value at the location (the median) of the distribution."""
        return loc

    def loc_of(self, value: float) -> float:
        """Return the ``loc`` whose location is ``value``."""
        return value

    def spec(self) -> str | dict[str, Any]:
        """Return a JSON value from which ``get_family`` rebuilds this family."""
        parameters = asdict(self)
        return {"name": self.name, **parameters} if parameters else self.name


def _uniform(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    return torch.rand(shape, dtype=_draw_dtype(like), device=like.device, **_from(generator))


def _from(generator: Generator | None) -> dict[str, Any]:
    # Even a None would choose the overload that cannot take the symbolic shapes of torch.compile.
    return {} if generator is None else {"generator": generator}


def _draw_dtype(like: Tensor) -> torch.dtype:
    # Half-precision uniforms have so few values that their tails are visibly wrong.
    return torch.float32 if like.dtype in (torch.float16, torch.bfloat16) else like.dtype


@dataclass(frozen=True)
class Normal(Family):
    """N(loc, scale^2)."""

    name: ClassVar[str] = "normal"
    rho_jitter: ClassVar[float] = 0.1

    @property
    def shares_magnitudes(self) -> bool:  # noqa: D102
        return type(self) is Normal

    def noise(  # noqa: D102
        self, shape: tuple[int, ...], like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        return torch.randn(shape, dtype=_draw_dtype(like), device=like.device, **_from(generator))

    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        return loc + scale * noise

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:  # noqa: D102
        return td.Normal(loc, scale, validate_args=False)

    def kl(self, loc: Tensor, scale: Tensor, prior_loc: float, prior_scale: float) -> Tensor:
        r"""With :math:`z = (\mu - m) / b`, :math:`\rho = \sigma / b`: :math:`\frac12 (z^2 + \rho^2 - 1) - \log \rho`.

        The logarithm of a variable changes nothing about a KL, so that a log-normal's is the same.
        """
        z, ratio = (loc - prior_loc) / prior_scale, scale / prior_scale
        return 0.5 * (z.square() + ratio.square() - 1) - ratio.log()


@dataclass(frozen=True)
class LogNormal(Normal):
    """exp(N(loc, scale^2)): positive factors (appendix C.1); ``loc`` and ``scale`` live in log space."""

    name: ClassVar[str] = "log_normal"
    positive: ClassVar[bool] = True

    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        return torch.exp(loc + scale * noise)

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:  # noqa: D102
        return td.LogNormal(loc, scale, validate_args=False)

    def location(self, loc: Tensor) -> Tensor:  # noqa: D102
        return loc.exp()

    def loc_of(self, value: float) -> float:  # noqa: D102
        if value <= 0:
            raise ValueError(
                f"A log_normal factor is positive, but its location was asked to be {value}. "
                "Give a positive `prior_mean`, or a real-valued family such as 'normal'."
            )
        return math.log(value)


@dataclass(frozen=True)
class Cauchy(Family):
    """Cauchy(loc, scale), drawn as loc + scale tan(pi (u - 1/2))."""

    name: ClassVar[str] = "cauchy"

    def noise(  # noqa: D102
        self, shape: tuple[int, ...], like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        return torch.tan(math.pi * (_uniform(shape, like, generator) - 0.5))

    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        return loc + scale * noise

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:  # noqa: D102
        return td.Cauchy(loc, scale, validate_args=False)

    def kl(self, loc: Tensor, scale: Tensor, prior_loc: float, prior_scale: float) -> Tensor:
        r"""Return :math:`\log \frac{(\sigma + b)^2 + (\mu - m)^2}{4 \sigma b}` (Chyzak and Nielsen 2019)."""
        squares = (scale + prior_scale).square() + (loc - prior_loc).square()
        return (squares / (4 * prior_scale * scale)).log()


@dataclass(frozen=True)
class StudentT(Family):
    """Student-t with ``df`` degrees of freedom.

    Drawn with Bailey's polar method, sqrt(df (u^(-2/df) - 1)) cos(2 pi v), which needs two uniforms
    and no gamma sampler, so it takes a generator and compiles.
    """

    df: float = 3.0
    name: ClassVar[str] = "student_t"

    @property
    def shares_magnitudes(self) -> bool:  # noqa: D102
        return self.df > 4

    def __post_init__(self) -> None:
        check_number("df", self.df, low=0.0, remedy="Small values have heavy tails; 1 is the Cauchy distribution.")

    def noise(  # noqa: D102
        self, shape: tuple[int, ...], like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        radius = 1 - _uniform(shape, like, generator)  # in (0, 1]: zero would be infinite
        angle = 2 * math.pi * _uniform(shape, like, generator)
        return torch.sqrt(self.df * torch.expm1(-2 / self.df * radius.log())) * torch.cos(angle)

    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        return loc + scale * noise

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:  # noqa: D102
        return td.StudentT(torch.full_like(loc, self.df), loc, scale, validate_args=False)


@dataclass(frozen=True)
class DeltaFamily(Family):
    """A point mass at ``loc``: BatchEnsemble, or a maximum a posteriori factor under a proper prior."""

    name: ClassVar[str] = "delta"
    random: ClassVar[bool] = False

    def noise(  # noqa: D102
        self, shape: tuple[int, ...], like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        return loc.expand(torch.broadcast_shapes(loc.shape, noise.shape))

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:  # noqa: D102
        return Delta(loc)

    def kl(self, loc: Tensor, scale: Tensor, prior_loc: float, prior_scale: float) -> Tensor:
        """Return zeros: point masses pay nothing (BatchEnsemble)."""
        return torch.zeros_like(loc)


@dataclass(frozen=True)
class HalfCauchy(Cauchy):
    """|Cauchy(0, scale)|, a prior for positive factors; it starts at zero whatever ``loc`` is."""

    name: ClassVar[str] = "half_cauchy"
    positive: ClassVar[bool] = True
    posterior: ClassVar[bool] = False

    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        return scale * noise.abs()

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:  # noqa: D102
        return td.HalfCauchy(scale, validate_args=False)


@dataclass(frozen=True)
class InverseGamma(Family):
    """A positive r with r^2 ~ inverse-Gamma(df / 2, df scale^2 / 2), which starts at zero whatever ``loc`` is.

    As a prior of a factor it turns normal weights into Student-t ones with ``df`` degrees of freedom (section
    3.2, Figure 1).
    """

    df: float = 3.0
    name: ClassVar[str] = "inverse_gamma"
    positive: ClassVar[bool] = True
    posterior: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("df", self.df, low=0.0, remedy="Small values have heavy tails.")

    def noise(  # noqa: D102
        self, shape: tuple[int, ...], like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        half_df = torch.full(shape, self.df / 2, dtype=_draw_dtype(like), device=like.device)
        return torch.rsqrt(torch._standard_gamma(half_df, generator=generator) / half_df)

    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        return scale * noise

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:  # noqa: D102
        half_df = torch.full_like(scale, self.df / 2)
        return RootInverseGamma(half_df, half_df * scale.square())


@dataclass(frozen=True)
class HorseshoeFamily(Family):
    """The horseshoe: N(loc, lambda^2) with lambda ~ half-Cauchy(scale) (section 3.2), lambda integrated out."""

    name: ClassVar[str] = "horseshoe"
    posterior: ClassVar[bool] = False

    def noise(  # noqa: D102
        self, shape: tuple[int, ...], like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        return Cauchy().noise(shape, like, generator) * Normal().noise(shape, like, generator)

    def transform(self, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        return loc + scale * noise

    def distribution(self, loc: Tensor, scale: Tensor) -> td.Distribution:  # noqa: D102
        return Horseshoe(loc, scale)


FAMILIES: dict[str, type[Family]] = {
    family.name: family
    for family in (Normal, Cauchy, StudentT, LogNormal, DeltaFamily, HalfCauchy, InverseGamma, HorseshoeFamily)
}


def get_family(spec: str | dict[str, Any] | Family, argument: str = "family", **parameters: Any) -> Family:
    """Return the family that a name, a JSON spec or a family object stands for.

    Args:
        spec: ``"normal"``, ``"cauchy"``, ``"student_t"``, ``"log_normal"``, ``"delta"``, the prior-only
            ``"half_cauchy"``, ``"inverse_gamma"`` and ``"horseshoe"``, a dict with a ``name`` and parameters, or
            a ``Family``.
        argument: The argument's name, for the error message.
        **parameters: Shape parameters, such as ``df`` of ``"student_t"``.

    Example:
        >>> get_family({"name": "student_t", "df": 4.0})
        StudentT(df=4.0)
    """
    if isinstance(spec, Family):
        return spec
    if isinstance(spec, dict):
        parameters = {**spec, **parameters}
        spec = parameters.pop("name", None)
    names = [name for name, kind in FAMILIES.items() if kind.posterior or argument != "family" or name == spec]
    check_choice(argument, spec, names)
    family = FAMILIES[spec]  # type: ignore[index]
    known = list(family.__dataclass_fields__)
    if not parameters.keys() <= set(known):
        raise ValueError(
            f"Expected argument `{argument}` to be {spec!r} with the parameters {known}, but got {parameters!r}. "
            "Leave the others out."
        )
    return family(**parameters)
