"""What methods gain over one of them, in pairs over the same test images."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from reproductions.show.base import OfStudy, Shown, picked
from reproductions.show.columns import column
from reproductions.show.estimates import Estimate, by_group, row_title
from reproductions.stored import Sources, unpacked
from slimbayes._text_table import as_markdown
from slimbayes.metrics.spread import standard_error

__all__ = ["Pairs", "difference"]

#: Where the column has each example's figure, and whether it is a share.
COLUMNS = {"nll": "nll", "accuracy": "right", "cnll": "cnll", "caccuracy": "cright"}


class Pairs(OfStudy):
    """Differences from a reference method, of studies whose ``look.evaluate`` has ``each: true``."""

    reference: str
    """Title of the method that the others are compared with."""
    columns: list[str] = Field(default=["nll", "accuracy", "cnll", "caccuracy"], min_length=1)
    """nll, accuracy, and of corrupted examples cnll and caccuracy."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the table."""
        groups = by_group(picked(sources, self.study, self.methods and [self.reference, *self.methods]))
        if self.reference not in groups:
            return Shown(f"No run of {row_title(self.reference)} is stored yet, with which the others are compared.")
        rows = [["method", "seeds", *(column(name).title.partition(" ")[0] for name in self.columns)]]
        for name, runs in groups.items():
            if name != self.reference:
                found = [difference(runs, groups[self.reference], COLUMNS[of]) for of in self.columns]
                words = [column(of).words(one) for of, one in zip(self.columns, found, strict=True)]
                rows.append([row_title(name), str(len(runs)), *words])
        note = (
            f"Differences from {row_title(self.reference)}; an NLL below 0 and an accuracy above 0 are gains. Figures "
            "of an image are means over seeds, and of a corrupted one over types and severities; ± is the standard "
            "error of the mean of their differences over images."
        )
        return Shown(f"{as_markdown(rows)}\n\n{note}" if len(rows) > 1 else "")


def difference(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], figure: str) -> Estimate | None:
    """Return the mean difference between two methods over the same examples, with its standard error.

    Example:
        >>> from reproductions.stored import packed
        >>> one, other = ({"evaluation": {"each": {"nll": packed(values)}}} for values in ([1, 2, 3], [1, 1, 1]))
        >>> difference([one], [other], "nll")
        Estimate(value=1.0, error=0.5773502691896258, seeds=1, sem=None)
    """
    means = [_mean_over_seeds(side, figure) for side in (runs, others)]
    if means[0] is None or means[1] is None:
        return None
    apart = (means[0] - means[1]).tolist()
    return Estimate(sum(apart) / len(apart), standard_error(apart), len(runs))


def _mean_over_seeds(runs: Sequence[Mapping[str, Any]], figure: str) -> np.ndarray | None:
    found = [run.get("evaluation", {}).get("each", {}).get(figure) for run in runs]
    return None if None in found or not found else np.mean([unpacked(one) for one in found], axis=0)
