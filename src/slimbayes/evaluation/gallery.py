"""The examples that are worth looking at: the most uncertain, and the most confidently wrong."""

from typing import Any

import torch
from torch import Tensor

from slimbayes.data.dataset import DataSet, ExampleSource
from slimbayes.evaluation.readings import Readings
from slimbayes.evaluation.shown_example import shown

__all__ = ["gallery"]

#: Examples of each kind.
COUNT = 12


def gallery(readings: Readings, examples: ExampleSource, data: DataSet) -> dict[str, list[dict[str, Any]]]:
    """Return the examples to show, each with its input, its target and what is predicted.

    Uncertain are those with the largest entropy (regression: the largest standard deviation); wrong those with the
    largest probability of another class (regression: the largest error in standard deviations).

    Args:
        readings: Of all clean examples, in their order.
        examples: The same examples, raw.
        data: Where they come from.
    """
    if "target" in readings:
        return _regression(readings, examples, data)
    labels_each = len(readings["targets"]) // len(readings["entropy"])
    if labels_each > 1:  # an example with several labels has no one label to show
        return {"uncertain": [], "wrong": []}
    probs, targets = readings["log_probs"].exp(), readings["targets"]
    confidence, label = probs.max(1)
    surely_wrong = torch.where(label == targets, -1.0, confidence)
    names = data.task.classes or tuple(map(str, range(probs.shape[1])))

    def item(row: int) -> dict[str, Any]:
        top = probs[row].topk(min(3, probs.shape[1]))
        return {
            "target": names[int(targets[row])],
            "label": names[int(label[row])],
            "confidence": _short(confidence[row]),
            "entropy": _short(readings["entropy"][row]),
            "mutual_information": _short(readings["mutual_information"][row]),
            "probs": {names[int(place)]: _short(value) for value, place in zip(*top, strict=True)},
        }

    wrong = [row for row in _largest(surely_wrong) if surely_wrong[row] > 0]
    return _items({"uncertain": _largest(readings["entropy"]), "wrong": wrong}, item, examples, data)


def _regression(readings: Readings, examples: ExampleSource, data: DataSet) -> dict[str, list[dict[str, Any]]]:
    count = len(readings["nll"])
    if len(readings["target"]) > count:
        return {"uncertain": [], "wrong": []}
    std, error = readings["std"], (readings["mean"] - readings["target"]).abs()

    def item(row: int) -> dict[str, Any]:
        return {
            name: _short(readings[name][row]) for name in ("target", "mean", "std", "aleatoric_std", "epistemic_std")
        }

    found = {"uncertain": _largest(std), "wrong": _largest(error / std.clamp_min(1e-300))}
    return _items(found, item, examples, data)


def _items(found: dict[str, list[int]], item: Any, examples: ExampleSource, data: DataSet) -> dict[str, Any]:
    result = {}
    for kind, rows in found.items():
        items = []
        for row in rows:
            raw, _ = examples.fetch(torch.tensor([row]))
            seen = shown(tuple(x[0] for x in raw), data.task, data.preparation)
            items.append({"index": row, "name": str(row), **seen, **item(row)})
        result[kind] = items
    return result


def _largest(values: Tensor) -> list[int]:
    return values.topk(min(COUNT, len(values))).indices.tolist()


def _short(value: Tensor) -> float:
    return float(f"{value.item():.6g}")
