"""How training went: NLL on training and validation data, KL and its weight, by epoch."""

from typing import Any

import numpy as np

from slimbayes.report._wording import extremes, methods, number
from slimbayes.report.comparison import Comparison
from slimbayes.report.figures._averages import Mean, mean_over_seeds
from slimbayes.report.figures._panels import Panels, draw_curve, thinned
from slimbayes.report.figures._style import Drawing, series, styled

__all__ = ["training_curves"]

_CURVES = {
    ("train", "nll"): "training NLL",
    ("validation", "nll"): "validation NLL",
    ("train", "kl"): "KL divergence",
    ("train", "beta"): "weight of the KL, β",
}
#: A curve whose largest value is so many times the smallest is drawn on a logarithmic scale.
_WIDE = 30


@styled()
def training_curves(comparison: Comparison) -> Drawing | None:
    """Draw what training recorded for each epoch; the mean over seeds with a band of its standard error."""
    curves: dict[tuple[str, str], dict[str, tuple[np.ndarray, Mean]]] = {}
    for title, group in comparison.groups.items():
        histories = [one.content.get("training") or [] for one in group]
        for part, name in _CURVES:
            if any(_value(epoch, part, name) is not None for history in histories for epoch in history):
                curves.setdefault((part, name), {})[title] = _averaged(histories, part, name)
    if not curves:
        return None
    curves = {key: curves[key] for key in _CURVES if key in curves}
    titles = [title for title in comparison.titles if any(title in lines for lines in curves.values())]
    looks = [series(comparison.titles.index(title)) for title in titles]
    panels = Panels(len(curves), 2, height=1.9, legend=titles, looks=looks, top=0.28, bottom=0.45, between=0.25)
    table = [["Method", "Epochs", *(f"{part} {_CURVES[one]}" for one in curves for part in ("lowest", "last"))]]
    for ax, (key, lines) in zip(panels.axes, curves.items(), strict=True):
        for title, (epochs, mean) in lines.items():
            keep = thinned(len(epochs))
            shown = Mean(mean.mean[keep], mean.error[keep], mean.seeds)
            draw_curve(ax, epochs[keep], shown, comparison.titles.index(title), title)
        ax.set_title(_CURVES[key])
        _scale(ax, np.concatenate([mean.mean for _, mean in lines.values()]))
    panels.outer("epoch", "")
    for title in titles:
        known = [lines.get(title) for lines in curves.values()]
        last = max(int(line[0][-1]) for line in known if line)
        cells = [cell for line in known for cell in (_lowest_and_last(line[1]) if line else (None, None))]
        table.append([title, str(last), *map(number, cells)])
    chosen = ("validation", "nll") if ("validation", "nll") in curves else next(iter(curves))
    lowest = {title: _lowest_and_last(mean)[0] for title, (_, mean) in curves[chosen].items()}
    return Drawing(
        "training",
        "Training",
        "What training recorded for each epoch. Mean over seeds, with its standard error as a band.",
        f"Curves by epoch of {', '.join(_CURVES[one] for one in curves)} for {methods(len(titles))}. "
        f"{extremes(lowest, f'lowest {_CURVES[chosen]}')}",
        panels.figure,
        table,
    )


def _value(epoch: dict[str, Any], part: str, name: str) -> float | None:
    return (epoch.get(part) or {}).get(name)


def _averaged(histories: list[list[dict[str, Any]]], part: str, name: str) -> tuple[np.ndarray, Mean]:
    by_epoch = [{epoch["epoch"]: _value(epoch, part, name) for epoch in history} for history in histories]
    values = [{at: value for at, value in one.items() if value is not None} for one in by_epoch]
    epochs = sorted({at for one in values for at in one})
    return np.array(epochs), mean_over_seeds([[one.get(at) for at in epochs] for one in values])


def _lowest_and_last(mean: Mean) -> tuple[float, float]:
    return float(np.nanmin(mean.mean)), float(mean.mean[-1])


def _scale(ax: Any, values: np.ndarray) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    ax.locator_params(axis="y", nbins=5)
    values = values[np.isfinite(values)]
    if values.min() > 0 and values.max() > _WIDE * values.min():
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(numticks=5))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
