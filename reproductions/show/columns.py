"""The columns that tables know: title, where the number is, and how it is printed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from reproductions.show.estimates import Estimate, Score, as_words, look_up

__all__ = ["Column", "column"]


class Column(NamedTuple):
    """One column.

    Attributes:
        title: Above it.
        path: Where a stored run, or its part, has the number.
        of_run: The number is the run's own, not a score of one part.
        percent: Printed times 100.
        whole: A count.
        factor: The number is multiplied by this,
        shift: and this is added.
    """

    title: str
    path: tuple[str, ...]
    of_run: bool = False
    percent: bool = False
    whole: bool = False
    factor: float = 1.0
    shift: float = 0.0

    def score(self, record: Mapping[str, Any], part: str) -> Score | None:
        """Return the number of one run."""
        found = look_up(record, self.path if self.of_run else (part, *self.path))
        if found is None or found.value is None:
            return found
        return Score(
            self.factor * found.value + self.shift, None if found.sem is None else abs(self.factor) * found.sem
        )

    def words(self, found: Estimate | None) -> str:
        """Return a mean over seeds as text."""
        return as_words(found, self.percent, self.whole)

    def printed(self, value: str | float | None) -> str:
        """Return a number from a paper: text as it is, numbers as ours are."""
        if value is None or isinstance(value, str):
            return value or ""
        return self.words(Estimate(float(value), None, 1))


#: By name.
_COLUMNS = {
    "negative_elbo": Column("-ELBO ↓", ("negative_elbo",)),
    "expected_nll": Column("expected NLL ↓", ("expected_nll",)),
    "kl_per_example": Column("KL / N ↓", ("kl_per_example",)),
    "nll": Column("NLL ↓", ("nll",)),
    "brier": Column("Brier ↓", ("brier",)),
    # TensorFlow Probability leaves out the constant 1.
    "brier_less_one": Column("Brier − 1 ↓", ("brier",), shift=-1.0),
    "accuracy": Column("accuracy ↑, %", ("accuracy",), percent=True),
    "ece": Column("ECE ↓", ("ece",)),
    "cnll": Column("cNLL ↓", ("cnll",)),
    "caccuracy": Column("cA ↑, %", ("caccuracy",), percent=True),
    "cece": Column("cECE ↓", ("cece",)),
    "mce": Column("mCE ↓, %", ("mce",), percent=True),
    "member_nll": Column("NLL of a member ↓", ("member_nll",)),
    "member_accuracy": Column("accuracy of a member ↑, %", ("member_accuracy",), percent=True),
    "auc_pr": Column("AUC-PR ↑", ("auc_pr",)),
    "cauc_pr": Column("cAUC-PR ↑", ("cauc_pr",)),
    "validation_accuracy": Column("validation accuracy ↑, %", ("validation_accuracy",), percent=True),
    "validation_nll": Column("validation NLL ↓", ("validation_nll",)),
    "parameters": Column("parameters ↓", ("parameters",), of_run=True, whole=True),
    "parameters_percent": Column("% of parameters ↓", ("parameters",), of_run=True, percent=True),
    "tempered.nll": Column("NLL with temperature ↓", ("tempered", "nll")),
    "tempered.ece": Column("ECE with temperature ↓", ("tempered", "ece")),
    "tempered.cnll": Column("cNLL with temperature ↓", ("tempered", "cnll")),
    "disagreement": Column("disagreement, %", ("disagreement",), percent=True),
    "stored": Column("stored numbers ↓", ("parameters",), whole=True),
    "rows": Column("millions of rows ↓", ("rows",), of_run=True, factor=1e-6),
    "draws": Column("draws", ("draws",), whole=True),
    "cpu_minutes": Column("CPU minutes ↓", ("cpu_seconds",), of_run=True, factor=1 / 60),
    "r2": Column("R² ↑", ("r2",)),
    "rmse": Column("RMSE ↓", ("rmse",)),
    "rmse_of_surest": Column("RMSE of the surest 80% ↓", ("rmse_of_surest",)),
    "crps": Column("CRPS ↓", ("crps",)),
    "coverage": Column("in 90% intervals, %", ("coverage",), percent=True),
    "width": Column("width ↓", ("width",)),
    "aurc": Column("AURC ↓", ("aurc",)),
    "memory": Column("memory, MB ↓", ("memory",), of_run=True, whole=True, factor=1e-6),
    "stored_bytes": Column("file, kB ↓", ("stored_bytes",), of_run=True, whole=True, factor=1e-3),
    "minutes": Column("minutes ↓", ("seconds",), of_run=True, factor=1 / 60),
}


def column(name: str) -> Column:
    """Return a column by its name; any other name is a path inside the part, with dots.

    Example:
        >>> column("nll").title
        'NLL ↓'
        >>> column("by_samples.4.accuracy")[:4]
        ('by_samples.4.accuracy', ('by_samples', '4', 'accuracy'), False, True)
    """
    if name in _COLUMNS:
        return _COLUMNS[name]
    path = tuple(name.split("."))
    like = next((_COLUMNS[step] for step in reversed(path) if step in _COLUMNS), Column("", ()))
    return like._replace(title=name, path=path, of_run=False)
