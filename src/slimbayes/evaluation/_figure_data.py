"""What a report shows besides scores, small enough for a JSON file: curves, histograms, spectra and examples."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes import metrics
from slimbayes.analysis.low_rank import truncated_svd
from slimbayes.analysis.matrices import posterior_matrices, posterior_parts
from slimbayes.analysis.spectrum import variance_shares
from slimbayes.data.dataset import DataSet, ExampleSource
from slimbayes.evaluation._per_example_scores import PerExample
from slimbayes.evaluation._shown_example import shown
from slimbayes.model import BayesianModel

BINS = 30
POINTS = 101
SCATTER = 400
LEVELS = torch.arange(0.05, 0.96, 0.05, dtype=torch.float64)


def details(per_example: PerExample) -> dict[str, Any]:
    """Return the curves of the clean examples: of classes, or of a regression."""
    return _regression(per_example) if "target" in per_example else _classification(per_example)


def _classification(per_example: PerExample) -> dict[str, Any]:
    probs, targets = per_example["log_probs"].exp(), per_example["targets"]
    curve = metrics.reliability_curve(probs, targets)
    risk = metrics.risk_coverage_curve(probs, targets)
    some = torch.linspace(0, len(risk.coverage) - 1, min(POINTS, len(risk.coverage))).round().long().unique()
    right = probs.argmax(1).eq(targets).reshape(len(per_example["entropy"]), -1).all(1)
    return {
        "reliability": {name: _numbers(values) for name, values in curve._asdict().items()},
        "risk_coverage": {"coverage": _numbers(risk.coverage[some]), "risk": _numbers(risk.risk[some])},
        "uncertainty": {
            name: histograms(right=per_example[name][right], wrong=per_example[name][~right])
            for name in ("entropy", "mutual_information")
        },
    }


def _regression(per_example: PerExample) -> dict[str, Any]:
    # A central interval holds the target if the target's rank in the mixture is within half the level of the middle.
    distance = 2 * (per_example["rank"] - 0.5).abs()
    covered = (distance.unsqueeze(1) <= LEVELS).double().mean(0)
    some = torch.linspace(0, len(distance) - 1, min(SCATTER, len(distance))).round().long().unique()
    return {
        "calibration": {"level": _numbers(LEVELS), "coverage": _numbers(covered)},
        "scatter": {name: _numbers(per_example[name][some]) for name in ("target", "mean", "std")},
    }


def histograms(**groups: Tensor) -> dict[str, list[Any]]:
    """Return counts of each group in common bins of equal width.

    Example:
        >>> found = histograms(right=torch.tensor([0.0, 1.0]), wrong=torch.tensor([1.0]))
        >>> found["right"][0], found["right"][-1], found["wrong"][-1]
        (1, 1, 1)
    """
    everything = torch.cat(list(groups.values())).double()
    low, high = everything.min(), everything.max()
    high = torch.where(high > low, high, low + 1)
    counted = {
        name: torch.histc(values.double(), BINS, low.item(), high.item()).long().tolist()
        for name, values in groups.items()
    }
    return {"edges": _numbers(torch.linspace(low.item(), high.item(), BINS + 1)), **counted}


def _numbers(values: Tensor) -> list[Any]:
    """Return JSON numbers with the digits that a figure needs; None for NaN."""
    if not values.is_floating_point():
        return values.tolist()
    return [None if value != value else float(f"{value:.6g}") for value in values.double().tolist()]


# ---------------------------------------------------------------------- the posterior


#: Layers, singular values of each, heat maps and their sides: what a figure can show.
LAYERS, VALUES, MAPS, SIDE = 8, 20, 3, 64


def posterior(model: BayesianModel) -> dict[str, Any] | None:
    """Return the spectra of the first layers, and heat maps of their standard deviations.

    Args:
        model: Any model; without posteriors over weights or factors the result is None.

    Example:
        >>> import slimbayes as sb
        >>> found = posterior(sb.k_tied(torch.nn.Linear(20, 10), k=1))
        >>> found["spectra"][0]["std"][0], found["heat_maps"][0]["shape"]
        (1.0, [20, 10])
    """
    if not any(part.scale.any() for part in posterior_parts(model)):
        return None
    spectra: list[dict[str, Any]] = []
    heat_maps: list[dict[str, Any]] = []
    for name, matrices in list(posterior_matrices(model).items())[:LAYERS]:
        mean, std = ([_brief(share) for share in variance_shares(matrix)[:VALUES]] for matrix in matrices)
        spectra.append({"layer": name, "mean": mean, "std": std})
        if len(heat_maps) < MAPS and min(matrices.scale.shape) > 1:
            sigma = torch.from_numpy(matrices.scale)
            maps = {"sigma": sigma, **{f"rank{k}": truncated_svd(sigma, k).clamp(min=0) for k in (1, 2)}}
            small = {key: _shrunk(values) for key, values in maps.items()}
            heat_maps.append({"layer": name, "shape": list(sigma.shape), **small})
    return {"spectra": spectra, "heat_maps": heat_maps}


def _shrunk(matrix: torch.Tensor) -> list[list[float]]:
    """Return the means over blocks, so that neither side is longer than ``SIDE``."""
    rows, columns = (min(side, SIDE) for side in matrix.shape)
    small = F.adaptive_avg_pool2d(matrix[None], (rows, columns))[0]
    return [[_brief(value) for value in row] for row in small.tolist()]


def _brief(value: float) -> float:
    return float(f"{value:.4g}")


# ---------------------------------------------------------------------- examples worth looking at


#: Examples of each kind.
EXAMPLES = 12


def gallery(per_example: PerExample, examples: ExampleSource, data: DataSet) -> dict[str, list[dict[str, Any]]]:
    """Return the examples to show, each with its input, its target and what is predicted.

    Uncertain are those with the largest entropy (regression: the largest standard deviation); wrong those with the
    largest probability of another class (regression: the largest error in standard deviations).

    Args:
        per_example: Of all clean examples, in their order.
        examples: The same examples, raw.
        data: Where they come from.
    """
    if "target" in per_example:
        return _regression_gallery(per_example, examples, data)
    labels_each = len(per_example["targets"]) // len(per_example["entropy"])
    if labels_each > 1:  # an example with several labels has no one label to show
        return {"uncertain": [], "wrong": []}
    probs, targets = per_example["log_probs"].exp(), per_example["targets"]
    confidence, label = probs.max(1)
    surely_wrong = torch.where(label == targets, -1.0, confidence)
    names = data.task.classes or tuple(map(str, range(probs.shape[1])))

    def item(row: int) -> dict[str, Any]:
        top = probs[row].topk(min(3, probs.shape[1]))
        return {
            "target": names[int(targets[row])],
            "label": names[int(label[row])],
            "confidence": _rounded(confidence[row]),
            "entropy": _rounded(per_example["entropy"][row]),
            "mutual_information": _rounded(per_example["mutual_information"][row]),
            "probs": {names[int(number)]: _rounded(value) for value, number in zip(*top, strict=True)},
        }

    wrong = [row for row in _largest(surely_wrong) if surely_wrong[row] > 0]
    return _items({"uncertain": _largest(per_example["entropy"]), "wrong": wrong}, item, examples, data)


def _regression_gallery(
    per_example: PerExample, examples: ExampleSource, data: DataSet
) -> dict[str, list[dict[str, Any]]]:
    count = len(per_example["nll"])
    if len(per_example["target"]) > count:
        return {"uncertain": [], "wrong": []}
    std, error = per_example["std"], (per_example["mean"] - per_example["target"]).abs()

    def item(row: int) -> dict[str, Any]:
        return {
            name: _rounded(per_example[name][row])
            for name in ("target", "mean", "std", "aleatoric_std", "epistemic_std")
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
    return values.topk(min(EXAMPLES, len(values))).indices.tolist()


def _rounded(value: Tensor) -> float:
    return float(f"{value.item():.6g}")
