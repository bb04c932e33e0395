"""From the runs of members to the run of their ensemble."""

import copy
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch

from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes.data.registry import load_data
from slimbayes.likelihoods import Gaussian, Likelihood
from slimbayes.methods.deep_ensemble import deep_ensemble
from slimbayes.model import BayesianModel
from slimbayes.summary import count_parameters
from slimbayes.training.config import TrainConfig
from slimbayes.training.evaluation import evaluate
from slimbayes.training.run import Run

__all__ = ["assemble"]


def assemble(run: Run, config: TrainConfig, members: Sequence[Run]) -> None:
    """Make a run of the best checkpoints of others, and score it.

    Args:
        run: Gets checkpoint, configuration and result; what it had is replaced.
        config: Of the ensemble.
        members: Finished runs of the deterministic method.
    """
    models = [member.model() for member in members]
    options = {name: value for name, value in config.method.options.items() if name != "members"}
    model = deep_ensemble([one.member(0) for one in models], **options)
    model.likelihood = _likelihood(models)
    if config.device == "auto" and torch.cuda.is_available():
        model = model.to("cuda")
    scores = _scores(model, config)
    results: list[dict[str, Any]] = [member.result or {} for member in members]
    nll = None if scores["validation"] is None else scores["validation"]["nll"]
    about = {"seed": config.seed, "parameters": count_parameters(model)}
    run.folder.mkdir(parents=True, exist_ok=True)
    run.tidy()
    index = run.checkpoints.put(f"members-{len(members):05d}", model, results[0]["epochs"], nll)
    origin = {"method_options": model.options, "processes": 1, **provenance()}
    run.begin({**about, **origin}, members[0].task, members[0].preparation)
    run.store_config(config)
    result = {
        "length": {"epochs": config.epochs, "steps": config.steps},
        "epochs": results[0]["epochs"],
        "steps": results[0]["steps"],
        "best": index.best,
        **scores,
        "seconds": sum(one["seconds"] for one in results),
        **about,
        "members": [{key: one[key] for key in ("seed", "best", "validation", "test")} for one in results],
        **provenance(),
    }
    write_json(run.folder / "result.json", result)


def _likelihood(models: Sequence[BayesianModel]) -> Likelihood | None:
    """Return how to read the ensemble's outputs; of learned noise, the mean of the members' variances."""
    each = [model.likelihood for model in models]
    if all(isinstance(one, Gaussian) and one.rho is not None for one in each):
        zero = torch.zeros(1, 1)
        variances = [one.moments(zero)[1].item() ** 2 for one in each if isinstance(one, Gaussian)]
        return Gaussian(initial=fmean(variances) ** 0.5)
    return copy.deepcopy(each[0])


def _scores(model: BayesianModel, config: TrainConfig) -> dict[str, Any]:
    data = load_data(config.data.name, config.data.folder, **config.data.options)
    data = data.limited(config.data.train_limit, config.data.evaluation_limit)
    scores: dict[str, Any] = {"validation": None, "test": None}
    for part in scores:
        examples = getattr(data, part)
        if examples is not None and (part == "validation" or config.evaluation.test):
            scores[part] = evaluate(model, examples, data, config.evaluation, config.seed)
    return scores
