"""Evaluate models on clean, corrupted and out-of-distribution examples."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from slimbayes.data.dataset import DataSet
from slimbayes.evaluation.conditions import conditions, corruption_source
from slimbayes.evaluation.ood_sets import default_ood, ood_condition
from slimbayes.evaluation.record import Evaluation
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.store import Store
from slimbayes.evaluation.subject import Subject
from slimbayes.evaluation.work import Work

__all__ = ["evaluate"]


def evaluate(
    subjects: Sequence[Subject],
    settings: Settings | None = None,
    *,
    data_folder: Path | None = None,
    fresh: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Evaluation]:
    """Evaluate models that belong to one data set; each corrupted block is made once and shown to all of them.

    After every condition the results are stored beside each run, and what is stored already is not done again.

    Args:
        subjects: The models.
        settings: What to evaluate on; None for the defaults.
        data_folder: Where official corrupted files and out-of-distribution sets are; None for where a run's data are.
        fresh: Begin anew, whatever is stored.
        progress: Called with predictions done and their number.

    Returns:
        An evaluation for each subject; what it holds does not depend on the other subjects.
    """
    data, settings = _common_data(subjects), settings or Settings()
    data_folder = data_folder or next((one.data_folder for one in subjects if one.data_folder), None)
    every = conditions(
        data,
        folder=data_folder,
        corruptions=settings.corruptions,
        extra=settings.extra,
        severities=settings.severities,
        seed=settings.seed,
        limit=settings.limit,
    )
    wanted = _ood_names(settings, data, data_folder)
    stored = asdict(settings) | {
        "corruptions": corruption_source(data, settings.corruptions, data_folder, extra=settings.extra),
        "types": list(dict.fromkeys(one.name for one in every[1:])),
        "severities": list(settings.severities),
        "samples": sorted(set(settings.samples)),
        "ood": wanted,
    }
    del stored["batch_size"], stored["extra"]
    stores = [Store(subject, stored, fresh) for subject in subjects]
    others = {
        name: ood_condition(name, data, folder=data_folder, seed=settings.seed, limit=settings.limit)
        for name in wanted
        if any(store.lacks("ood", name) for store in stores)
    }
    Work(every, others, settings, stores).run(progress)
    return [store.evaluation for store in stores]


def _common_data(subjects: Sequence[Subject]) -> DataSet:
    if not subjects:
        raise ValueError("Expected at least one subject to evaluate, but got none.")
    first = subjects[0].data
    for one in subjects[1:]:
        if (one.data.name, one.data.preparation.spec()) != (first.name, first.preparation.spec()):
            raise ValueError(
                f"Expected subjects of one data set, prepared alike, but {subjects[0].name} ({first.name}) and "
                f"{one.name} ({one.data.name}) are not. Evaluate them one by one."
            )
    return first


def _ood_names(settings: Settings, data: DataSet, folder: Path | None) -> list[str]:
    if data.task.likelihood == "gaussian":  # the measures are of class probabilities
        if not isinstance(settings.ood, str) and settings.ood:
            raise ValueError(
                f"Expected argument `ood` to be 'auto' or 'none' for a regression such as {data.name}, but got "
                f"{', '.join(settings.ood)}: the measures that tell inputs apart are of classes."
            )
        return []
    if isinstance(settings.ood, str):
        return default_ood(data, folder) if settings.ood == "auto" else []
    return list(settings.ood)
