"""The tables of a report, from a comparison."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from slimbayes.evaluation.record import Evaluation
from slimbayes.metrics.spread import standard_error
from slimbayes.report._tabular import MISSING, Cell, Head, Table, decimals_for, number_cell, shown, word
from slimbayes.report.comparison import Column, Comparison, Figure

T = TypeVar("T")

#: Shown for each number of draws, and for each member.
FEW = ("nll", "accuracy", "ece", "rmse", "crps", "coverage", "cnll", "caccuracy", "cece")
_METHOD = Head("Method", "method")
_SEEDS = Head("Seeds", "seeds", "Runs that the numbers are a mean of.")
_DRAWS = Head("Draws", "draws", "Of all members together, that the scores are of.")
_PARAMETERS = Head("Parameters", "parameters", "Numbers that a saved model holds.")


def main_tables(comparison: Comparison) -> dict[str, Table]:
    """Return every table that has something to show, by its key."""
    made = (make(comparison) for make in (scores, intervals, samples, members, ood))
    return {table.key: table for table in made if table is not None}


def scores(comparison: Comparison) -> Table:
    """Return the table of the papers: mean and standard error over seeds of each score, the best marked."""
    several = any(len(group) > 1 for group in comparison.groups.values())
    caption = "Mean ± standard error over seeds." if several else "One seed each."
    if len(comparison.titles) > 1:
        caption += " The best of each column is in bold; ↓ less and ↑ more is better."
    heads = [_METHOD, *map(_head, comparison.columns), _DRAWS, _PARAMETERS, _SEEDS]
    groups = comparison.groups.values()
    columns = []
    for column in comparison.columns:
        best = comparison.best(column)
        figures = [comparison.figure(title, column.key) for title in comparison.titles]
        columns.append(_cells(figures, _head(column), [title in best for title in comparison.titles]))
    columns += [
        [_draws(group) for group in groups],
        [_size(group[0].content.get("parameters")) for group in groups],
        [_count(len(group)) for group in groups],
    ]
    return Table("scores", "Scores", caption, heads, _beside([[word(title)] for title in comparison.titles], columns))


def intervals(comparison: Comparison) -> Table | None:
    """Return the table of intervals over test examples, a row for each run."""
    runs = [(title, one) for title, group in comparison.groups.items() for one in group]
    found = [one.result()["clean"].get("intervals") or {} for _, one in runs]
    columns = [column for column in comparison.columns if any(own.get(column.key) for own in found)]
    heads = [_METHOD, Head("Seed", "seed", "Of the training run."), *map(_head, columns)]
    labels = [[word(title), _count(one.content.get("seed"))] for title, one in runs]
    cells = [_interval_cells([own.get(column.key) for own in found], _head(column)) for column in columns]
    caption = "95% bootstrap intervals over the test examples, run by run: how far another test set could move a score."
    return Table("intervals", "Intervals over test examples", caption, heads, _beside(labels, cells)) if cells else None


def samples(comparison: Comparison) -> Table | None:
    """Return the table over draws of each member, if several numbers of them were tried."""
    tried = {
        title: sorted(set.intersection(*(set(one.samples) for one in group)))
        for title, group in comparison.groups.items()
    }
    heads = [_METHOD, Head("Samples", "samples", "Draws of each member."), *map(_head, _few(comparison))]
    pairs = [(title, count) for title, counts in tried.items() for count in counts]
    labels = [[word(title), _count(count)] for title, count in pairs]
    cells = [
        _cells([comparison.figure(title, column.key, count) for title, count in pairs], _head(column))
        for column in _few(comparison)
    ]
    caption = "The same models with more draws of each member: what each further draw buys. Means over seeds."
    table = Table("samples", "Samples per member", caption, heads, _beside(labels, cells))
    return table if any(len(counts) > 1 for counts in tried.values()) else None


def members(comparison: Comparison) -> Table | None:
    """Return the table of each member alone beside the whole, of the first seed of each method."""
    found = [
        (title, name, own)
        for title, (first, *_) in comparison.groups.items()
        if (alone := first.result()["clean"].get("members"))
        for name, own in [("all", first.clean()), *enumerate(alone, 1)]
    ]
    columns = [column for column in _few(comparison) if any(own.get(column.key) is not None for _, _, own in found)]
    heads = [_METHOD, Head("Member", "member", "Counted from 1; all is their mixture."), *map(_head, columns)]
    labels = [[word(title), word(str(name))] for title, name, _ in found]
    cells = [_cells([_alone(own.get(column.key)) for _, _, own in found], _head(column)) for column in columns]
    caption = "All members together, then each alone, on the test examples as they are. First seed of each method."
    return Table("members", "Members alone", caption, heads, _beside(labels, cells)) if cells else None


def ood(comparison: Comparison) -> Table | None:
    """Return how well each measure of uncertainty tells other data sets apart: AUROC, mean over seeds."""
    results = [found for one in comparison.evaluations for found in one.result()["ood"].items()]
    sets = _ordered(name for name, _ in results)
    heads = [_METHOD, Head("Data set", "data", "Where the unknown inputs come from.")]
    pairs = [(title, name) for name in sets for title in comparison.titles]
    cells = []
    for measure in _ordered(measure for _, found in results for measure in found["measures"]):
        words = measure.replace("_", " ")
        head = Head(words.capitalize(), measure, f"AUROC by the {words}.", higher=True)
        figures = [mean_over(comparison.groups[title], auroc(name, measure)) for title, name in pairs]
        heads.append(head)
        cells.append(_cells(figures, head, _best_of_each_set(figures, [name for _, name in pairs])))
    labels = [[word(title), word(name)] for title, name in pairs]
    caption = "AUROC of telling unknown inputs from test examples by each measure: 0.5 is chance, 1 is perfect."
    return Table("ood", "Unknown inputs", caption, heads, _beside(labels, cells)) if cells else None


def mean_over(group: Sequence[Evaluation], get: Callable[[Evaluation], float | None]) -> Figure | None:
    """Return the mean over seeds of what ``get`` finds; None if some seed lacks it."""
    values = [value for value in map(get, group) if value is not None]
    if len(values) < len(group):
        return None
    return Figure(sum(values) / len(values), standard_error(values), len(values))


def auroc(data: str, measure: str) -> Callable[[Evaluation], float | None]:
    """Return what finds an evaluation's AUROC on a data set by a measure."""

    def get(one: Evaluation) -> float | None:
        return one.result()["ood"].get(data, {}).get("measures", {}).get(measure, {}).get("auroc")

    return get


def _best_of_each_set(figures: Sequence[Figure | None], sets: Sequence[str]) -> list[bool]:
    means: dict[str, list[float]] = {}
    for figure, name in zip(figures, sets, strict=True):
        means.setdefault(name, []).extend([] if figure is None else [figure.mean])
    return [
        figure is not None and len(means[name]) > 1 and figure.mean == max(means[name]) > 0.5
        for figure, name in zip(figures, sets, strict=True)
    ]


def _head(column: Column) -> Head:
    return Head(column.title, column.key, column.help, column.higher, "%" if column.percent else "")


def _few(comparison: Comparison) -> list[Column]:
    return [column for column in comparison.columns if column.key in FEW]


def _cells(figures: Sequence[Figure | None], head: Head, best: Collection[bool] | None = None) -> list[Cell]:
    known = [figure for figure in figures if figure is not None]
    means = [one.mean for one in known]
    first_two = sorted(set(means), reverse=bool(head.higher))[:2] if best else []
    digits = decimals_for(means, head.unit, [one.error for one in known], first_two)
    return [
        number_cell(figure and figure.mean, digits, head.unit, figure and figure.error, leads)
        for figure, leads in zip(figures, best or [False] * len(figures), strict=True)
    ]


def _interval_cells(pairs: Sequence[Sequence[float] | None], head: Head) -> list[Cell]:
    digits = decimals_for([end for pair in pairs if pair for end in pair], head.unit)
    scale = 100 if head.unit == "%" else 1

    def cell(low: float, high: float) -> Cell:
        text = f"{shown(scale * low, digits)} to {shown(scale * high, digits)}"
        return Cell(text, (low + high) / 2, ends=(low, high))

    return [cell(*pair) if pair else Cell(MISSING) for pair in pairs]


def _alone(value: float | None) -> Figure | None:
    return None if value is None else Figure(value, None, 1)


def _count(value: int | None) -> Cell:
    return Cell(MISSING) if value is None else Cell(f"{value:,}".replace(",", "\u202f"), value)


def _draws(group: Sequence[Evaluation]) -> Cell:
    counts = sorted({one.draws for one in group})
    return _count(counts[0]) if len(counts) == 1 else word(f"{counts[0]} to {counts[-1]}")


def _size(value: int | None) -> Cell:
    """Return a large number in thousands, millions or billions."""
    if value is None or value < 100_000:
        return _count(value)
    unit, name = next((unit, name) for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= unit)
    return Cell(f"{value / unit:.{1 if value < 100 * unit else 0}f}\u202f{name}", value)


def _beside(labels: list[list[Cell]], columns: list[list[Cell]]) -> list[list[Cell]]:
    return [[*label, *(column[row] for column in columns)] for row, label in enumerate(labels)]


def _ordered(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
