"""What every way of showing results is: keys in an item's YAML, and a function from stored runs to Markdown."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from reproductions.stored import Sources
from slimbayes.training.config import Section

__all__ = ["Kind", "OfStudies", "OfStudy", "Shown", "picked"]


class Shown(NamedTuple):
    """One part of a page.

    Attributes:
        text: Markdown; figures are linked as ``figures/NAME``.
        figures: What to write into the folder ``figures``, by file name.
    """

    text: str
    figures: Mapping[str, bytes] = {}


class Kind(Section, ABC):
    """One entry under ``show``."""

    kind: str
    heading: str = ""
    """Above it."""
    caption: str = ""
    """Words below it."""

    def needs(self) -> list[str]:
        """Return the studies that are read."""
        return []

    def commands(self) -> list[str]:
        """Return what measures it beside the studies."""
        return []

    def progress(self, sources: Sources) -> dict[str, bool]:
        """Return the runs that it needs beside the studies, by name, and whether each is stored."""
        return {}

    @abstractmethod
    def render(self, sources: Sources, stem: str) -> Shown:
        """Return what is shown; called when at least one of the studies has runs, or none are needed.

        Args:
            sources: The stored runs.
            stem: How names of figures start; unique for each part of each page.
        """

    def unrun(self) -> str:
        """Return what can be shown before anything has been run, such as the paper's numbers."""
        return ""


class OfStudy(Kind):
    """Shows one study."""

    study: str
    methods: list[str] | None = None
    """Which of its methods; by default all."""

    def needs(self) -> list[str]:
        """Return the study."""
        return [self.study]

    def runs(self, sources: Sources) -> list[dict[str, Any]]:
        """Return the stored runs of the methods."""
        return picked(sources, self.study, self.methods)


class OfStudies(Kind):
    """Shows several studies, those without runs left out."""

    studies: list[str]

    def needs(self) -> list[str]:
        """Return the studies."""
        return self.studies

    def ready(self, sources: Sources) -> list[str]:
        """Return the studies that have runs."""
        return [study for study in self.studies if sources.runs(study)]


def picked(sources: Sources, study: str, methods: list[str] | None) -> list[dict[str, Any]]:
    """Return the stored runs of some of a study's methods, or of all."""
    return [run for run in sources.runs(study) if methods is None or run["method"] in methods]
