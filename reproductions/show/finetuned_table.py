"""Scores of fine-tuned transformers, from what ``python -m reproductions.finetuned`` stored."""

from typing import Any

from pydantic import Field

from reproductions.finetuned import planned, stored, stored_runs
from reproductions.show.base import Kind, Shown
from reproductions.show.estimates import by_group
from reproductions.show.rows import Paper, of_paper, scores_table
from reproductions.stored import Sources

__all__ = ["FinetunedTable"]


class FinetunedTable(Kind):
    """Methods by scores."""

    study: str
    """reaction_yields or imdb_minilm."""
    override: str | None = None
    """Which of its runs, such as a split; by default all."""
    part: str = "test"
    """The part of a run that has the scores."""
    columns: list[str] = Field(min_length=1)
    titles: dict[str, str] = Field(default_factory=dict)
    """Other titles of columns, by name."""
    published: Paper = Field(default_factory=dict)
    """Others' numbers by method, in the order of the columns."""

    def commands(self) -> list[str]:
        """Return what makes the runs."""
        return [f"python -m reproductions.finetuned {self.study}"]

    def progress(self, sources: Sources) -> dict[str, bool]:
        """Return the runs by name, and whether each is stored."""
        wanted = [run for run in planned(self.study) if self.override in (None, run.override)]
        return {run.name: stored(sources.results, run) is not None for run in wanted}

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the table, and where its numbers come from."""
        runs = self._runs(sources)
        if not runs:
            return Shown("\n\n".join(filter(None, [f"Not run yet: `{self.commands()[0]}`.", self.unrun()])))
        shown = [{**run, "override": None} for run in runs]
        table = scores_table(by_group(shown), self.columns, self.part, self.published, titles=self.titles)
        machines = sorted({run["hardware"]["processor"] for run in runs})
        commits = sorted({str(run["commit"])[:10] for run in runs})
        note = (
            f"{len(runs)} of {len(self.progress(sources))} runs. On {'; '.join(machines)}, one core each. "
            f"Commit {', '.join(commits)}."
        )
        return Shown(f"{table}\n\n{note}")

    def unrun(self) -> str:
        """Return the published numbers."""
        return of_paper(self.columns, self.published, titles=self.titles)

    def _runs(self, sources: Sources) -> list[dict[str, Any]]:
        runs = stored_runs(sources.results, self.study)
        return [run for run in runs if self.override in (None, run["override"])]
