"""The work of an evaluation: condition by condition, block by block, for all subjects side by side."""

import math
import time
from collections.abc import Callable, Iterator

import torch

from slimbayes import metrics
from slimbayes._seeds import Purpose, mix
from slimbayes.evaluation.conditions import Condition
from slimbayes.evaluation.details import details, histograms
from slimbayes.evaluation.gallery import gallery
from slimbayes.evaluation.members import diversity, member_scores, read_members
from slimbayes.evaluation.posterior import posterior
from slimbayes.evaluation.predictions import predict
from slimbayes.evaluation.readings import Readings, first_samples, read
from slimbayes.evaluation.scoring import intervals, scores
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.store import Store
from slimbayes.evaluation.summarise import summarise
from slimbayes.prediction import Prediction

__all__ = ["Work"]

#: Examples, numbers of their inputs, and numbers of all draws' outputs, that are in memory at once.
BLOCK, INPUTS, NUMBERS = 1024, 2**24, 2**23


class Work:
    """The conditions that are to be gone through, for all subjects side by side.

    Args:
        every: The clean condition, then the corrupted ones.
        others: Out-of-distribution inputs, by name.
        settings: What to evaluate on.
        stores: Where each subject's results go; what they hold is not done again.
    """

    def __init__(
        self, every: list[Condition], others: dict[str, Condition], settings: Settings, stores: list[Store]
    ) -> None:
        self.clean, *self.corrupted = every
        self.others, self.settings, self.stores = others, settings, stores
        self.samples = sorted(set(settings.samples))
        self.measures: dict[int, dict[int, dict[str, torch.Tensor]]] = {}
        self.done, self.report = 0, lambda done, total: None

    def run(self, progress: Callable[[int, int], None]) -> None:
        """Do what is not done yet; ``progress`` is called with predictions done and their number."""
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

    def _lacking(self, *place: str) -> list[Store]:
        return [store for store in self.stores if store.lacks(*place)]

    def _for_clean(self) -> list[Store]:
        """Return who has no clean results, or needs the clean examples to compare others with."""
        return [
            store for store in self.stores if store.lacks("clean") or any(store.lacks("ood", o) for o in self.others)
        ]

    # ------------------------------------------------------------------ one condition

    def _clean(self) -> None:
        settings = self.settings
        for store, readings in self._readings(self.clean, self._for_clean(), members=True):
            start = time.perf_counter()
            for samples, one in readings.items():
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
                    "gallery": gallery(one, self.clean.raw, store.subject.data),
                }
                store.put(samples, result, "clean")
            store.content["posterior"] = posterior(store.subject.model)
            store.content["seconds"] += time.perf_counter() - start
            store.write()

    def _corrupted(self, condition: Condition) -> None:
        place = ("corrupted", condition.name, str(condition.severity))
        for store, readings in self._readings(condition, self._lacking(*place)):
            for samples, one in readings.items():
                store.put(samples, {"scores": scores(one)}, *place)
            store.write()

    def _other(self, name: str, condition: Condition) -> None:
        for store, readings in self._readings(condition, self._lacking("ood", name), out=True):
            for samples, one in readings.items():
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
                }
                store.put(samples, result, "ood", name)
            store.write()

    def _finish(self, store: Store) -> None:
        for result in store.content["results"].values():
            result["summary"] = summarise(result["corrupted"], store.subject.data)
        store.finish()

    # ------------------------------------------------------------------ predictions

    def _readings(
        self, condition: Condition, stores: list[Store], members: bool = False, out: bool = False
    ) -> Iterator[tuple[Store, dict[int, Readings]]]:
        """Yield what each subject's predictions for a condition say, for each number of samples."""
        found = {id(store): {samples: Readings() for samples in self.samples} for store in stores}
        for rows in torch.arange(len(condition)).split(self._block) if stores else ():
            inputs, targets = condition.fetch(rows)
            for store in stores:
                start = time.perf_counter()
                # A subject's own parts: what it draws depends on neither the others nor where a stop came.
                for part in torch.arange(len(rows)).split(self._at_once(store)):
                    some, truth = tuple(x[part] for x in inputs), targets[part]
                    prediction = predict(
                        store.subject,
                        some,
                        samples=self.samples[-1],
                        batch_size=self.settings.batch_size,
                        seed=mix(self.settings.seed, Purpose.EVALUATION, int(rows[part[0]])),
                        place=f"{condition.name}, severity {condition.severity}",
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
        targets: torch.Tensor,
        found: dict[int, Readings],
        members: bool,
        out: bool,
    ) -> None:
        subject, targets = store.subject, targets.to(store.subject.model.device)
        block: dict[str, torch.Tensor] = {}
        for samples, readings in found.items():
            if not block or not subject.is_point:
                some = first_samples(prediction, samples)
                block = read(some, targets, subject.data.task, out)
                block |= read_members(some, targets) if members else {}
            readings.add({name: values.cpu() for name, values in block.items()})

    @property
    def _block(self) -> int:
        return max(1, min(BLOCK, INPUTS // max(1, math.prod(self.stores[0].subject.data.task.input_shape))))

    def _at_once(self, store: Store) -> int:
        draws = store.subject.model.members * self.samples[-1]
        return max(1, NUMBERS // (draws * store.subject.data.task.outputs))
