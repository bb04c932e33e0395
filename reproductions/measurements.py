"""What a study measures of a trained model: scores, approximations of low rank, spectra, heat maps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproductions.study import Look
from slimbayes._seeds import Purpose, mix
from slimbayes.analysis.heat_maps import heat_maps
from slimbayes.analysis.low_rank import full_weights, low_rank
from slimbayes.analysis.spectrum import explained_variance
from slimbayes.analysis.tie import tie
from slimbayes.data.dataset import DataSet
from slimbayes.model import BayesianModel
from slimbayes.summary import count_parameters
from slimbayes.training._variational_scores import variational_scores
from slimbayes.training.models import configured_data
from slimbayes.training.run import Run

__all__ = ["look_at", "tied_parameters"]

#: Rows and columns of a stored heat map at most.
THINNED = 64


def look_at(folder: Path, look: Look) -> dict[str, Any]:
    """Return what is to be stored of a finished run, as JSON values.

    Args:
        folder: Of the run.
        look: What to measure.
    """
    run = Run.open(folder, trust="reproductions.smoke")
    config, result, model = run.config, run.result, run.model("last")
    assert result is not None
    data = configured_data(config)
    seed = mix(config.seed, Purpose.EVALUATION)
    watched = [line for line in run.metrics if "watch" in line]
    found: dict[str, Any] = {
        "parameters": count_parameters(model, running_statistics=True),
        "epochs": result["epochs"],
        "steps": result["steps"],
        "rows": _rows(model, result["steps"], config.batch_size, len(data.train)),
        "seconds": result["seconds"],
        **({"cpu_seconds": result["cpu_seconds"]} if result.get("cpu_seconds") is not None else {}),
        "curve": [_point(line) for line in watched if "scales" in line["watch"]],
        "snr": {str(line["step"]): line["watch"]["snr"] for line in watched if "snr" in line["watch"]},
        "best_checkpoint": {part: result[part] for part in ("validation", "test")},
    }
    for part in look.parts:
        if getattr(data, part) is not None:
            found[part] = _scores(model, data, part, look.samples, seed)
    if "estimator" in model.options and "k" not in model.options:  # a standard deviation for each weight
        found |= _approximated(model, data, look, seed)
    if look.spectra:
        shares = explained_variance(model)
        found["spectra"] = {
            name: {kind: _rounded(getattr(share, kind)[: look.spectra]) for kind in ("mean", "scale")}
            for name, share in shares.items()
        }
    if look.heat_maps and config.seed == 0:
        found["heat_maps"] = {layer: _thinned(model, layer) for layer in look.heat_maps}
    if look.evaluate is not None:
        from reproductions.evaluated import evaluated

        found["evaluation"] = evaluated(folder, look.evaluate)
    return found


def _rows(model: BayesianModel, steps: int, batch: int, examples: int) -> int:
    """Return how many rows went through the network in training: every member's, unless they share the batch out."""
    epochs, more = divmod(steps, -(-examples // batch))
    return (epochs * examples + more * batch) * (1 if model.options.get("train_on") == "split" else model.members)


def _point(line: dict[str, Any]) -> dict[str, Any]:
    seen = {key: value for key, value in line["watch"].items() if key != "snr"}
    return {"step": line["step"], "seconds": round(line["seconds"], 2), **seen}


def _scores(model: BayesianModel, data: DataSet, part: str, samples: int, seed: int) -> dict[str, dict[str, float]]:
    return variational_scores(model, getattr(data, part), data, len(data.train), samples, seed)


def _approximated(model: BayesianModel, data: DataSet, look: Look, seed: int) -> dict[str, Any]:
    """Return the scores with standard deviations of low rank: cut off after training, or k-tied."""
    found: dict[str, Any] = {}
    if look.low_rank:
        found["low_rank"] = {
            str(k): {
                "test": _scores(low_rank(model, k, layers=look.approximated), data, "test", look.samples, seed),
                "parameters": tied_parameters(model, k, look.approximated),
            }
            for k in look.low_rank
        }
    if look.tie:
        found["tie"] = {str(k): _tied(tie(model, k, layers=look.approximated), data, look, seed) for k in look.tie}
    return found


def _tied(model: BayesianModel, data: DataSet, look: Look, seed: int) -> dict[str, Any]:
    scores = _scores(model, data, "test", look.samples, seed)
    return {"test": scores, "parameters": count_parameters(model, running_statistics=True)}


def tied_parameters(model: BayesianModel, k: int, layers: Sequence[str] | None = None) -> int:
    """Return the parameters of a mean-field model whose matrices of standard deviations have rank k (Table 5).

    A matrix of m by n has k (m + n) in place of m n.

    Args:
        model: The mean-field model.
        k: The rank.
        layers: Those of rank k, by name; None for all.

    Example:
        >>> import slimbayes as sb
        >>> tied_parameters(sb.mean_field(sb.nets.MLP(784, [400, 400], 10)), 2)
        484008
    """
    saved = 0
    for part in full_weights(model, layers):
        outputs = part.mean.shape[part.output_dim]
        inputs = part.mean.numel() // outputs
        saved += outputs * inputs - k * (outputs + inputs)
    return count_parameters(model, running_statistics=True) - saved


def _thinned(model: BayesianModel, layer: str) -> dict[str, Any]:
    """Return a layer's heat maps with rows and columns left out evenly: means over blocks would blur stripes."""
    maps = heat_maps(model, layer)
    rows, columns = (_evenly(size) for size in maps["sigma"].shape)
    stored = {str(name): [_rounded(row) for row in matrix[np.ix_(rows, columns)]] for name, matrix in maps.items()}
    return {"shape": list(maps["sigma"].shape), **stored}


def _evenly(size: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, min(size, THINNED)).round().astype(int))


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
