"""Telling inputs from outside the training distribution: scores of a prediction, and how well they do it.

Of every score here, larger means more out of distribution.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes.likelihoods import Bernoulli, Categorical
from slimbayes.metrics._inputs import as_double
from slimbayes.metrics.ranking import auc_pr, auc_roc, cumulative_counts
from slimbayes.prediction import Prediction

__all__ = [
    "OOD_MEASURES",
    "Detection",
    "energy_score",
    "entropy_score",
    "max_probability_score",
    "mutual_information_score",
    "ood_scores",
]


class Detection(NamedTuple):
    """How well scores tell out of distribution from in.

    Attributes:
        auroc: Probability that an input from outside scores higher than one from inside.
        aupr: Average precision, those from outside being the positives.
        fpr95: Share of inputs from inside that are taken for outside when 95 % of those from outside are found.
    """

    auroc: Tensor
    aupr: Tensor
    fpr95: Tensor


def max_probability_score(p: Prediction) -> Tensor:
    r"""Return :math:`1 - \max_c \bar p_c`, without the rounding of confidences near 1 (Hendrycks & Gimpel 2017).

    Example:
        >>> max_probability_score(Prediction(torch.zeros(1, 1, 4))).tolist()
        [0.75]
    """
    return -torch.expm1(_precise(p).class_log_probs.amax(-1))


def entropy_score(p: Prediction) -> Tensor:
    r"""Return the mixture's entropy, :math:`H(\bar p)`, in nats.

    Example:
        >>> entropy_score(Prediction(torch.zeros(1, 1, 4))).exp().round(decimals=6).tolist()
        [4.0]
    """
    return _precise(p).entropy


def mutual_information_score(p: Prediction) -> Tensor:
    r"""Return :math:`H(\bar p) - \frac1D \sum_d H(p_d)`; it is 0 for a single draw.

    Example:
        >>> mutual_information_score(Prediction(torch.zeros(2, 1, 4))).tolist()
        [0.0]
    """
    return _precise(p).mutual_information


def energy_score(p: Prediction) -> Tensor:
    r"""Return :math:`-\frac1D \sum_d \log \sum_c \exp f_{dc}`: the energy (Liu et al. 2020, Eq. 4), mean over draws.

    The one logit :math:`f` of a Bernoulli stands for the two logits :math:`\pm f/2`, so that a sure no is as far
    inside as a sure yes.

    Example:
        >>> energy_score(Prediction(torch.tensor([[[0.0, 0.0], [9.0, 0.0]]]))).round(decimals=4).tolist()
        [-0.6931, -9.0001]
    """
    p = _precise(p)
    p.draw_log_probs  # noqa: B018  # raises for outputs that are not logits
    if isinstance(p.likelihood, Bernoulli):
        logits = p.outputs.squeeze(-1) if p.outputs.dim() > 2 and p.outputs.shape[-1] == 1 else p.outputs
        return -(F.softplus(logits) - logits / 2).mean(0)
    class_dim = p.likelihood.class_axis(p.outputs) if isinstance(p.likelihood, Categorical) else -1
    return -p.outputs.logsumexp(class_dim).mean(0)


#: The scores by name.
OOD_MEASURES: Mapping[str, Callable[[Prediction], Tensor]] = {
    "max_probability": max_probability_score,
    "entropy": entropy_score,
    "mutual_information": mutual_information_score,
    "energy": energy_score,
}


def ood_scores(in_scores: Tensor, out_scores: Tensor) -> Detection:
    r"""Return how well scores tell inputs from outside (the positives) from inputs from inside.

    An input is called out if its score reaches a threshold. The FPR95 is the smallest false positive rate
    :math:`P(s_{in} \ge t)` over thresholds :math:`t` with :math:`P(s_{out} \ge t) \ge 0.95`; inputs of equal score
    are called out together, never in part. In the two areas ties count as in ``auc_roc`` and ``auc_pr``.

    Args:
        in_scores: ``(batch,)``, from inside.
        out_scores: ``(other batch,)``, from outside.

    Example:
        >>> ood_scores(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([0.8, 0.95])).fpr95.item()
        0.25
    """
    inside, outside = as_double("in_scores", in_scores).flatten(), as_double("out_scores", out_scores).flatten()
    scores = torch.cat([inside, outside])
    targets = torch.cat([torch.zeros_like(inside), torch.ones_like(outside)])
    found, alarms = cumulative_counts(scores, targets)
    enough = found * 20 >= found[-1] * 19  # exact, unlike 0.95
    return Detection(auc_roc(scores, targets), auc_pr(scores, targets), alarms[enough][0] / len(inside))


def _precise(p: Prediction) -> Prediction:
    return replace(p, draws=as_double("p.draws", p.outputs))
