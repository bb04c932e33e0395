"""From the runs of members to the run of their ensemble."""

import copy
from collections.abc import Sequence
from typing import Any

import torch

from slimbayes._files import with_checksum, write_json
from slimbayes._provenance import provenance
from slimbayes.data.dataset import DataSet
from slimbayes.data.fingerprint import fingerprint
from slimbayes.methods.deep_ensemble import deep_ensemble
from slimbayes.model import BayesianModel
from slimbayes.summary import count_parameters
from slimbayes.training._predictive_noise import set_predictive_noise
from slimbayes.training.config import TrainConfig
from slimbayes.training.evaluation import evaluate
from slimbayes.training.models import configured_data
from slimbayes.training.run import Run


def assemble(run: Run, config: TrainConfig, members: Sequence[Run]) -> None:
    """Make a run of the best checkpoints of others, and score it.

    Args:
        run: Gets checkpoint, configuration and result; what it had is replaced.
        config: Of the ensemble.
        members: Finished runs of the deterministic method.
    """
    data = configured_data(config)
    for member in members:
        member.check_data(data)
    models = [member.model() for member in members]
    options = {name: value for name, value in config.method.options.items() if name != "members"}
    model = deep_ensemble([one.member(0) for one in models], **options)
    model.likelihood = copy.deepcopy(models[0].likelihood)  # its scale, if it learns one, is set below
    if config.device == "auto" and torch.cuda.is_available():
        model = model.to("cuda")
    set_predictive_noise(model, data, config.seed)
    scores = _scores(model, config, data)
    results: list[dict[str, Any]] = [member.result or {} for member in members]
    nll = None if scores["validation"] is None else scores["validation"]["nll"]
    about = {"seed": config.seed, "parameters": count_parameters(model)}
    run.folder.mkdir(parents=True, exist_ok=True)
    run.tidy()
    index = run.checkpoints.put(f"members-{len(members):05d}", model, results[0]["epochs"], nll)
    origin = {"method_options": model.options, "processes": 1, "data": fingerprint(data), **provenance()}
    run.begin({**about, **origin}, members[0].task, members[0].preparation)
    run.store_config(config)
    result = {
        "length": config.length,
        "epochs": results[0]["epochs"],
        "steps": results[0]["steps"],
        "best": index.best,
        **scores,
        "draws": model.members * max(1, config.evaluation.samples or model.default_samples),
        "seconds": sum(one["seconds"] for one in results),
        "cpu_seconds": _sum_if_known([one.get("cpu_seconds") for one in results]),
        **about,
        "members": [{key: one[key] for key in ("seed", "best", "validation", "test")} for one in results],
        **provenance(),
    }
    write_json(run.folder / "result.json", with_checksum(result))


def _sum_if_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _scores(model: BayesianModel, config: TrainConfig, data: DataSet) -> dict[str, Any]:
    scores: dict[str, Any] = {"validation": None, "test": None}
    for part in scores:
        examples = getattr(data, part)
        if examples is not None and (part == "validation" or config.evaluation.test):
            scores[part] = evaluate(model, examples, data, config.evaluation, config.seed)
    return scores
