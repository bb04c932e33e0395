"""Likelihoods by name."""

import inspect
from collections.abc import Callable
from typing import Any

from slimbayes._checks import check_choice
from slimbayes.likelihoods.base import Function, Likelihood
from slimbayes.likelihoods.classification import Bernoulli, Categorical
from slimbayes.likelihoods.counts import NegativeBinomial, Poisson
from slimbayes.likelihoods.normal_mixture import GaussianMixture
from slimbayes.likelihoods.ordinal import Ordinal
from slimbayes.likelihoods.quantiles import Quantile
from slimbayes.likelihoods.regression import Gaussian, StudentT
from slimbayes.likelihoods.survival import Cox

__all__ = ["LIKELIHOODS", "get_likelihood", "options_of"]

#: All likelihoods that a name, a configuration or a file may ask for.
LIKELIHOODS: dict[str, type[Likelihood]] = {
    kind.name: kind
    for kind in (
        Categorical,
        Bernoulli,
        Gaussian,
        GaussianMixture,
        Ordinal,
        Poisson,
        NegativeBinomial,
        StudentT,
        Quantile,
        Cox,
    )
}


def get_likelihood(spec: str | dict[str, Any] | Likelihood | Callable[[Any, Any], Any]) -> Likelihood:
    """Return the likelihood that a name, a JSON spec, a likelihood or a function stands for.

    Example:
        >>> get_likelihood("gaussian").noise
        'learned'
    """
    if isinstance(spec, Likelihood):
        return spec
    if callable(spec) and not isinstance(spec, type):
        return Function(spec)
    if isinstance(spec, type) and issubclass(spec, Likelihood):
        raise ValueError(
            f"Expected argument `likelihood` to be a likelihood, but got the class {spec.__name__}. Make one of it, "
            f"{spec.__name__}(), or give its name, {spec.name!r}."
        )
    options: dict[str, Any] = dict(spec) if isinstance(spec, dict) else {"name": spec}
    name: str = options.pop("name")
    check_choice("likelihood", name, LIKELIHOODS)
    known = options_of(name)
    for option in options:
        check_choice("likelihood", option, known)
    missing = [option for option, needed in known.items() if needed and option not in options]
    if missing:
        raise ValueError(
            f"The likelihood {name!r} needs {' and '.join(missing)}: likelihood=sb.{LIKELIHOODS[name].__name__}"
            f"({missing[0]}=...), in a configuration {{name: {name}, {missing[0]}: ...}}."
        )
    return LIKELIHOODS[name](**options)


def options_of(name: str) -> dict[str, bool]:
    """Return the names of a likelihood's options, and whether each must be given.

    Example:
        >>> options_of("ordinal"), options_of("poisson")
        ({'levels': True}, {})
    """
    parameters = inspect.signature(LIKELIHOODS[name]).parameters.values()
    named = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return {each.name: each.default is each.empty for each in named}
