"""Tables 2, 3 and 5 of the k-tied paper: trained mean-field models whose standard deviations get a low rank."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from reproductions.show.base import OfStudy, Shown
from reproductions.show.rows import Paper, of_paper, scores_table
from reproductions.stored import Sources

__all__ = ["LowRankTable"]

_TITLES = {"low_rank": "rank {}", "tie": "tied, k = {}"}


class LowRankTable(OfStudy):
    """The model itself, then one row for each rank."""

    methods: list[str] | None = Field(default_factory=lambda: ["mean_field"])
    source: Literal["low_rank", "tie"] = "low_rank"
    """low_rank: truncated singular values, negatives at zero; tie: a k-tied model made from it."""
    columns: list[str] = Field(min_length=1)
    """As for `table`."""
    paper: Paper = Field(default_factory=dict)
    """The paper's numbers, under `mean_field` and under each rank."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the table."""
        runs = self.runs(sources)
        ranks = sorted({int(rank) for run in runs for rank in run.get(self.source) or {}})
        rows: dict[str, list[Mapping[str, Any]]] = {"mean_field": list(runs)}
        for rank in ranks:
            records = [(run.get(self.source) or {}).get(str(rank)) for run in runs]
            rows[self._title(rank)] = [record for record in records if record]
        return Shown(scores_table(rows, self.columns, "test", self._paper(), "posterior"))

    def unrun(self) -> str:
        """Return the paper's numbers."""
        return of_paper(self.columns, self._paper(), "posterior")

    def _paper(self) -> Paper:
        return {self._title(row) if row.isdigit() else row: numbers for row, numbers in self.paper.items()}

    def _title(self, rank: int | str) -> str:
        return _TITLES[self.source].format(rank)
