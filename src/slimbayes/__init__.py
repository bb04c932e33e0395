"""Bayesian neural nets at the price of one network.

>>> import torch, slimbayes as sb
>>> model = sb.rank1(torch.nn.Linear(8, 3), members=4)
>>> model(torch.randn(5, 8)).shape
torch.Size([4, 5, 3])
"""

from typing import TYPE_CHECKING

from slimbayes._lazy import lazily
from slimbayes.methods.registry import BUILT_IN

__version__ = "0.1.0"

if TYPE_CHECKING:
    from slimbayes import analysis as analysis
    from slimbayes import calibration as calibration
    from slimbayes import data as data
    from slimbayes import evaluation as evaluation
    from slimbayes import families as families
    from slimbayes import layers as layers
    from slimbayes import mcmc as mcmc
    from slimbayes import metrics as metrics
    from slimbayes import nets as nets
    from slimbayes import report as report
    from slimbayes import shifts as shifts
    from slimbayes import training as training
    from slimbayes.batching import BatchAxis as BatchAxis
    from slimbayes.calibration import ConformalClassifier as ConformalClassifier
    from slimbayes.calibration import ConformalRegressor as ConformalRegressor
    from slimbayes.calibration import TemperatureScaling as TemperatureScaling
    from slimbayes.calibration import calibration_split as calibration_split
    from slimbayes.calibration import load_calibration as load_calibration
    from slimbayes.conversion import register_converter as register_converter
    from slimbayes.fitting import fit_posterior as fit_posterior
    from slimbayes.likelihoods import Bernoulli as Bernoulli
    from slimbayes.likelihoods import Categorical as Categorical
    from slimbayes.likelihoods import Cox as Cox
    from slimbayes.likelihoods import Gaussian as Gaussian
    from slimbayes.likelihoods import GaussianMixture as GaussianMixture
    from slimbayes.likelihoods import Likelihood as Likelihood
    from slimbayes.likelihoods import NegativeBinomial as NegativeBinomial
    from slimbayes.likelihoods import Ordinal as Ordinal
    from slimbayes.likelihoods import Poisson as Poisson
    from slimbayes.likelihoods import Quantile as Quantile
    from slimbayes.likelihoods import StudentT as StudentT
    from slimbayes.mcmc.model_sampler import chain_sampler as chain_sampler
    from slimbayes.methods.batch_ensemble import batch_ensemble as batch_ensemble
    from slimbayes.methods.deep_ensemble import add_member as add_member
    from slimbayes.methods.deep_ensemble import deep_ensemble as deep_ensemble
    from slimbayes.methods.deterministic import deterministic as deterministic
    from slimbayes.methods.k_tied import k_tied as k_tied
    from slimbayes.methods.laplace import laplace as laplace
    from slimbayes.methods.mc_dropout import mc_dropout as mc_dropout
    from slimbayes.methods.mean_field import mean_field as mean_field
    from slimbayes.methods.rank1 import rank1 as rank1
    from slimbayes.methods.registry import register_method as register_method
    from slimbayes.methods.sgmcmc import sgmcmc as sgmcmc
    from slimbayes.methods.subspace import subspace as subspace
    from slimbayes.methods.subspace_inference import subspace_inference as subspace_inference
    from slimbayes.methods.swag import swag as swag
    from slimbayes.model import BayesianModel as BayesianModel
    from slimbayes.objective import ELBO as ELBO
    from slimbayes.prediction import Prediction as Prediction
    from slimbayes.pretrained import load as load
    from slimbayes.schedules import linear_annealing as linear_annealing
    from slimbayes.schedules import stepwise_annealing as stepwise_annealing
    from slimbayes.shifts import corruptions as corruptions
    from slimbayes.summary import count_parameters as count_parameters

#: Where each public name is. They are imported when they are first used, so that the command line need not wait
#: for torch before it can print its help. A test holds this against the list above.
_PLACES = {
    **dict.fromkeys(("analysis", "calibration", "data", "evaluation", "families", "layers", "mcmc", "metrics"), ""),
    **dict.fromkeys(("nets", "report", "shifts", "training"), ""),
    "corruptions": "shifts",
    **dict.fromkeys(
        ("ConformalClassifier", "ConformalRegressor", "TemperatureScaling", "calibration_split", "load_calibration"),
        "calibration",
    ),
    **dict.fromkeys(
        (
            "Bernoulli",
            "Categorical",
            "Cox",
            "Gaussian",
            "GaussianMixture",
            "Likelihood",
            "NegativeBinomial",
            "Ordinal",
            "Poisson",
            "Quantile",
            "StudentT",
        ),
        "likelihoods",
    ),
    "fit_posterior": "fitting",
    "chain_sampler": "mcmc.model_sampler",
    "register_converter": "conversion",
    **{method: f"methods.{method}" for method in BUILT_IN},
    "register_method": "methods.registry",
    "add_member": "methods.deep_ensemble",
    "subspace_inference": "methods.subspace_inference",
    "BayesianModel": "model",
    "ELBO": "objective",
    "Prediction": "prediction",
    "load": "pretrained",
    **dict.fromkeys(("linear_annealing", "stepwise_annealing"), "schedules"),
    "count_parameters": "summary",
    "BatchAxis": "batching",
}

__getattr__ = lazily("slimbayes", _PLACES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
