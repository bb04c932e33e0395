"""Table 4 of the k-tied paper: the time of a train step, from what ``python -m benchmarks`` stored."""

from pydantic import Field

from reproductions.show.base import Kind, Shown
from reproductions.stored import Sources
from slimbayes._text_table import as_markdown

__all__ = ["Timing"]


class Timing(Kind):
    """One row for each case."""

    file: str
    """In ``benchmarks/results``."""
    command: str
    """What measures it."""
    cases: dict[str, str] = Field(min_length=1)
    """Titles of the rows, by the case's name in the file."""
    paper: dict[str, str] = Field(default_factory=dict)
    """The paper's milliseconds, by case."""

    def commands(self) -> list[str]:
        """Return the call of the benchmark."""
        return [f"{self.command} --out benchmarks/results/{self.file}"]

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the table."""
        stored = sources.benchmark(self.file)
        if stored is None:
            return Shown(f"Not run yet: `{self.commands()[0]}`.\n\n{self.unrun()}")
        base = _milliseconds(self.paper, next(iter(self.cases)))
        beside = ["paper, ms", "paper, ratio"] if self.paper else []
        rows = [["method", "ms per step ↓", "ratio", "95% interval", *beside]]
        for case, title in self.cases.items():
            one = stored["results"].get(case)
            ours = ["–"] * 3 if one is None else [f"{1000 * one['seconds']:.2f}", f"{one['ratio']:.2f}", _range(one)]
            time = _milliseconds(self.paper, case)
            paper = [self.paper.get(case, ""), f"{time / base:.2f}" if time and base else ""]
            rows.append([title, *ours, *paper[: len(beside)]])
        settings = stored["settings"]
        note = (
            f"{stored['description']}; {settings['threads']} thread, {settings['rounds']} interleaved rounds: medians, "
            f"and the ratio to {settings['baseline']} with the interval of its median. "
            f"{stored['hardware']['processor']}, commit {str(stored['commit'])[:10]}."
        )
        return Shown(f"{as_markdown(rows)}\n\n{note[0].upper()}{note[1:]}")

    def unrun(self) -> str:
        """Return the paper's numbers."""
        rows = [[title, self.paper.get(case, "")] for case, title in self.cases.items()]
        return as_markdown([["method", "ms per step ↓, paper"], *rows])


def _milliseconds(paper: dict[str, str], case: str) -> float | None:
    return float(paper[case].split()[0]) if case in paper else None


def _range(one: dict[str, list[float]]) -> str:
    return f"{one['interval'][0]:.2f} to {one['interval'][1]:.2f}"
