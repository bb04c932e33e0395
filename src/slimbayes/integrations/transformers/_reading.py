"""How a Hugging Face network is trained: its likelihood, its targets, and what its logits say about them."""

from typing import Any

import torch
from torch import Tensor
from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from slimbayes.batching import output_tensor
from slimbayes.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from slimbayes.model import BayesianModel
from slimbayes.prediction import Prediction

#: Target of a position that does not count.
IGNORED = -100


def network_of(model: BayesianModel) -> Any:
    """Return the Hugging Face network in a model: of an ensemble the first, of PEFT's the one within."""
    network = model._first_network
    return network.get_base_model() if hasattr(network, "get_base_model") else network


def likelihood_of(network: Any) -> Likelihood:
    """Return the likelihood that a network's own loss stands for: by its ``problem_type``, else by its labels.

    Args:
        network: A Hugging Face network.
    """
    config = network.config
    problem = getattr(config, "problem_type", None)
    classifies = type(network).__name__.endswith(("SequenceClassification", "ImageClassification"))
    if problem == "regression" or (problem is None and classifies and config.num_labels == 1):
        return Gaussian()
    return Bernoulli() if problem == "multi_label_classification" else Categorical(class_dim=-1)


def shifts(network: Any) -> bool:
    """Tell whether position t of the logits is about target t + 1, as in causal language models."""
    if getattr(network.config, "is_encoder_decoder", False):
        return False
    named = type(network).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    return named or LOSS_MAPPING.get(getattr(network, "loss_type", None)) is ForCausalLMLoss


def aligned(outputs: Any, targets: Tensor, shifted: bool) -> tuple[Tensor, Tensor]:
    """Return the logits ``(draws, batch, *)`` and the targets that they are about."""
    logits = output_tensor(outputs)
    return (logits[:, :, :-1], targets[:, 1:]) if shifted else (logits, targets)


def count(targets: Tensor, shifted: bool) -> Tensor:
    """Return how many targets there are: of numbers, one for each example."""
    if targets.is_floating_point():
        return torch.tensor(len(targets), device=targets.device)
    return (targets[:, 1:] if shifted else targets).ne(IGNORED).sum()


def predictions(p: Prediction) -> Tensor:
    """Return what a prediction says of each example: the mixture's log-probabilities, or its mean."""
    reading = p.likelihood
    if reading is None or reading.offers("class_log_probs"):
        return p.log_probs
    return p.mean if reading.offers("moments") else p.outputs.mean(0)


class Scores:
    """Scores of each target, as columns that processes and batches can be gathered in: ``(batch, [time,] columns)``.

    Columns of classes: negative log-likelihood of the mixture, whether its label is right, its confidence, entropy and
    mutual information. Of numbers: negative log-likelihood, squared error and standard deviation. Positions that do
    not count are -100 throughout, as Hugging Face marks them.
    """

    @staticmethod
    def of(p: Prediction, targets: Tensor) -> Tensor:
        """Return the scores of a prediction."""
        assert p.likelihood is not None
        if p.likelihood.offers("class_log_probs"):
            return Scores._of_classes(p, targets)
        columns = [-p.log_likelihood(targets)]
        if p.likelihood.offers("moments"):
            mean, std = p.mean.flatten(1), p.std.flatten(1)
            columns += [(mean - targets.reshape(mean.shape)).square().mean(1), std.mean(1)]
        return torch.stack([column.double() for column in columns], -1)

    @staticmethod
    def _of_classes(p: Prediction, targets: Tensor) -> Tensor:
        log_probs = p.class_log_probs
        if targets.is_floating_point() and targets.shape == log_probs.shape:
            targets = targets.argmax(-1)  # probabilities of classes
        counts = targets.ne(IGNORED)
        wanted = torch.where(counts, targets, 0).long().reshape(log_probs.shape[:-1])
        nll = -log_probs.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
        columns = (nll, p.label == wanted, p.confidence, p.entropy, p.mutual_information)
        scores = torch.stack([column.double() for column in columns], -1)
        return torch.where(counts.reshape(wanted.shape).unsqueeze(-1), scores, float(IGNORED))

    @staticmethod
    def means(scores: Tensor) -> dict[str, float]:
        """Return what the scores of all examples come to."""
        from slimbayes.metrics import expected_calibration_error, from_confidence

        columns = scores.flatten(0, -2)
        columns = columns[columns[:, 0] != IGNORED]
        if not len(columns):
            return {}
        mean = columns.mean(0).tolist()
        if len(mean) == 1:
            return {"nll": mean[0]}
        if len(mean) == 3:
            return {"nll": mean[0], "rmse": mean[1] ** 0.5, "std": mean[2]}
        ece = expected_calibration_error(*from_confidence(columns[:, 2].clamp(0, 1), columns[:, 1]))
        named = dict(zip(("nll", "accuracy", "confidence", "entropy", "mutual_information"), mean, strict=True))
        del named["confidence"]
        return {**named, "ece": ece.item()}
