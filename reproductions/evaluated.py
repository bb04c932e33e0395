"""What a study's ``look: {evaluate: {...}}`` adds to a stored run: its scores on clean and corrupted examples."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from reproductions.stored import packed
from slimbayes._checks import check_choice, check_count
from slimbayes._seeds import Purpose, mix
from slimbayes.analysis.factors import factor_summary, member_distance
from slimbayes.calibration.temperature import TemperatureScaling
from slimbayes.data.dataset import ExampleSource
from slimbayes.evaluation._per_example_scores import first_samples
from slimbayes.evaluation.evaluating import evaluate, predict
from slimbayes.evaluation.loading import load_subject
from slimbayes.evaluation.record import FILE, Evaluation
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.subject import Subject
from slimbayes.layers.rank1 import Factor
from slimbayes.metrics import ood_scores
from slimbayes.prediction import Prediction

__all__ = ["asked", "evaluated"]

#: Where a study differs from ``slimbayes evaluate``: it looks at the last weights, once at each member, and at nothing
#: it does not name.
DEFAULTS: dict[str, Any] = {"samples": (1,), "which": "last", "ood": "none", "resamples": 0}
MAIN = ("nll", "accuracy", "ece")
#: What is kept of each type and severity.
KEPT = (*MAIN, "mutual_information", "disagreement")
#: Validation examples whose draws are in memory at once.
VALIDATED = 1024
#: Tables call them by one name, with c for corrupted before it.
CORRUPTED = {f"c{name}": name for name in (*MAIN, "auc_pr")}
DIVERSITY = ("disagreement", "normalised_disagreement", "kl", "cosine_similarity")


def evaluated(folder: Path, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Evaluate a finished run as ``slimbayes evaluate`` does, and return what tables and figures need of it.

    All that was found stays in the run's own ``evaluation.json``; called again with the same settings, nothing is done
    twice.

    Args:
        folder: Of the run.
        settings: Fields of ``slimbayes.evaluation.Settings``, and three more: ``validation``, whether to score the
            validation examples too; ``epochs``, whether to keep each epoch's scores; ``draws``, in place of
            ``samples``: draws of all members together, at least one of each; what one of each predicts is scored
            besides (``by_samples``). With ``temperature: fit`` the temperature is fitted on the validation examples.
            ``samples`` is a number or a list, whose first number is the one that tables show.

    Returns:
        JSON values. Scores by name: those of the clean test examples (``nll``, ``accuracy``, ``ece``, ...); means over
        types and severities of corrupted ones (``cnll``, ``caccuracy``, ``cece``), and ``mce`` of ImageNet-C; how
        unlike members are (``disagreement``, ``normalised_disagreement``, ``kl``, ``cosine_similarity``) and their
        mean scores alone (``member_nll``, ...); ``validation_nll`` and so on if asked for. Besides them ``by_samples``,
        the same scores for each number of draws; ``by_severity``, the mean, median and standard deviation over types;
        ``corrupted``, by type and severity; ``ood``; ``epochs``; ``parameters``, running statistics counted; ``draws``
        of all members together; ``seconds`` of it all; and the effective ``settings``. ``each`` holds, packed, each
        test example's ``nll`` and whether it is ``right``, and of those that are corrupted the means over types and
        severities, ``cnll`` and ``cright``. What was not asked for, or cannot be computed, is not there. ``tempered``
        has the same under the temperature: ``temperature``, scores and ``each``. ``members`` has each member's scores,
        ``cmembers`` those on corrupted examples, ``member_gain`` and ``cmember_gain`` what the mixture gains over the
        mean member and over the best one; ``factor_distance`` is how far their factors are apart, and
        ``factor_scale`` their scale (root mean squares over elements; of distances, mean over pairs). With ``each``,
        ``cauroc`` is how well entropy and mutual information tell corrupted examples from clean ones (mean over types
        and severities), and ``pairs`` has the scores of draws alone and in pairs, on ``clean``, ``corrupted`` (means;
        the standard errors are their means too, which is the most that the error of the mean can be) and foreign
        examples.

    Example:
        >>> import tempfile
        >>> from slimbayes.training import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit({"data": "iris", "net": "mlp", "epochs": 1}, folder, quiet=True)
        ...     found = evaluated(run.folder, {"corruptions": ["noise"], "severities": [1, 5]})
        >>> found["cnll"] == sum(found["corrupted"]["noise"][severity]["nll"] for severity in ("1", "5")) / 2
        True
    """
    wanted, validation, epochs = asked(settings or {})
    subject = load_subject(folder, which=wanted.which, trust="reproductions.smoke")
    if draws := (settings or {}).get("draws"):
        count = subject.model.members
        if draws > count and draws % count:
            raise ValueError(
                f"Expected argument `look.evaluate.draws` to be a multiple of the members, of which {subject.name} has "
                f"{count}, but got {draws}."
            )
        wanted = replace(wanted, samples=tuple(dict.fromkeys((max(1, draws // count), 1))))
    if (settings or {}).get("temperature") == "fit":
        wanted = replace(wanted, temperature=_temperature(subject, wanted))
    found = _evaluation(subject, wanted)
    content, first = found.content, _first(wanted)
    by_samples = {str(samples): _scores(found, samples) for samples in found.samples}
    result = {
        **by_samples[str(first)],
        "parameters": content["parameters"],
        "draws": content["members"] * (1 if subject.is_point else first),
        "seconds": round(content["seconds"], 1),
        "by_samples": by_samples,
        "by_severity": _by_severity(found, first),
        "corrupted": _by_type(found, first),
        "ood": {name: one["measures"] for name, one in found.result(first)["ood"].items()},
        "settings": {
            key: content["settings"][key] for key in ("samples", "corruptions", "severities", "limit", "which")
        },
    }
    if wanted.each:
        result |= {"each": _each(found.result(first)), "cauroc": _told_apart(found.result(first))}
    if wanted.pairs:
        result["pairs"] = _pairs(found.result(first))
    if wanted.temperature is not None:
        result["tempered"] = {"temperature": wanted.temperature, **_tempered(found.result(first), wanted.each)}
    if members := found.result(first)["clean"]["members"]:
        result |= {"members": members, "member_gain": _gain(result, members)}
        if wanted.pairs and found.result(first)["corrupted"]:
            each = zip(*(one["members"] for one in _conditions(found.result(first))), strict=True)
            result["cmembers"] = [{name: fmean(one[name] for one in scores) for name in MAIN} for scores in each]
            result["cmember_gain"] = _gain(result, result["cmembers"], "c")
        if any(isinstance(part, Factor) for part in subject.model.stochastic()):
            distances = member_distance(subject.model)["all"]
            result["factor_distance"] = float(distances.sum() / (len(distances) * (len(distances) - 1)))
            scales = np.concatenate([one.scale.ravel() for one in factor_summary(subject.model).values()])
            result["factor_scale"] = float(np.sqrt(np.square(scales).mean()))
    if validation:
        result |= _validation(subject, wanted)
    if epochs:
        result["epochs"] = content["training"]
    return result


def _evaluation(subject: Subject, settings: Settings) -> Evaluation:
    try:
        return evaluate([subject], settings)[0]
    except ValueError:
        if subject.folder is None or not (subject.folder / FILE).is_file():
            raise
        return evaluate([subject], settings, fresh=True)[0]  # what is stored is of other settings or weights


def asked(given: Mapping[str, Any]) -> tuple[Settings, bool, bool]:
    """Return the settings, and whether to score the validation examples and to keep each epoch's scores.

    Raises:
        ValueError: There is no such setting, or no such value of it.

    Example:
        >>> settings, validation, epochs = asked({"samples": [4, 1], "validation": True})
        >>> settings.samples, settings.which, validation, epochs
        ((4, 1), 'last', True, False)
    """
    known = [field.name for field in fields(Settings)]
    for key in given:
        check_choice("look.evaluate", key, [*known, "validation", "epochs", "draws"])
    if "draws" in given:
        check_count("look.evaluate.draws", given["draws"])
        if "samples" in given:
            raise ValueError("Expected `look.evaluate` to have `samples` or `draws`, but got both. Give one.")
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items() if key in known}
    if own.get("temperature") == "fit":  # which needs a model
        del own["temperature"]
    if isinstance(own.get("samples"), int):
        own["samples"] = (own["samples"],)
    pairs = {"pairs": bool(own.get("each"))}  # both are there to compare methods
    return Settings(**{**DEFAULTS, **pairs, **own}), bool(given.get("validation")), bool(given.get("epochs"))


def _first(settings: Settings) -> int:
    """Return the number of draws of each member that a study names first."""
    assert settings.samples is not None  # ``DEFAULTS`` has it
    return settings.samples[0]


def _scores(found: Evaluation, samples: int) -> dict[str, float]:
    """Return every score of one number of draws, by the names that tables have."""
    result, scores = found.result(samples), dict(found.clean(samples))
    if summary := result["summary"]:
        scores |= {name: summary["mean"][of] for name, of in CORRUPTED.items() if of in summary["mean"]}
        scores |= {"mce": summary["mce"]}
    clean = result["clean"]
    if diversity := clean["diversity"]:
        scores |= {name: diversity[name] for name in DIVERSITY}
    if members := clean["members"]:
        scores |= {f"member_{name}": sum(one[name] for one in members) / len(members) for name in MAIN}
    return _known(scores)


def _known(scores: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if value is not None}


def _by_severity(found: Evaluation, samples: int) -> dict[str, Any]:
    spread = (found.result(samples)["summary"] or {"by_severity": {}})["by_severity"]
    return {severity: {name: one[name] for name in MAIN if name in one} for severity, one in spread.items()}


def _by_type(found: Evaluation, samples: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for kind, severity, scores in found.corrupted(samples):
        table.setdefault(kind, {})[str(severity)] = {
            name: scores[name] for name in KEPT if scores.get(name) is not None
        }
    return table


def _conditions(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what was found of each type and severity."""
    return [one for severities in result["corrupted"].values() for one in severities.values()]


def _each(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what pairs of methods need of each example, packed; of corrupted ones, means over types and severities."""
    found: dict[str, str] = {}
    for name in ("nll", "right"):
        found[name] = packed(result["clean"]["each"][name])
        if corrupted := [one["each"][name] for one in _conditions(result)]:
            found[f"c{name}"] = packed(np.mean(corrupted, axis=0))
    return found


def _told_apart(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean AUROC of each uncertainty: how well it tells corrupted examples from clean ones."""
    found: dict[str, float] = {}
    for name in ("entropy", "mutual_information"):
        inside = torch.tensor(result["clean"]["each"][name])
        areas = [ood_scores(inside, torch.tensor(one["each"][name])).auroc.item() for one in _conditions(result)]
        if areas:
            found[name] = fmean(areas)
    return found


def _gain(scores: Mapping[str, Any], members: Sequence[Mapping[str, float]], shifted: str = "") -> dict[str, Any]:
    """Return what the mixture gains over the mean member and over the best one."""
    nll, accuracy = ([one[name] for one in members] for name in ("nll", "accuracy"))
    mixture = {name: scores[f"{shifted}{name}"] for name in ("nll", "accuracy")}
    return {
        "nll": {"mean": fmean(nll) - mixture["nll"], "best": min(nll) - mixture["nll"]},
        "accuracy": {"mean": mixture["accuracy"] - fmean(accuracy), "best": mixture["accuracy"] - max(accuracy)},
    }


def _pairs(result: Mapping[str, Any]) -> dict[str, Any]:
    found = {"clean": _mean_of([result["clean"]["pairs"]])}
    if corrupted := [one["pairs"] for one in _conditions(result)]:
        found["corrupted"] = _mean_of(corrupted)
    for one in found.values():
        error = 1 - one["alone"]["accuracy"]["value"]
        for kind in {"within", "between"} & one.keys():
            figures = one[kind]["disagreement"].items()
            if error:
                one[kind]["normalised_disagreement"] = {name: value and value / error for name, value in figures}
    return found | {name: one["pairs"] for name, one in result["ood"].items()}


def _mean_of(tables: Sequence[Any]) -> Any:
    """Return the mean of numbers that stand at the same positions of nested tables; None where one of them is None."""
    if isinstance(tables[0], Mapping):
        return {name: _mean_of([one[name] for one in tables]) for name in tables[0]}
    return None if None in tables else float(f"{fmean(tables):.6g}")


def _tempered(result: Mapping[str, Any], each: bool) -> dict[str, Any]:
    clean = result["clean"]["tempered"]
    table = {
        kind: {severity: one["tempered"] for severity, one in severities.items()}
        for kind, severities in result["corrupted"].items()
    }
    found: dict[str, Any] = {name: clean["scores"][name] for name in MAIN}
    every = [one["scores"] for severities in table.values() for one in severities.values()]
    found |= {f"c{name}": sum(one[name] for one in every) / len(every) for name in MAIN if every}
    found["corrupted"] = {
        kind: {severity: {name: one["scores"][name] for name in MAIN} for severity, one in severities.items()}
        for kind, severities in table.items()
    }
    return found | ({"each": _each({"clean": clean, "corrupted": table})} if each else {})


def _temperature(subject: Subject, settings: Settings) -> float:
    """Return the temperature of the mixture's class probabilities with the best NLL on validation examples."""
    data, samples = _with_validation(subject), _first(settings)
    log_probs, targets = [], []
    for rows in torch.arange(len(data)).split(VALIDATED):
        inputs, some = data.fetch(rows)
        prediction = predict(
            subject,
            subject.data.preparation(*inputs),
            samples=samples,
            batch_size=settings.batch_size,
            precision=settings.precision,
            seed=mix(settings.seed, Purpose.EVALUATION, int(rows[0])),
            where="validation",
        )
        log_probs.append(first_samples(prediction, samples).class_log_probs)
        targets.append(some)
    return TemperatureScaling().fit(Prediction(torch.cat(log_probs)[None]), torch.cat(targets)).temperature


def _with_validation(subject: Subject) -> ExampleSource:
    if subject.data.validation is None:
        raise ValueError(
            f"Expected `look.evaluate` to ask for nothing of validation examples, but {subject.data.name} has none "
            "here. Set `data.validation`."
        )
    return subject.data.validation


def _validation(subject: Subject, settings: Settings) -> dict[str, float]:
    aside = replace(subject, data=replace(subject.data, test=_with_validation(subject)), folder=None)
    (found,) = evaluate([aside], replace(settings, corruptions="none", ood="none"))
    return {f"validation_{name}": value for name, value in _known(found.clean(_first(settings))).items()}
