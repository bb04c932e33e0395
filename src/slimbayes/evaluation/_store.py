"""The file of an evaluation under way: written after every condition, and continued after an interruption."""

import os
import warnings
from dataclasses import asdict
from typing import Any

from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes.data.fingerprint import differences
from slimbayes.evaluation.record import FILE, Evaluation
from slimbayes.evaluation.subject import Subject

#: Settings that may differ from the stored ones: only what is missing is added.
FREE = ("ood", "ood_files")
#: Settings that evaluations of before did not have, with what they were then.
LATER = {"shifted_limit": None, "temperature": None, "each": False, "pairs": False, "precision": "fp32"}


class Store:
    """The content of one subject's ``evaluation.json``.

    Args:
        subject: What is evaluated; without a folder nothing is written.
        settings: JSON values that the results depend on.
        fresh: Begin anew, whatever is stored.

    Raises:
        ValueError: What is stored belongs to other settings or other weights, or is no evaluation.
        PermissionError: Nothing can be stored.
    """

    def __init__(self, subject: Subject, settings: dict[str, Any], fresh: bool = False) -> None:
        self.subject, self.settings = subject, settings
        self.path = None if subject.folder is None else subject.folder / FILE
        if subject.folder is not None and not os.access(subject.folder, os.W_OK):
            raise PermissionError(f"{subject.folder} is not writable, and {FILE} is to go there.")
        stored = None if fresh else self._stored()
        self.content = self._new() if stored is None else stored

    def _stored(self) -> dict[str, Any] | None:
        if self.path is None or not self.path.is_file():
            return None
        content = Evaluation.read(self.path).content
        before, now = {**LATER, **content["settings"]}, self.settings
        changes = [
            f"{key} was {_brief(before.get(key))}, now {_brief(now[key])}"
            for key in now
            if key not in FREE and before.get(key) != now[key]
        ]
        if content.get("weights") != self.subject.digest:
            changes.insert(0, "the weights have changed since, as by further training")
        changes += self._changed_data(content)
        known, files = before.get("ood_files", {}), now.get("ood_files", {})
        changes += [
            f"the images of {name} have changed" for name in files if known.get(name, files[name]) != files[name]
        ]
        if changes:
            raise ValueError(
                f"{self.path} belongs to another evaluation: {'; '.join(changes)}. "
                "Make it anew with --fresh, or ask for the same."
            )
        content["settings"]["ood"] = list(dict.fromkeys([*content["settings"]["ood"], *self.settings["ood"]]))
        if files:
            content["settings"]["ood_files"] = known | files
        return {**content, "title": self.subject.title, "point": self.subject.is_point}

    def _changed_data(self, content: dict[str, Any]) -> list[str]:
        now, before = self.subject.fingerprint, content.get("fingerprint")
        if now is None:
            return []
        if before is None:
            warnings.warn(
                f"{self.path} has no fingerprint of its data, as it was written by an older version: that they have "
                "not changed since is not checked.",
                stacklevel=5,
            )
            return []
        before = {"task": content.get("task"), **before}  # fingerprints of earlier versions have none
        return [f"of the data, {change}" for change in differences(before, now)]

    def _new(self) -> dict[str, Any]:
        subject, task = self.subject, asdict(self.subject.data.task)
        kept = ("likelihood", "outputs", "classes", "target_mean", "target_std")
        return {
            "format": 1,
            "name": subject.name,
            "title": subject.title,
            "seed": subject.seed,
            "method": subject.model.method,
            "members": subject.model.members,
            "point": subject.is_point,
            "parameters": subject.stored_numbers,
            "data": subject.data.name,
            "task": {key: task[key] for key in kept},
            "config": subject.config,
            "settings": self.settings,
            "weights": subject.digest,
            "fingerprint": subject.fingerprint,
            "provenance": provenance(),
            "seconds": 0.0,
            "complete": False,
            "training": subject.training,
            "posterior": None,
            "results": {str(samples): _empty() for samples in self.settings["samples"]},
        }

    def lacks(self, *keys: str) -> bool:
        """Return whether a result is still missing, such as ``("corrupted", "fog", "3")``."""
        return any(_at(result, keys) is None for result in self.content["results"].values())

    def put(self, samples: int, value: Any, *keys: str) -> None:
        """Take in a result; ``write`` stores it."""
        inner = self.content["results"][str(samples)]
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value

    def finish(self) -> None:
        """Mark the evaluation as complete, and store it."""
        done = next(iter(self.content["results"].values()))["ood"]
        # An earlier call may have been interrupted before some of the sets that it asked for.
        self.content |= {"complete": True, "settings": {**self.content["settings"], "ood": list(done)}}
        self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.path is None:
            return
        try:
            write_json(self.path, self.content)
        except OSError as error:  # such as a full disk, which names no file
            raise OSError(
                f"Cannot write {self.path}: {error.strerror or error}. It is as it was; call again to go on."
            ) from error

    @property
    def evaluation(self) -> Evaluation:
        """The results so far."""
        return Evaluation(self.content, self.subject.folder)


def _empty() -> dict[str, Any]:
    return {"clean": None, "corrupted": {}, "summary": None, "ood": {}}


def _at(content: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        content = None if content is None else content.get(key)
    return content


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
