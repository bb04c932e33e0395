"""Evaluate models on clean, corrupted and out-of-distribution examples."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimbayes import metrics
from slimbayes._chunks import NonFiniteOutput
from slimbayes._seeds import Purpose, mix
from slimbayes.data.dataset import DataSet
from slimbayes.evaluation._figure_data import details, gallery, histograms, posterior
from slimbayes.evaluation._per_example_scores import PerExample, first_samples, read, read_members, read_pairs
from slimbayes.evaluation._scoring import diversity, each, intervals, member_scores, pairs, scores, summarise, tempered
from slimbayes.evaluation._store import Store
from slimbayes.evaluation.conditions import Condition, conditions, corruption_source
from slimbayes.evaluation.ood_sets import default_ood, ood_condition, ood_files
from slimbayes.evaluation.record import Evaluation
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.subject import Subject
from slimbayes.likelihoods import Categorical
from slimbayes.prediction import Prediction

__all__ = ["Work", "evaluate", "predict"]

#: Examples, numbers of their inputs, and numbers of all draws' outputs, that are in memory at once.
BLOCK, INPUTS, NUMBERS = 1024, 2**24, 2**23


def evaluate(
    subjects: Sequence[Subject],
    settings: Settings | None = None,
    *,
    data_folder: Path | None = None,
    fresh: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Evaluation]:
    """Evaluate models that belong to one data set; each corrupted block is made once and shown to all of them.

    After every condition the results are stored beside each run; what is stored already is skipped.

    Args:
        subjects: The models.
        settings: What to evaluate on; None for the defaults.
        data_folder: Where official corrupted files and out-of-distribution sets are; None for where a run's data are.
        fresh: Begin anew, whatever is stored.
        progress: Called with the number of predictions done, and of all.

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
        shifted_limit=settings.shifted_limit,
    )
    wanted = _ood_names(settings, data, data_folder)
    stored = asdict(settings) | {
        "corruptions": corruption_source(data, settings.corruptions, data_folder, extra=settings.extra),
        "types": list(dict.fromkeys(one.name for one in every[1:])),
        "severities": list(settings.severities),
        "ood": wanted,
    }
    if folders := ood_files(wanted, data, data_folder):
        stored["ood_files"] = folders
    del stored["batch_size"], stored["extra"]
    stores = [Store(one, stored | {"samples": _samples(one, settings)}, fresh) for one in subjects]
    few = settings.shifted_limit or settings.limit
    others = {
        name: ood_condition(name, data, folder=data_folder, seed=settings.seed, limit=few)
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


def _samples(subject: Subject, settings: Settings) -> list[int]:
    """Return the numbers of draws of each member, ascending."""
    return sorted(set(settings.samples or (subject.model.default_samples,)))


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


class Work:
    """The work of an evaluation: condition by condition, block by block, for all subjects side by side.

    Args:
        every: The clean condition, then the corrupted ones.
        others: Out-of-distribution inputs, by name.
        settings: What to evaluate on.
        stores: Where each subject's results go; what they hold already is skipped.
    """

    def __init__(
        self, every: list[Condition], others: dict[str, Condition], settings: Settings, stores: list[Store]
    ) -> None:
        self.clean, *self.corrupted = every
        self.others, self.settings, self.stores = others, settings, stores
        self.measures: dict[int, dict[int, dict[str, Tensor]]] = {}
        self.done, self.report = 0, lambda done, total: None

    def run(self, progress: Callable[[int, int], None]) -> None:
        """Do what is not done yet; ``progress`` is called with the number of predictions done, and of all."""
        self.report, self.total = progress, sum(len(one) * len(stores) for one, stores in self._plan())
        for store in self.stores:
            store.content["complete"] = False
        self._clean()
        for condition in self.corrupted:
            self._corrupted(condition)
        for name, condition in self.others.items():
            self._other(name, condition)
        for store in self.stores:
            self._finish(store)

    def _plan(self) -> Iterator[tuple[Condition, list[Store]]]:
        yield self.clean, self._for_clean()
        for condition in self.corrupted:
            yield condition, self._lacking("corrupted", condition.name, str(condition.severity))
        for name, condition in self.others.items():
            yield condition, self._lacking("ood", name)

    def _lacking(self, *keys: str) -> list[Store]:
        return [store for store in self.stores if store.lacks(*keys)]

    def _for_clean(self) -> list[Store]:
        """Return the stores without clean results, or that need the clean examples to compare others with."""
        return [
            store for store in self.stores if store.lacks("clean") or any(store.lacks("ood", o) for o in self.others)
        ]

    # ------------------------------------------------------------------ one condition

    def _clean(self) -> None:
        settings = self.settings
        for store, per_example in self._per_example(self.clean, self._for_clean(), members=True):
            start = time.perf_counter()
            for samples, one in per_example.items():
                measures = {name: one[f"ood_{name}"] for name in metrics.OOD_MEASURES if f"ood_{name}" in one}
                self.measures.setdefault(id(store), {})[samples] = measures
                found = scores(one)
                result = {
                    "scores": found,
                    "intervals": intervals(one, settings.resamples, settings.seed) if settings.resamples else {},
                    "examples": len(self.clean),
                    "members": member_scores(one),
                    "diversity": diversity(one, found),
                    **details(one),
                    **self._besides(one),
                    "gallery": gallery(one, self.clean.raw, store.subject.data),
                }
                store.put(samples, result, "clean")
            store.content["posterior"] = posterior(store.subject.model)
            store.content["seconds"] += time.perf_counter() - start
            store.write()

    def _corrupted(self, condition: Condition) -> None:
        keys = ("corrupted", condition.name, str(condition.severity))
        for store, per_example in self._per_example(condition, self._lacking(*keys), members=self.settings.pairs):
            for samples, one in per_example.items():
                members = {"members": member_scores(one)} if self.settings.pairs else {}
                store.put(samples, {"scores": scores(one), **members, **self._besides(one)}, *keys)
            store.write()

    def _besides(self, per_example: PerExample) -> dict[str, Any]:
        """Return what was asked for besides the scores."""
        settings = self.settings
        found: dict[str, Any] = {"each": each(per_example)} if settings.each else {}
        if settings.pairs:
            found["pairs"] = pairs(per_example)
        if settings.temperature is not None:
            softened = tempered(per_example, settings.temperature)
            found["tempered"] = {"scores": scores(softened)} | ({"each": each(softened)} if settings.each else {})
        return found

    def _other(self, name: str, condition: Condition) -> None:
        for store, per_example in self._per_example(condition, self._lacking("ood", name), out=True):
            for samples, one in per_example.items():
                inside = self.measures[id(store)][samples]
                outside = {measure: one[f"ood_{measure}"] for measure in inside}
                result = {
                    "examples": len(condition),
                    "measures": {
                        measure: {key: value.item() for key, value in found._asdict().items()}
                        for measure in inside
                        for found in [metrics.ood_scores(inside[measure], outside[measure])]
                    },
                    "histograms": {
                        measure: histograms(**{"in": inside[measure], "out": outside[measure]}) for measure in inside
                    },
                    **({"pairs": pairs(one)} if self.settings.pairs else {}),
                }
                store.put(samples, result, "ood", name)
            store.write()

    def _finish(self, store: Store) -> None:
        for result in store.content["results"].values():
            result["summary"] = summarise(result["corrupted"], store.subject.data)
        store.finish()

    # ------------------------------------------------------------------ predictions

    def _per_example(
        self, condition: Condition, stores: list[Store], members: bool = False, out: bool = False
    ) -> Iterator[tuple[Store, dict[int, PerExample]]]:
        """Yield what each subject's predictions for a condition say, for each number of samples."""
        found = {id(store): {samples: PerExample() for samples in store.settings["samples"]} for store in stores}
        for rows in torch.arange(len(condition)).split(self._block) if stores else ():
            inputs, targets = condition.fetch(rows)
            for store in stores:
                start = time.perf_counter()
                # Parts of the subject's own size: its draws depend on neither the others nor an interruption.
                for part in torch.arange(len(rows)).split(self._at_once(store)):
                    some, truth = tuple(x[part] for x in inputs), targets[part]
                    prediction = predict(
                        store.subject,
                        some,
                        samples=store.settings["samples"][-1],
                        batch_size=self.settings.batch_size,
                        precision=self.settings.precision,
                        seed=mix(self.settings.seed, Purpose.EVALUATION, int(rows[part[0]])),
                        where=f"{condition.name}, severity {condition.severity}",
                    )
                    self._read(store, prediction, truth, found[id(store)], members, out)
                store.content["seconds"] += time.perf_counter() - start
                self.done += len(rows)
                self.report(self.done, self.total)
        for store in stores:
            yield store, found.pop(id(store))

    def _read(
        self,
        store: Store,
        prediction: Prediction,
        targets: Tensor,
        found: dict[int, PerExample],
        members: bool,
        out: bool,
    ) -> None:
        subject, targets = store.subject, targets.to(store.subject.model.device)
        block: dict[str, Tensor] = {}
        for samples, per_example in found.items():
            if not block or not subject.is_point:
                some = first_samples(prediction, samples)
                block = read(some, targets, subject.data.task, out)
                block |= read_members(some, targets) if members else {}
                block |= read_pairs(some, targets, out) if self.settings.pairs else {}
            per_example.add({name: values.cpu() for name, values in block.items()})

    @property
    def _block(self) -> int:
        return max(1, min(BLOCK, INPUTS // max(1, math.prod(self.stores[0].subject.data.task.input_shape))))

    def _at_once(self, store: Store) -> int:
        draws = store.subject.model.members * store.settings["samples"][-1]
        return max(1, NUMBERS // (draws * store.subject.data.task.outputs))


def predict(
    subject: Subject,
    inputs: tuple[Tensor, ...],
    *,
    samples: int,
    batch_size: int | None,
    seed: int,
    where: str,
    precision: str = "fp32",
) -> Prediction:
    """Return a subject's prediction; one draw of each member if all its draws are the same.

    Args:
        subject: Whose.
        inputs: Prepared, on any device.
        samples: Draws of each member.
        batch_size: Examples at once; None for what a bounded memory allows.
        seed: Of the draws.
        where: The condition that the examples come from, for the error.
        precision: ``"fp32"``, or ``"bf16"`` for passes under autocast.

    Raises:
        ValueError: Some outputs are NaN or infinite. The logit of a class that is ruled out may be -inf.
    """
    device = subject.model.device
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            prediction = subject.model.predict(
                *(x.to(device) for x in inputs),
                samples=1 if subject.is_point else samples,
                batch_size=batch_size,
                seed=seed,
                keep_draws=True,
            )
    except NonFiniteOutput as error:
        raise ValueError(
            f"{subject.folder or subject.name} predicts {error.value:g} for some examples ({where}), so it has no "
            f"scores. {error}"
        ) from error
    telling = prediction.outputs
    if isinstance(prediction.likelihood, Categorical):
        telling = telling.amax(prediction.likelihood.class_axis(telling))
    wrong = telling[~telling.isfinite()]
    if len(wrong):
        raise ValueError(
            f"{subject.folder or subject.name} predicts {wrong[0].item()} for some examples ({where}), so it "
            "has no scores. Check its weights (training may have diverged), or evaluate the others without it."
        )
    return prediction
