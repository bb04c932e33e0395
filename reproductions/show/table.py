"""Scores of every method of a study, with the paper's numbers beside them."""

from pydantic import Field

from reproductions.show.base import Kind, Shown, picked
from reproductions.show.estimates import by_group
from reproductions.show.rows import Paper, of_paper, scores_table
from reproductions.stored import Sources

__all__ = ["MetricsTable", "Table"]


class Table(Kind):
    """Methods by scores, of one study or of several."""

    study: str | list[str]
    methods: list[str] | None = None
    """Which methods; by default all."""
    part: str = "test"
    """The part of a run that has the scores: test, validation or evaluation."""
    columns: list[str] = Field(min_length=1)
    """Such as negative_elbo, nll, brier, accuracy, ece, parameters, minutes; others are paths with dots."""
    titles: dict[str, str] = Field(default_factory=dict)
    """Other titles of columns, by name."""
    paper: Paper = Field(default_factory=dict)
    """The paper's numbers by method, in the order of the columns."""

    def needs(self) -> list[str]:
        """Return the studies."""
        return [self.study] if isinstance(self.study, str) else self.study

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the table."""
        rows = by_group(run for study in self.needs() for run in picked(sources, study, self.methods))
        return Shown(scores_table(rows, self.columns, self.part, self.paper, titles=self.titles))

    def unrun(self) -> str:
        """Return the paper's numbers."""
        return of_paper(self.columns, self.paper, titles=self.titles)


class MetricsTable(Table):
    """The same of what ``slimbayes evaluate`` measured."""

    part: str = "evaluation"
