"""The noise that a stored regression predicts with: that of its draws' mixture, on examples it was not trained on."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from slimbayes._seeds import Purpose, mix
from slimbayes.data.dataset import DataSet
from slimbayes.likelihoods import ScaleLikelihood
from slimbayes.model import BayesianModel

#: Examples, and numbers of all their draws, that it is set on at most.
EXAMPLES, NUMBERS = 4096, 2**24
#: Fewer validation examples say less of the noise than the residuals of training do.
ENOUGH = 20
#: Examples whose predictions are made at once.
BLOCK = 2048


def set_predictive_noise(model: BayesianModel, data: DataSet, seed: int) -> None:
    r"""Set a likelihood's learned scale to the one with the largest log-likelihood of the model's predictions.

    In training, the noise is the scale of single draws' residuals, as the objective asks for. These residuals include
    the spread of the draws, which the predictive mixture would add a second time; and on examples that were fitted
    they are too small. So a model predicts with ``ScaleLikelihood.best_scale`` of ``default_samples`` draws of each
    member, on the validation examples; on the training examples if there are fewer than 20 of the former.

    A model without a learned scale is left alone.

    Args:
        model: Its mode and the global generators are left alone.
        data: Where the examples come from.
        seed: Of the draws.
    """
    likelihood = model.likelihood
    if not isinstance(likelihood, ScaleLikelihood) or likelihood.rho is None:
        return
    samples = model.default_samples if model.ready else 0
    source = data.train if data.validation is None or len(data.validation) < ENOUGH else data.validation
    each = source.fetch(torch.arange(1))[1].numel() * model.members * max(1, samples)
    count = max(1, min(EXAMPLES, NUMBERS // each))
    outputs: list[Tensor] = []
    targets: list[Tensor] = []
    for number, rows in enumerate(torch.arange(0, len(source), -(-len(source) // count)).split(BLOCK)):
        inputs, wanted = source.fetch(rows)
        placed = tuple(x.to(model.device) for x in data.preparation(*inputs))
        prediction = model.predict(*placed, samples=samples, seed=mix(seed, Purpose.PREDICTIVE_NOISE, number))
        found = likelihood.read(prediction.draws, wanted.to(model.device), prediction.batch_dim)
        outputs.append(found[0].cpu())
        targets.append(found[1].cpu())
    likelihood.set_scale(likelihood.best_scale(torch.cat(outputs, 1), torch.cat(targets), mixed=True))


@contextmanager
def predicting_noise(model: BayesianModel, data: DataSet, seed: int) -> Iterator[Tensor | None]:
    """Let a model that is being trained have its predictive noise for a while; yield the rho to train on with.

    Args:
        model: The model.
        data: Its data.
        seed: Of the draws.
    """
    rho = model.likelihood.rho if isinstance(model.likelihood, ScaleLikelihood) else None
    before = None if rho is None else rho.detach().clone()
    set_predictive_noise(model, data, seed)
    try:
        yield before
    finally:
        if rho is not None and before is not None:
            rho.data.copy_(before)
