"""What of the training data is nearest to an input, as a page shows it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slimbayes.data import DataSet, Task, load_data
from slimbayes.data.folders import MissingData
from slimbayes.evaluation._features import features_of
from slimbayes.evaluation._nearest import NearClass, neighbourhood
from slimbayes.evaluation._shown_example import shown
from slimbayes.model import BayesianModel
from slimbayes.report._prediction_parts import class_name
from slimbayes.training.run import Run

#: Classes and examples that a page shows.
MOST_CLASSES, MOST_EXAMPLES = 5, 6


def near_training(
    run: Run,
    model: BayesianModel,
    inputs: tuple[Tensor, ...],
    label: str | None,
    limit: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return what a page shows of the training data, or under ``problem`` why it cannot.

    Args:
        run: Whose data they are.
        model: Its model.
        inputs: A batch of one, prepared.
        label: The predicted class.
        limit: The most training examples to look at.
        seed: Of choosing them.
        progress: Called with the examples done and the number of them.
    """
    source = run.config.data
    try:
        data = load_data(source.name, source.folder, **source.options)
        run.check_data(data.limited(source.train_limit, source.evaluation_limit))
        data = data.limited(source.train_limit)
    except (MissingData, ValueError) as error:
        return {"problem": str(error), "classes": []}
    try:
        features = features_of(model, *inputs).cpu()[0]
        around = neighbourhood(model, data, limit=limit, seed=seed, progress=progress)
    except RuntimeError as error:  # features of padded records that are the inputs themselves
        return {"problem": f"Training examples cannot be compared: {error}", "classes": []}
    found: dict[str, Any] = {"problem": None, "examined": len(around.rows), "of": len(data.train), "classes": []}
    if around.labels is not None:
        classes = around.classes(features)
        chosen = [one for one in classes if class_name(data.task, one.number) == label]
        kept = classes[:MOST_CLASSES] + [one for one in chosen if one not in classes[:MOST_CLASSES]]
        found["classes"] = [(class_name(data.task, one.number), one, _typicality(one)) for one in kept]
        found["sentence"] = _sentence(class_name(data.task, classes[0].number), classes[0], label)
    else:
        lonelier = around.lonelier_than(features)
        found["sentence"] = "" if lonelier is None else _lonely(lonelier)
    found["examples"] = [_example(data, one.row, one.distance) for one in around.examples(features, MOST_EXAMPLES)]
    return found


def _example(data: DataSet, row: int, distance: float) -> dict[str, Any]:
    raw, targets = data.train.fetch(torch.tensor([row]))
    target = _target(targets[0], data.task)
    return {
        **shown(tuple(x[0] for x in raw), data.task, data.preparation),
        "row": row,
        "distance": distance,
        "target": target,
    }


def _target(target: Tensor, task: Task) -> str:
    if task.likelihood == "gaussian":
        return ", ".join(f"{value * task.target_std + task.target_mean:.4g}" for value in target.reshape(-1).tolist())
    if target.dim():
        return ", ".join(str(int(value)) for value in target.reshape(-1).tolist())
    return class_name(task, int(target))


def _typicality(one: NearClass) -> str:
    if one.farther_than is None:
        return "too few examples to tell"
    if one.farther_than == 1:
        return f"all {one.examples} examples"
    return "none" if one.farther_than == 0 else f"{_per_cent(one.farther_than)} of {one.examples} examples"


def _per_cent(value: float) -> str:
    return f"{100 * value:.1f}%" if value > 0.99 else f"{100 * value:.0f}%"


def _sentence(nearest: str, one: NearClass, label: str | None) -> str:
    said = f"The nearest training class is {nearest}" + (".", ", which is not the one predicted.")[nearest != label]
    if one.farther_than is None:
        return said
    if one.farther_than >= 0.99:
        judgement = "It is unlike what the network learnt from: do not rely on the probabilities alone."
    elif one.farther_than >= 0.95:
        judgement = "It is unusual for that class."
    else:
        judgement = "That is usual for that class."
    amount = {0.0: "none", 1.0: "all"}.get(one.farther_than, _per_cent(one.farther_than))
    return f"{said} The input is farther from its mean than {amount} of its {one.examples} examples are. {judgement}"


def _lonely(lonelier: float) -> str:
    amount = {0.0: "none", 1.0: "all"}.get(lonelier, _per_cent(lonelier))
    judgement = (
        "It is unlike what the network learnt from: do not rely on the interval alone."
        if lonelier >= 0.99
        else "Few training examples are near it."
        if lonelier >= 0.95
        else "That is usual."
    )
    return (
        f"The nearest training example is farther from the input than {amount} of the training examples are from "
        f"theirs. {judgement}"
    )
