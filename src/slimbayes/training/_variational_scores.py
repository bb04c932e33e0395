"""The bound and the scores of a variational posterior on examples that it was not trained on."""

import math

import torch
from torch import Tensor

from slimbayes.data.dataset import DataSet, ExampleSource
from slimbayes.likelihoods import Bernoulli, Categorical
from slimbayes.metrics.binary import from_confidence
from slimbayes.metrics.calibration_error import expected_calibration_error
from slimbayes.metrics.classification import brier_score
from slimbayes.model import BayesianModel
from slimbayes.training.batches import blocks

#: Examples whose draws are in memory at once.
BLOCK = 2048


@torch.no_grad()
def variational_scores(
    model: BayesianModel, examples: ExampleSource, data: DataSet, num_data: int, samples: int, seed: int
) -> dict[str, dict[str, float]]:
    r"""Return the bound per example and the mixture's scores, as the k-tied paper's tables have them.

    .. math::
        -ELBO = \frac{1}{n} \sum_i \frac{1}{S} \sum_s -\log p(y_i | x_i, w_s) + \frac{KL}{N}

    over ``n`` examples, with the KL divided by the number ``N`` of training examples (Eqs. 2 and 3). The same draws
    of the weights serve all examples where the model's draws are shared. ``sem`` is the standard error over examples.

    Args:
        model: The model; its mode and the global generators are left alone.
        examples: What to score on.
        data: Where they come from.
        num_data: Training examples.
        samples: Draws of each member.
        seed: Of the draws.

    Returns:
        ``negative_elbo``, ``expected_nll``, ``kl_per_example``, ``nll`` of the mixture, and of classifiers
        ``accuracy``, ``brier`` (from 0 to 2; TensorFlow's is lower by 1) and ``ece``, each with ``value`` and, where
        there is one, ``sem``.
    """
    columns: list[Tensor] = []
    for inputs, targets in blocks(examples, data.preparation, BLOCK):
        prediction = model.predict(*(x.to(model.device) for x in inputs), samples=samples, seed=seed, keep_draws=True)
        targets = targets.to(model.device)
        likelihood = prediction.likelihood
        assert likelihood is not None
        each = likelihood.log_prob(prediction.outputs, targets).double()
        rows = [-each.mean(0), math.log(len(each)) - each.logsumexp(0)]
        if isinstance(likelihood, Categorical | Bernoulli):
            probs = prediction.class_log_probs.double().exp()
            right = (probs.argmax(-1) == targets.long()).double()
            rows += [right, brier_score(probs, targets.long(), reduction="none"), probs.amax(-1)]
        columns.append(torch.stack(rows).cpu())
    expected, nll, *of_classes = torch.cat(columns, 1)
    kl = model.kl().item() / num_data
    scores = {
        "negative_elbo": {"value": expected.mean().item() + kl, "sem": _sem(expected)},
        "expected_nll": _score(expected),
        "kl_per_example": {"value": kl},
        "nll": _score(nll),
    }
    if of_classes:
        right, brier, confidence = of_classes
        ece = expected_calibration_error(*from_confidence(confidence, right)).item()
        scores |= {"accuracy": _score(right), "brier": _score(brier), "ece": {"value": ece}}
    return scores


def _score(values: Tensor) -> dict[str, float]:
    return {"value": values.mean().item(), "sem": _sem(values)}


def _sem(values: Tensor) -> float:
    return values.std().item() / math.sqrt(len(values))
