"""Figure 7 of the k-tied paper: how training converges, per step or per second."""

from typing import Any, Literal

from reproductions.show.base import OfStudies, Shown, picked
from reproductions.show.estimates import by_group, row_title
from reproductions.show.pictures import linked, log_scale, mean_lines, svg
from reproductions.stored import Sources
from slimbayes.metrics.spread import standard_error
from slimbayes.report.figures._panels import Panels, short
from slimbayes.report.figures._style import series, styled

__all__ = ["Curves"]

_NAMES = {"negative_elbo": "-ELBO", "expected_nll": "expected NLL", "kl_per_example": "KL / N"}


class Curves(OfStudies):
    """One panel for each study, one line for each method."""

    x: Literal["step", "seconds"] = "step"
    y: str = "negative_elbo"
    """A number of the curve."""
    methods: list[str] | None = None
    """Which methods; by default all."""
    log: bool = True
    """Whether the scale of y is logarithmic."""
    until: float | None = None
    """Where x ends."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Draw the curves."""
        studies = self.ready(sources)
        groups = {study: by_group(picked(sources, study, self.methods)) for study in studies}
        names = list(dict.fromkeys(name for one in groups.values() for name in one))
        name = _NAMES.get(self.y, self.y)
        with styled():
            panels = Panels(len(studies), 3, 2.2, legend=[row_title(one) for one in names])
            for ax, study in zip(panels.axes, studies, strict=True):
                for row, runs in groups[study].items():
                    self._draw(ax, runs, names.index(row))
                ax.set_title(short(sources.title(study)))
                if self.log:
                    log_scale(ax)
                if self.until is not None:
                    ax.set_xlim(right=self.until)
            panels.outer(self.x, f"validation {name}")
            picture = svg(panels.figure)
        text = linked(f"{stem}.svg", f"Validation {name} against {self.x} of training")
        seeds = max((len(runs) for one in groups.values() for runs in one.values()), default=0)
        note = "Mean over seeds; the band is one standard error." if seeds > 1 else "One seed."
        return Shown(f"{text}\n\n{note}", {f"{stem}.svg": picture})

    def _draw(self, ax: Any, runs: list[Any], position: int) -> None:
        look = series(position)
        positions, values = mean_lines(runs, self.x, self.y)
        if self.until is not None:
            kept = [at for at, x in enumerate(positions) if x <= self.until]
            positions, values = [positions[at] for at in kept], [values[at] for at in kept]
        means = [sum(one) / len(one) for one in values]
        ax.plot(positions, means, **{**look.line, "marker": "o" if len(positions) == 1 else ""})
        errors = [standard_error(one) or 0.0 for one in values]
        lower = [mean - error for mean, error in zip(means, errors, strict=True)]
        upper = [mean + error for mean, error in zip(means, errors, strict=True)]
        ax.fill_between(positions, lower, upper, color=look.colour, alpha=0.2, linewidth=0)
