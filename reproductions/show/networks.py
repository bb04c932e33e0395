"""Parameters of whole networks, from the stored counts, beside the paper's."""

from pydantic import Field

from reproductions.show.base import Kind, Shown
from reproductions.stored import Sources
from slimbayes._text_table import as_markdown

__all__ = ["NetworkCounts"]


class NetworkCounts(Kind):
    """Networks by methods."""

    file: str = "parameter-counts.json"
    """In the folder of results."""
    paper: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The paper's numbers, by network and method."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the table."""
        stored = sources.stored_json(self.file)
        if stored is None:
            return Shown(f"Not run yet: `{self.file}` is missing.")
        rows = [["network", "method", "parameters", "paper"]]
        for one in stored["k_tied"]:
            paper = self.paper.get(one["network"], {}).get(one["method"], "")
            rows.append([one["network"], one["method"], f"{one['parameters']:,}", paper])
        return Shown(as_markdown(rows))
