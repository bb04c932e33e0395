"""What a report says in sentences: findings that claim no more than the numbers can, and reasons for caution."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slimbayes.evaluation.record import Evaluation
from slimbayes.report._score_tables import auroc, mean_over
from slimbayes.report._tabular import decimals_for, shown
from slimbayes.report._wording import listing
from slimbayes.report.comparison import COLUMNS, Column, Comparison, Figure

__all__ = ["ENOUGH_SEEDS", "Finding", "cautions", "few_seeds", "findings"]

#: With fewer seeds a standard error is too rough to call a difference more than chance.
ENOUGH_SEEDS = 3
#: Differences up to so many of their standard errors count as chance.
CHANCE = 2.0
_COLUMNS = {column.key: column for column in COLUMNS}


class Finding(NamedTuple):
    """A sentence or two.

    Attributes:
        about: What it is about, in a word or two.
        text: What was found.
    """

    about: str
    text: str


def findings(comparison: Comparison) -> list[Finding]:
    """Return what is worth saying first, the most important first."""
    clean = ("nll", "rmse", "crps") if comparison.regression else ("nll", "accuracy", "ece")
    said = [_best(comparison, key, f"{_COLUMNS[key].title}, clean") for key in clean]
    said += [_best(comparison, key, f"{_COLUMNS[key[1:]].title}, corrupted") for key in ("cnll", "cece")]
    said += [
        _fall(comparison),
        _confidence(comparison),
        _coverage(comparison),
        _unknown(comparison),
        _draws(comparison),
        _size(comparison),
    ]
    return [finding for finding in said if finding is not None]


def few_seeds(comparison: Comparison) -> str | None:
    """Return what to bear in mind about differences between methods with few seeds, or None with enough."""
    fewest = min(map(len, comparison.groups.values()))
    if len(comparison.titles) < 2 or fewest >= ENOUGH_SEEDS:
        return None
    seeds = "one seed" if fewest == 1 else f"{fewest} seeds"
    return f"With {seeds} of a method, any difference may be chance; train at least {ENOUGH_SEEDS} to tell."


def _best(comparison: Comparison, key: str, about: str) -> Finding | None:
    column = _COLUMNS[key]
    found = {title: comparison.figure(title, key) for title in comparison.titles}
    known = {title: figure for title, figure in found.items() if figure is not None}
    if not known:
        return None
    ranked = sorted(known, key=lambda title: known[title].mean, reverse=bool(column.higher))
    first = ranked[0]
    show = _Shown(column, list(known.values()), [known[title].mean for title in ranked[:2]])
    if len(ranked) == 1:
        return Finding(about, f"{first} has {show.figure(known[first])}{_interval(comparison, first, key, show)}.")
    text = f"{first} is best ({show.figure(known[first])})"
    if min(figure.seeds for figure in known.values()) < ENOUGH_SEEDS:
        runner_up = f"{ranked[1]} follows ({show.figure(known[ranked[1]])})"
        return Finding(about, f"{text}, {runner_up}.")
    gaps = {title: _standard_errors_apart(known[first], known[title]) for title in ranked[1:]}
    alike = [title for title, gap in gaps.items() if gap <= CHANCE]
    worse = [title for title, gap in gaps.items() if gap > CHANCE]
    if alike:
        verb = "is" if len(alike) == 1 else "are"
        text += f", but {listing(alike)} {verb} within two standard errors of it"
    if worse:
        joint = "; next" if alike else "; then"
        text += f"{joint} comes {worse[0]} ({show.figure(known[worse[0]])}, {_times(gaps[worse[0]])})"
    return Finding(about, f"{text}.")


def _standard_errors_apart(one: Figure, other: Figure) -> float:
    """Return the difference of two means in units of its standard error."""
    error = math.hypot(one.error or 0.0, other.error or 0.0)
    difference = abs(one.mean - other.mean)
    return difference / error if error else (math.inf if difference else 0.0)


def _times(gap: float) -> str:
    return "far behind" if gap > 99 else f"{gap:.1f} standard errors behind"


def _interval(comparison: Comparison, title: str, key: str, show: "_Shown") -> str:
    group = comparison.groups[title]
    ends = (group[0].result()["clean"].get("intervals") or {}).get(key) if len(group) == 1 else None
    return f" (95% interval over test examples: {show.number(ends[0])} to {show.number(ends[1])})" if ends else ""


def _fall(comparison: Comparison) -> Finding | None:
    key = "rmse" if comparison.regression else "accuracy"
    pairs = {
        title: (clean.mean, corrupted.mean)
        for title in comparison.titles
        if (clean := comparison.figure(title, key)) and (corrupted := comparison.figure(title, f"c{key}"))
    }
    if not pairs:
        return None
    column = _COLUMNS[key]
    show = _Shown(column, [Figure(mean, None, 1) for pair in pairs.values() for mean in pair])
    change = {title: corrupted - clean for title, (clean, corrupted) in pairs.items()}
    clean, corrupted = (sum(values) / len(pairs) for values in zip(*pairs.values(), strict=True))
    whom = "" if len(pairs) == 1 else ", the mean of all methods"
    text = f"Under corruption {_in_sentence(column)} goes from {show.number(clean)} to {show.number(corrupted)}{whom}"
    if len(pairs) > 1:
        least, most = (choose(change, key=lambda title: abs(change[title])) for choose in (min, max))
        ends = [show.change(change[title]) for title in (least, most)]
        text += (
            f"; it changes by about as much for all ({ends[0]})"
            if ends[0] == ends[1]
            else f"; it changes least for {least} ({ends[0]}) and most for {most} ({ends[1]})"
        )
    return Finding("Robustness", f"{text}.")


def _confidence(comparison: Comparison) -> Finding | None:
    """Say who is over- and who is under-confident: the mean confidence minus the accuracy."""
    parts = []
    for key, where in (("signed_ece", "on clean examples"), ("csigned_ece", "under corruption")):
        found = {title: figure.mean for title in comparison.titles if (figure := comparison.figure(title, key))}
        if not found:
            continue
        low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        ends = [f"{_points(found[title])} ({title})" for title in dict.fromkeys((low, high))]
        parts.append(f"{where} {'from ' if len(ends) > 1 else ''}{' to '.join(ends)}")
    if not parts:
        return None
    return Finding("Confidence", f"Mean confidence minus accuracy is {' and '.join(parts)}; above 0 is over-confident.")


def _points(share: float) -> str:
    return ("+" if share > 0 else "") + shown(100 * share, 1) + " points"


def _coverage(comparison: Comparison) -> Finding | None:
    """Compare the coverage of 90% intervals with what chance allows over that many examples."""
    found = {title: figure for title in comparison.titles if (figure := comparison.figure(title, "coverage"))}
    if not found or not comparison.regression:
        return None
    examples = min(one.result()["clean"]["examples"] for one in comparison.evaluations)
    slack = CHANCE * math.sqrt(0.9 * 0.1 / examples)
    words = {
        title: "too few"
        if figure.mean < 0.9 - slack
        else "more than they should"
        if figure.mean > 0.9 + slack
        else "about right"
        for title, figure in found.items()
    }
    each = [f"{100 * figure.mean:.1f}% for {title} ({words[title]})" for title, figure in found.items()]
    return Finding("Intervals", f"Of the targets, the 90% intervals hold {listing(each)}.")


def _unknown(comparison: Comparison) -> Finding | None:
    parts = []
    for name in dict.fromkeys(name for one in comparison.evaluations for name in one.result()["ood"]):
        found = {title: mean_over(group, auroc(name, "entropy")) for title, group in comparison.groups.items()}
        known = {title: figure.mean for title, figure in found.items() if figure is not None}
        if known:
            best = max(known, key=known.__getitem__)
            parts.append(f"{best} tells {name} apart{' best' * (len(known) > 1)} (AUROC {known[best]:.3f})")
    return Finding("Unknown inputs", f"By entropy, {listing(parts)}.") if parts else None


def _draws(comparison: Comparison) -> Finding | None:
    """Say how much NLL the largest number of draws saves over the smallest."""
    saved = {}
    tried = [set(one.samples) for one in comparison.evaluations if len(one.samples) > 1]
    counts = set.intersection(*tried) if tried else set()
    if len(counts) < 2:
        return None
    few, many = min(counts), max(counts)
    for title in comparison.titles:
        ends = [comparison.figure(title, "nll", count) for count in (few, many)]
        if ends[0] and ends[1]:
            saved[title] = ends[0].mean - ends[1].mean
    gain = {title: value for title, value in saved.items() if value > 0}
    if not saved:
        return None
    between = f"With {many} draws of each member instead of {few}"
    if not gain:
        return Finding("Draws", f"{between} no method has a lower NLL.")
    best = max(gain, key=gain.__getitem__)
    whom = "" if len(saved) == 1 else f", the largest saving; {len(gain)} of {len(saved)} methods gain"
    saving = shown(gain[best], decimals_for([gain[best]]))
    return Finding("Draws", f"{between}, {best} saves {saving} of NLL{whom}.")


def _size(comparison: Comparison) -> Finding | None:
    sizes = {title: group[0].content.get("parameters") for title, group in comparison.groups.items()}
    known = {title: size for title, size in sizes.items() if size}
    if len(known) < 2 or len(set(known.values())) == 1:
        return None
    smallest = min(known, key=known.__getitem__)
    larger = {title: size / known[smallest] for title, size in known.items() if size >= 1.005 * known[smallest]}
    if not larger:
        return None
    each = [f"{ratio:.3g} times ({title})" for title, ratio in sorted(larger.items(), key=lambda item: -item[1])]
    text = f"Numbers in a saved model, relative to {smallest}: {listing(each)}"
    return Finding("Size", text + ("; the others hold about as many." if len(larger) + 1 < len(known) else "."))


def _in_sentence(column: Column) -> str:
    return column.title if column.title.isupper() else column.title.lower()


class _Shown:
    """Numbers of one column, with the same decimals."""

    def __init__(self, column: Column, figures: list[Figure], apart: Sequence[float] = ()) -> None:
        self.unit = "%" if column.percent else ""
        means, errors = [figure.mean for figure in figures], [figure.error for figure in figures]
        self.decimals = decimals_for(means, self.unit, errors, apart)

    def number(self, value: float) -> str:
        return shown(value * (100 if self.unit else 1), self.decimals) + self.unit

    def change(self, value: float) -> str:
        sign = "+" if value > 0 else ""
        return sign + shown(value * (100 if self.unit else 1), self.decimals) + (" points" if self.unit else "")

    def figure(self, figure: Figure) -> str:
        if figure.error is None:
            return self.number(figure.mean)
        scale = 100 if self.unit else 1
        middle, error = shown(scale * figure.mean, self.decimals), shown(scale * figure.error, self.decimals)
        return f"{middle}{self.unit}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{error}{self.unit and ' points'}"


# ---------------------------------------------------------------------- reasons for caution


def cautions(comparison: Comparison) -> list[str]:
    """Return reasons for caution: evaluations that are incomplete, or that differ in what they were evaluated on."""
    said = [_incomplete(comparison), _limited(comparison), *_unshared(comparison), _repeated(comparison)]
    return [text for text in said if text]


def _incomplete(comparison: Comparison) -> str | None:
    names = [one.content["name"] for one in comparison.evaluations if not one.content.get("complete", True)]
    if not names:
        return None
    verb = "is" if len(names) == 1 else "are"
    return (
        f"The evaluation of {listing(names)} {verb} not complete. Finish it with slimbayes evaluate, then report again."
    )


def _limited(comparison: Comparison) -> str | None:
    limits = {_setting(one, "limit") for one in comparison.evaluations} - {None}
    return f"Only the first {listing(sorted(map(str, limits)))} test examples were used." if limits else None


def _unshared(comparison: Comparison) -> list[str | None]:
    """Return the settings in which runs differ although their scores are compared."""
    runs = comparison.evaluations
    return [
        _differ(
            [one for one in runs if not one.content.get("point")],
            lambda one: one.draws,
            "number of draws, all members together",
        ),
        _differ(runs, lambda one: one.result()["clean"].get("examples"), "number of test examples"),
        _differ(runs, lambda one: _setting(one, "which"), "checkpoint"),
        _differ(runs, _conditions, "corruptions", "Means over corruptions cannot be compared."),
    ]


def _differ(runs: Sequence[Evaluation], get: Callable[[Evaluation], Any], what: str, so: str = "") -> str | None:
    values = list(dict.fromkeys(map(get, runs)))
    if len(values) < 2:
        return None
    listed = f": {listing(list(map(str, values)))}" if not so else ""
    return f"The runs differ in their {what}{listed}. {so}".strip()


def _conditions(one: Evaluation) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, severity) for name, severity, _ in one.corrupted()))


def _repeated(comparison: Comparison) -> str | None:
    """Name methods that hold the same seed twice: their standard error would be too small."""
    titles = []
    for title, group in comparison.groups.items():
        seeds = [one.content.get("seed") for one in group if one.content.get("seed") is not None]
        if len(set(seeds)) < len(seeds):
            titles.append(title)
    return (
        f"The same seed appears more than once under {listing(titles)}: standard errors are too small."
        if titles
        else None
    )


def _setting(one: Evaluation, name: str) -> Any:
    return (one.content.get("settings") or {}).get(name)
