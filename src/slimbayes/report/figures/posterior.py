"""Inside posteriors: spectra and standard deviations beside approximations, Figures 3 and 4 of the k-tied paper."""

from typing import Any

import numpy as np

from slimbayes.evaluation.record import Evaluation
from slimbayes.report._wording import extremes, number, percent
from slimbayes.report._wording import methods as how_many
from slimbayes.report.comparison import Comparison
from slimbayes.report.figures._averages import found, numbers
from slimbayes.report.figures._panels import Panels, draw_map, short
from slimbayes.report.figures._style import Drawing, series, styled

__all__ = ["MOST_MAPS", "sigma_maps", "spectra"]

#: Singular values of a spectrum that are shown.
_VALUES = 20
#: More layers than this are told apart by depth of colour, not by name.
_NAMED = 8
#: Layers whose standard deviations are shown.
MOST_MAPS = 6
#: Share of standard deviations below full colour: a few large ones would leave the rest pale.
_FULL = 0.99


@styled()
def spectra(comparison: Comparison) -> Drawing | None:
    """Draw the share of variance per singular value, one line a layer: means and standard deviations side by side."""
    from matplotlib.ticker import MaxNLocator

    methods = _first_of_each(comparison, "spectra")
    if not methods:
        return None
    layers = list(dict.fromkeys(one["layer"] for lines in methods.values() for one in lines))
    named = len(layers) <= _NAMED
    panels = Panels(
        2 * len(methods), 2, height=1.35, legend=layers if named else (), top=0.28, bottom=0.4, between=0.25
    )
    table = [["Method", "Layer", "Of", *(f"Value {rank}" for rank in (1, 2, 3))]]
    firsts: dict[str, float | None] = {}
    for row, (title, lines) in enumerate(methods.items()):
        for ax, kind in zip(panels.axes[2 * row : 2 * row + 2], ("mean", "std"), strict=True):
            for one in lines:
                if not one.get(kind):
                    continue
                share = numbers(one[kind][:_VALUES])
                depth = layers.index(one["layer"])
                alpha = 1 if named else 0.25 + 0.75 * depth / (len(layers) - 1)
                line = {**series(depth if named else 0).line, "markersize": 3, "alpha": alpha}
                ax.plot(np.arange(1, len(share) + 1), share, **line)
                table.append([title, one["layer"], kind, *map(percent, share[:3])])
                if kind == "std":
                    firsts[title] = min(firsts.get(title) or 1.0, float(share[0]))
            ax.set(ylim=(0, 1.03), title=f"{short(title, 24)}: {'means' if kind == 'mean' else 'std'}")
            ax.set_yticks((0, 0.5, 1))
    for ax in panels.axes:
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    panels.outer("singular value", "share of variance")
    shading = "" if named else f" Each of {len(layers)} layers is a line, the deeper the stronger."
    return Drawing(
        "spectra",
        "Spectra of posteriors",
        "Share of variance that each singular value explains, of the matrix of posterior means (left) and of standard "
        f"deviations (right), one line a layer, first seed. A sharp fall means that few numbers suffice.{shading}",
        f"Spectra of {len(layers)} layers for {how_many(len(methods))}. "
        f"{extremes(firsts, 'least share of the first singular value of standard deviations', None, True)}",
        panels.figure,
        table,
    )


@styled()
def sigma_maps(comparison: Comparison) -> Drawing | None:
    """Draw standard deviations of layers beside their approximations of rank 1 and 2, on one scale a row."""
    methods = _first_of_each(comparison, "heat_maps")
    if not methods:
        return None
    # Round robin, so that each method has its turn before any has its second layer.
    deepest = max(len(maps) for maps in methods.values())
    every = [(title, maps[row]) for row in range(deepest) for title, maps in methods.items() if row < len(maps)]
    shown = sorted(every[:MOST_MAPS], key=lambda one: list(methods).index(one[0]))
    panels = Panels(3 * len(shown), height=1.25, left=0.42, top=0.45, bottom=0.12)
    table = [["Method", "Layer", "Shape", "Least σ", "Largest σ", "Relative error, rank 1", "Relative error, rank 2"]]
    errors: dict[str, float | None] = {}
    for row, (title, record) in enumerate(shown):
        maps = [np.array(record[key], dtype=float) for key in ("sigma", "rank1", "rank2")]
        low, high = float(maps[0].min()), float(maps[0].max())
        residuals = [float(np.linalg.norm(one - maps[0]) / (np.linalg.norm(maps[0]) or 1.0)) for one in maps[1:]]
        names = (
            f"{short(title, 22)}\n{short(record['layer'], 14)}: σ {number(low, 2)} to {number(high, 2)}",
            f"\nrank 1, error {percent(residuals[0])}",
            f"\nrank 2, error {percent(residuals[1])}",
        )
        for ax, matrix, name in zip(panels.axes[3 * row : 3 * row + 3], maps, names, strict=True):
            draw_map(ax, matrix, low, float(np.quantile(maps[0], _FULL)))
            ax.set(xticks=[], yticks=[])
            ax.set_title(name, fontsize=8.5)
        m, n = record["shape"]
        panels.axes[3 * row].set_ylabel(f"{m} × {n}")
        errors[f"{title}, layer {record['layer']}"] = residuals[0]
        table.append([title, record["layer"], f"{m} × {n}", number(low), number(high), *map(percent, residuals)])
    rest = f" {len(every) - len(shown)} more layers are not shown." if len(every) > len(shown) else ""
    return Drawing(
        "sigma-maps",
        "Standard deviations and approximations of low rank",
        "Posterior standard deviations of a layer's weights, first seed, beside their best approximations of rank 1 "
        f"and rank 2; stronger colour is larger, on one scale in each row that the largest "
        f"hundredth exceeds. Large layers are averaged down.{rest}",
        f"Heat maps of standard deviations of {len(shown)} layers beside approximations of low rank. "
        f"{extremes(errors, 'relative error of rank 1')}",
        panels.figure,
        table,
    )


def _first_of_each(comparison: Comparison, key: str) -> dict[str, list[Any]]:
    def get(one: Evaluation) -> Any:
        return (one.content.get("posterior") or {}).get(key)

    return {title: seeds[0] for title, seeds in found(comparison, get).items()}
