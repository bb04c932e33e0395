"""What a study's ``look: {evaluate: {...}}`` adds to a stored run: its scores on clean and corrupted examples."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from slimbayes._checks import check_choice
from slimbayes.evaluation.evaluating import evaluate
from slimbayes.evaluation.loading import load_subject
from slimbayes.evaluation.record import FILE, Evaluation
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.subject import Subject

__all__ = ["asked", "evaluated"]

#: Where a study differs from ``slimbayes evaluate``: it looks at the last weights, and at nothing it does not name.
DEFAULTS: dict[str, Any] = {"which": "last", "ood": "none", "resamples": 0}
#: What is kept of each type and severity.
MAIN = ("nll", "accuracy", "ece")
#: Tables call them by one name, with c for corrupted before it.
CORRUPTED = {f"c{name}": name for name in (*MAIN, "auc_pr")}
DIVERSITY = ("disagreement", "normalised_disagreement", "kl", "cosine_similarity")


def evaluated(folder: Path, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Evaluate a finished run as ``slimbayes evaluate`` does, and return what tables and figures need of it.

    All that was found stays in the run's own ``evaluation.json``; called again with the same settings, nothing is done
    twice.

    Args:
        folder: Of the run.
        settings: Fields of ``slimbayes.evaluation.Settings``, and two more: ``validation``, whether to score the
            validation examples too, and ``epochs``, whether to keep each epoch's scores. ``samples`` is a number or
            a list, whose first number is the one that tables show.

    Returns:
        JSON values. Scores by name: those of the clean test examples (``nll``, ``accuracy``, ``ece``, ...); means over
        types and severities of corrupted ones (``cnll``, ``caccuracy``, ``cece``), and ``mce`` of ImageNet-C; how
        unlike members are (``disagreement``, ``normalised_disagreement``, ``kl``, ``cosine_similarity``) and their
        mean scores alone (``member_nll``, ...); ``validation_nll`` and so on if asked for. Besides them ``by_samples``,
        the same scores for each number of draws; ``by_severity``, the mean, median and standard deviation over types;
        ``corrupted``, by type and severity; ``ood``; ``epochs``; ``parameters``, running statistics counted; and the
        effective ``settings``. What was not asked for, or cannot be computed, is not there.

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
    subject = load_subject(folder, which=wanted.which)
    found = _evaluation(subject, wanted)
    content, first = found.content, wanted.samples[0]
    by_samples = {str(samples): _scores(found, samples) for samples in found.samples}
    result = {
        **by_samples[str(first)],
        "parameters": content["parameters"],
        "by_samples": by_samples,
        "by_severity": _by_severity(found, first),
        "corrupted": _by_type(found, first),
        "ood": {name: one["measures"] for name, one in found.result(first)["ood"].items()},
        "settings": {
            key: content["settings"][key] for key in ("samples", "corruptions", "severities", "limit", "which")
        },
    }
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
        check_choice("look.evaluate", key, [*known, "validation", "epochs"])
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items() if key in known}
    if isinstance(own.get("samples"), int):
        own["samples"] = (own["samples"],)
    return Settings(**{**DEFAULTS, **own}), bool(given.get("validation")), bool(given.get("epochs"))


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
        table.setdefault(kind, {})[str(severity)] = {name: scores[name] for name in MAIN if name in scores}
    return table


def _validation(subject: Subject, settings: Settings) -> dict[str, float]:
    data = subject.data
    if data.validation is None:
        raise ValueError(
            f"Expected argument `look.evaluate.validation` to be false, but got true: {data.name} has no validation "
            "examples here. Set `data.validation`."
        )
    aside = replace(subject, data=replace(data, test=data.validation), folder=None)
    (found,) = evaluate([aside], replace(settings, corruptions="none", ood="none"))
    return {f"validation_{name}": value for name, value in _known(found.clean(settings.samples[0])).items()}
