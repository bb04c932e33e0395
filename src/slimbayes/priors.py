"""Priors of factors: any family, a fixed or a trainable scale, and a distribution of that scale (section 3.2)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch import distributions as td

from slimbayes._checks import SMALLEST_SCALE, check_choice, check_number
from slimbayes.families import Family, HorseshoeFamily, Normal, StudentT, get_family, inverse_softplus, softplus_scale

__all__ = ["Prior"]


class Prior(nn.Module):
    r"""The prior of a factor.

    Args:
        family: Name of the family, or a ``Family``.
        mean: Its location, as a value of the factor (for a log-normal: its median). The
            half-Cauchy and the inverse-gamma start at zero and take no notice of it.
        std: Its scale.
        trainable: Learn the scale (one number, started at ``std``) with the posterior: empirical Bayes.
        scale_prior: A distribution of the scale. ``"half_cauchy"``: :math:`\tau \sim C^+(0, std)`, the horseshoe;
            ``"inverse_gamma"``: :math:`\tau^2 \sim IG(a, a\,std^2)`, the Student-t with ``2a`` degrees of
            freedom. With a fixed scale, each element's :math:`\tau` is integrated out. With a trainable
            one, the learned scale pays :math:`-\log p(\tau)`.
        df: Degrees of freedom ``2a`` of ``"inverse_gamma"``.

    Example:
        >>> prior = Prior("normal", mean=1.0, std=0.1, scale_prior="inverse_gamma")
        >>> prior.distribution(torch.zeros(2)).df
        tensor([3., 3.])
    """

    def __init__(
        self,
        family: str | dict[str, Any] | Family = "normal",
        mean: float = 1.0,
        std: float = 0.1,
        trainable: bool = False,
        scale_prior: str | None = None,
        df: float = 3.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_number("prior_mean", mean)
        check_number("prior_std", std, low=SMALLEST_SCALE)
        check_number("df", df, low=0.0, remedy="Small values have heavy tails.")
        if scale_prior is not None:
            check_choice("scale_prior", scale_prior, ("half_cauchy", "inverse_gamma"))
        self.family = get_family(family, "prior_family")
        self.loc, self.std, self.scale_prior, self.df = self.family.loc_of(mean), std, scale_prior, df
        if scale_prior is not None and not trainable:
            if type(self.family) is not Normal:
                raise ValueError(
                    f"Expected argument `prior_family` to be 'normal' with scale_prior={scale_prior!r} and a "
                    f"fixed scale (only a normal's scale can be integrated out), but got "
                    f"{self.family.name!r}. Use prior_scale='trainable', or drop `scale_prior`."
                )
            self.family = HorseshoeFamily() if scale_prior == "half_cauchy" else StudentT(df)
        self.rho: nn.Parameter | None = None
        if trainable:
            self.rho = nn.Parameter(torch.tensor(inverse_softplus(std), device=device, dtype=dtype))

    def distribution(self, like: Tensor) -> td.Distribution:
        """Return the prior over a tensor of the shape, dtype and device of ``like``."""
        scale = torch.full_like(like, self.std) if self.rho is None else softplus_scale(self.rho)
        return self.family.distribution(torch.full_like(like, self.loc), scale.expand_as(like))

    def penalty(self) -> Tensor | None:
        r"""Return :math:`-\log p(\tau)` of a trainable scale under ``scale_prior``, or None."""
        if self.rho is None or self.scale_prior is None:
            return None
        tau = softplus_scale(self.rho)
        if self.scale_prior == "half_cauchy":
            return -td.HalfCauchy(tau.new_tensor(self.std), validate_args=False).log_prob(tau)
        a = tau.new_tensor(self.df / 2)
        of_variance = td.InverseGamma(a, a * self.std**2, validate_args=False)
        # The distribution is the variance's; log |d tau^2 / d tau| = log(2 tau) makes it a density of tau.
        return -(of_variance.log_prob(tau.square()) + (2 * tau).log())

    def extra_repr(self) -> str:
        """Show the distribution."""
        kind = "fixed" if self.rho is None else "trainable"
        hyper = "" if self.scale_prior is None else f", scale_prior={self.scale_prior}"
        return f"{self.family.name}, loc={self.loc:g}, std={self.std:g} ({kind}{hyper})"
