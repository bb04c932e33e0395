"""Scores of a model on examples, block by block, over all processes."""

import math
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from slimbayes._chunks import NonFiniteOutput
from slimbayes._seeds import Purpose, mix
from slimbayes.data.dataset import DataSet, ExampleSource
from slimbayes.metrics.binary import from_confidence
from slimbayes.metrics.calibration_error import expected_calibration_error
from slimbayes.model import BayesianModel
from slimbayes.prediction import Prediction
from slimbayes.training.batches import blocks
from slimbayes.training.config import Evaluation

__all__ = ["evaluate"]

#: Examples whose predictions are in memory at once.
BLOCK = 2048


def evaluate(
    model: BayesianModel,
    examples: ExampleSource,
    data: DataSet,
    config: Evaluation,
    seed: int,
    accelerator: Accelerator | None = None,
) -> dict[str, float]:
    """Return the mixture's NLL with accuracy and ECE, or with the RMSE for a regression, in the targets' own units.

    If there are several members, the share of their pairs whose labels differ and their mean accuracy alone are there
    as well (section 3.6). An example's NLL sums over its targets, if it has several; the others are means over all.

    Neither the model's mode nor the global generators are changed.

    Args:
        model: The model, not wrapped.
        examples: What to score on.
        data: Where they come from.
        config: Draws of each member, ``model.default_samples`` if it says nothing, and batch size.
        seed: Of the draws.
        accelerator: Shares the examples out among its processes; None for one process.
    """
    rank, processes = (0, 1) if accelerator is None else (accelerator.process_index, accelerator.num_processes)
    samples = model.default_samples if config.samples is None else config.samples
    rows: list[Any] = []
    for number, (inputs, targets) in enumerate(blocks(examples, data.preparation, BLOCK, rank, processes)):
        inputs = tuple(x.to(model.device) for x in inputs)
        try:
            prediction = model.predict(
                *inputs,
                samples=samples,
                batch_size=config.batch_size,
                seed=mix(seed, Purpose.EVALUATION, rank, number),
                keep_draws=True,
            )
        except NonFiniteOutput:  # the caller is to see it in the scores of all processes
            rows.append(torch.full((len(targets), 5), math.nan))
            continue
        rows.append(_figures(prediction, targets.to(model.device)).cpu())
    own = torch.cat(rows) if rows else torch.zeros(0, 5)
    parts = gather_object([own]) if processes > 1 else [own]
    nll, first, second, *diverse = torch.cat(parts).double().unbind(1)
    if model.likelihood is not None and model.likelihood.offers("moments"):
        std, each = data.task.target_std, second.mean().item()  # numbers in a target
        return {"nll": nll.mean().item() + each * math.log(std), "rmse": std * first.mean().sqrt().item()}
    confidence, right = first, second
    if not confidence.isfinite().all():  # the caller is to see it in the NLL, not to hear of it from the ECE
        return {"nll": math.nan, "accuracy": math.nan, "ece": math.nan}
    ece = expected_calibration_error(*from_confidence(confidence, right))
    scores = {"nll": nll.mean().item(), "accuracy": right.mean().item(), "ece": ece.item()}
    names = ("disagreement", "member_accuracy") if model.members > 1 else ()
    return scores | {name: column.mean().item() for name, column in zip(names, diverse, strict=False)}


def _figures(prediction: Prediction, targets: torch.Tensor) -> torch.Tensor:
    """Return what the scores need of each example: ``(batch, 5)``, or ``(batch * labels, 5)`` for several labels."""
    nll = -prediction.log_likelihood(targets)
    if prediction.likelihood is not None and prediction.likelihood.offers("moments"):
        errors = (prediction.mean.view_as(targets) - targets).square().view(len(nll), -1)
        none = torch.zeros_like(nll)
        return torch.stack([nll, errors.mean(1), torch.full_like(nll, errors.shape[1]), none, none], 1)
    right = (prediction.label == targets.long()).to(nll.dtype)
    each = right[0].numel()  # labels of one example; all have its NLL, which sums over them
    members_right = (prediction.member_probs.argmax(-1) == targets.long()).to(nll.dtype).mean(0)
    columns = (prediction.confidence, right, prediction.disagreement.to(nll.dtype), members_right)
    return torch.stack([nll.repeat_interleave(each), *(column.flatten() for column in columns)], 1)
