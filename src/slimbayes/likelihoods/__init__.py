"""Likelihoods: how a network's outputs are read, in the objective and in predictions alike."""

from slimbayes.likelihoods.base import Function as Function
from slimbayes.likelihoods.base import Likelihood as Likelihood
from slimbayes.likelihoods.base import mixture as mixture
from slimbayes.likelihoods.classification import Bernoulli as Bernoulli
from slimbayes.likelihoods.classification import Categorical as Categorical
from slimbayes.likelihoods.counts import NegativeBinomial as NegativeBinomial
from slimbayes.likelihoods.counts import Poisson as Poisson
from slimbayes.likelihoods.normal_mixture import GaussianMixture as GaussianMixture
from slimbayes.likelihoods.ordinal import Ordinal as Ordinal
from slimbayes.likelihoods.quantiles import Quantile as Quantile
from slimbayes.likelihoods.registry import LIKELIHOODS as LIKELIHOODS
from slimbayes.likelihoods.registry import get_likelihood as get_likelihood
from slimbayes.likelihoods.regression import Gaussian as Gaussian
from slimbayes.likelihoods.regression import StudentT as StudentT
from slimbayes.likelihoods.scale import ScaleLikelihood as ScaleLikelihood
from slimbayes.likelihoods.survival import Cox as Cox

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Cox",
    "Function",
    "Gaussian",
    "GaussianMixture",
    "Likelihood",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Quantile",
    "ScaleLikelihood",
    "StudentT",
    "get_likelihood",
    "mixture",
]
