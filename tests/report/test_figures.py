"""Figures show the records' numbers, in pictures, tables and words."""

import copy
import itertools
import math
import re
from concurrent.futures import ThreadPoolExecutor

import matplotlib
import numpy as np
import pytest
import records

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures import FIGURES, drawings
from slimbayes.report.figures._averages import mean_over_seeds
from slimbayes.report.figures._style import series
from slimbayes.report.figures.member_figures import diversity, diversity_paths, member_pairs, samples_per_member
from slimbayes.report.figures.posterior import MOST_MAPS, sigma_maps, spectra
from slimbayes.report.figures.predictions import interval_calibration, mean_against_target, reliability, risk_coverage
from slimbayes.report.figures.training_curves import training_curves
from slimbayes.report.figures.uncertainty import entropy_of_errors, ood_measures, out_of_distribution
from slimbayes.report.figures.under_shift import FRACTION, severity_curves, type_boxes

SEEDS = 2
#: As many as a wide comparison has, one of them with a long name.
MANY = [(f"method {index}", *records.METHODS[index % 6][1:]) for index in range(12)]
MANY.append(("a method with a name that is rather too long for its panel", *records.METHODS[4][1:]))


@pytest.fixture(scope="module")
def comparison():
    """Six methods, two seeds; what the made-up records repeat is made to differ."""
    made = records.classification(SEEDS, picture_size=0, shown=0)
    for index, one in enumerate(made):
        rng = np.random.default_rng(index)
        for result in one.content["results"].values():
            result["clean"]["risk_coverage"]["risk"] = np.sort(rng.random(101)).tolist()
            for record in result["ood"].values():
                for measure in record["measures"].values():
                    measure["auroc"] = 0.5 + rng.random() / 2
            if found := result["clean"]["diversity"]:
                members = len(found["pairs"])
                pairs = rng.random((members, members))
                found["pairs"] = ((pairs + pairs.T) * (1 - np.eye(members)) / 2).tolist()
                found["normalised_disagreement"] = rng.random()
        for epoch in one.content["training"]:
            epoch["train"]["nll"] += rng.random()
    return Comparison(made)


@pytest.fixture(scope="module")
def real_valued():
    return Comparison(records.regression(SEEDS))


def _lines(ax, marked=True):
    """Return the data lines of some axes, without the dotted diagonals, which have no marker."""
    return [line for line in ax.lines if (line.get_marker() not in ("", "None", None)) == marked]


def _by_title(comparison, get):
    return {title: [get(one) for one in group] for title, group in comparison.groups.items()}


def test_reliability_pools_seeds_and_leaves_empty_bins_out(comparison):
    drawing = reliability(comparison)
    for ax, (title, group) in zip(drawing.figure.axes, comparison.groups.items(), strict=True):
        curves = [one.result()["clean"]["reliability"] for one in group]
        expected = []
        for bar in range(15):
            count = sum(curve["count"][bar] for curve in curves)
            if count:
                total = {
                    key: sum(curve["count"][bar] * curve[key][bar] for curve in curves)
                    for key in ("confidence", "accuracy")
                }
                expected.append([total["confidence"] / count, total["accuracy"] / count])
        (line,) = _lines(ax)
        np.testing.assert_allclose(line.get_xydata(), expected, atol=1e-12)
        assert len(expected) < 15, "the records should have empty bins"
        ece = sum(one.clean()["ece"] for one in group) / len(group)
        assert ax.get_title(loc="left") == f"{title}\nECE {ece:.3g}"
        assert [row[4] for row in drawing.table if row[0] == title] == [f"{right:.3g}" for _, right in expected]


def _shifted(group, key, severity):
    """Return a score of each type, each the mean over seeds, by plain loops."""
    types = group[0].result()["corrupted"]
    return [
        sum(one.result()["corrupted"][name][str(severity)]["scores"][key] for one in group) / len(group)
        for name in types
    ]


def test_severity_curves(comparison):
    drawing = severity_curves(comparison)
    for ax, key in zip(drawing.figure.axes, ("nll", "accuracy", "ece"), strict=True):
        containers = ax.containers
        assert len(containers) == len(comparison.titles)
        for container, group in zip(containers, comparison.groups.values(), strict=True):
            line, _, (bars,) = container
            clean = np.mean([one.clean()[key] for one in group])
            cells = [_shifted(group, key, severity) for severity in range(1, 6)]
            np.testing.assert_allclose(line.get_ydata(), [clean, *map(np.mean, cells)], rtol=1e-12)
            assert np.abs(line.get_xdata() - np.arange(6)).max() < 0.2
            spread = [segment[1, 1] - segment[0, 1] for segment in bars.get_segments()]
            np.testing.assert_allclose(spread, [0, *(2 * FRACTION * np.std(cell) for cell in cells)], atol=1e-12)
    title, group = next(iter(comparison.groups.items()))
    row = next(row for row in drawing.table if row[:2] == [title, "5"])
    cell = _shifted(group, "nll", 5)
    assert row[2:4] == [f"{np.mean(cell):.3g}", f"{np.std(cell):.3g}"]
    assert "quarter of the standard deviation over types" in drawing.caption


def test_type_boxes_are_quartiles_over_types(comparison):
    drawing = type_boxes(comparison)
    titles = comparison.titles
    for ax, key in zip(drawing.figure.axes, ("nll", "accuracy", "ece"), strict=True):
        for title, bars, whiskers, median in zip(titles, ax.containers, ax.collections, ax.lines, strict=True):
            cells = [_shifted(comparison.groups[title], key, severity) for severity in range(1, 6)]
            quartiles = np.percentile(cells, [25, 50, 75], axis=1)
            np.testing.assert_allclose([bar.get_y() for bar in bars], quartiles[0], rtol=1e-9)
            np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in bars], quartiles[2], rtol=1e-9)
            np.testing.assert_allclose(median.get_ydata(), quartiles[1], rtol=1e-9)
            ends = np.array([segment[:, 1] for segment in whiskers.get_segments()])
            np.testing.assert_allclose(ends, [[min(cell), max(cell)] for cell in cells], rtol=1e-9)


def test_risk_coverage_has_mean_and_band(comparison):
    ax = risk_coverage(comparison).figure.axes[0]
    for line, band, curves in zip(
        _lines(ax),
        ax.collections,
        _by_title(comparison, lambda one: one.result()["clean"]["risk_coverage"]["risk"]).values(),
        strict=True,
    ):
        curves = np.array(curves)[:, 1:]  # the first is that of no examples
        np.testing.assert_allclose(line.get_xdata(), np.linspace(0, 1, 101)[1:])
        np.testing.assert_allclose(line.get_ydata(), np.mean(curves, 0))
        error = np.std(curves, 0, ddof=1) / math.sqrt(SEEDS)
        top = band.get_paths()[0].vertices[:, 1].max()
        assert top == pytest.approx((np.mean(curves, 0) + error).max())


@pytest.mark.parametrize(
    ("draw", "get", "names"),
    [
        (entropy_of_errors, lambda one: one.result()["clean"]["uncertainty"]["entropy"], ("right", "wrong")),
        (out_of_distribution, lambda one: one.result()["ood"]["svhn"]["histograms"]["entropy"], ("in", "out")),
    ],
)
def test_histograms_are_shares(comparison, draw, get, names):
    for ax, seeds in zip(draw(comparison).figure.axes, _by_title(comparison, get).values(), strict=True):
        for stairs, name in zip(ax.patches, names, strict=True):
            counts = np.sum([seed[name] for seed in seeds], 0)
            np.testing.assert_allclose(stairs.get_data().values, counts / counts.sum())
            np.testing.assert_allclose(stairs.get_data().edges, seeds[0]["edges"])


def test_a_second_set_is_a_second_line(comparison):
    made = copy.deepcopy(comparison.evaluations)
    for one in made:
        one.result()["ood"]["noise"] = one.result()["ood"]["svhn"]
    drawing = out_of_distribution(Comparison(made))
    assert [len(ax.patches) for ax in drawing.figure.axes] == [3] * 6
    assert drawing.table[0][-3:] == ["test data", "svhn", "noise"]
    assert len(ood_measures(Comparison(made)).figure.axes) == 2


def test_histograms_with_other_bins_are_pooled_too():
    """Each run has bins from its least to its greatest entropy: no seed and no set may be left out for that."""
    made = records.classification(2, records.METHODS[:1], picture_size=0, shown=0)
    for place, one in enumerate(made):
        sets = one.result()["ood"]
        sets["noise"] = copy.deepcopy(sets["svhn"])
        for name, shift in (("svhn", 0.0), ("noise", 1.0)):
            low = shift + place
            sets[name]["histograms"]["entropy"] = {"edges": [low, low + 1, low + 2], "in": [4, 0], "out": [0, 6]}
        one.result()["clean"]["uncertainty"]["entropy"] = {
            "edges": [place, place + 1, place + 2], "right": [8, 0], "wrong": [0, 2],
        }  # fmt: skip
    alone = Comparison(made)
    # Bins [0, 2] and [2, 4]: right are 8 in [0, 1] and 8 in [1, 2]; wrong are 2 in [1, 2] and 2 in [2, 3].
    (ax,) = entropy_of_errors(alone).figure.axes
    assert [patch.get_data().edges.tolist() for patch in ax.patches] == [[0, 1.5, 3]] * 2
    np.testing.assert_allclose([patch.get_data().values for patch in ax.patches], [[12 / 16, 4 / 16], [1 / 4, 3 / 4]])
    (ax,) = out_of_distribution(alone).figure.axes
    inside, svhn, noise = (patch.get_data() for patch in ax.patches)
    np.testing.assert_allclose(inside.edges, [0, 2, 4])
    np.testing.assert_allclose(inside.values, [1, 0])
    np.testing.assert_allclose(svhn.values, [0.5, 0.5])
    np.testing.assert_allclose(noise.values, [0, 1])


def test_a_histogram_of_one_value_has_some_width():
    (one,) = records.classification(1, records.METHODS[:1], picture_size=0, shown=0)
    one.result()["clean"]["uncertainty"]["entropy"] |= {"edges": [2.3] * 31}
    (ax,) = entropy_of_errors(Comparison([one])).figure.axes
    assert sum(ax.patches[0].get_data().values) == pytest.approx(1)


def test_ood_measures(comparison):
    drawing = ood_measures(comparison)
    measures = ("max_probability", "entropy", "mutual_information", "energy")
    for container, measure in zip(drawing.figure.axes[0].containers, measures, strict=True):
        areas = [
            [one.result()["ood"]["svhn"]["measures"][measure]["auroc"] for one in group]
            for group in comparison.groups.values()
        ]
        line, _, (bars,) = container
        np.testing.assert_allclose(line.get_xdata(), np.mean(areas, 1))
        widths = [segment[1, 0] - segment[0, 0] for segment in bars.get_segments()]
        np.testing.assert_allclose(widths, 2 * np.std(areas, 1, ddof=1) / math.sqrt(SEEDS))
    best = max(float(cell) for row in drawing.table[1:] for cell in row[2:])
    assert f"({best:.3g})" in drawing.alt


def test_diversity_has_a_point_for_each_seed(comparison):
    drawing = diversity(comparison)
    several = [one for one in comparison.evaluations if one.content["members"] > 1]
    for ax, key in zip(drawing.figure.axes, ("accuracy", "nll"), strict=True):
        points = [line.get_xydata()[0] for line in ax.lines]
        expected = [
            (one.clean()[key], one.result()["clean"]["diversity"]["normalised_disagreement"]) for one in several
        ]
        np.testing.assert_allclose(points, expected)
    assert len(drawing.table) == 1 + len(several)


@pytest.mark.parametrize("draw", [diversity, diversity_paths])
def test_diversity_names_the_seeds(comparison, draw):
    made = copy.deepcopy([one for one in comparison.evaluations if one.title == "rank-1 normal"])
    for one, seed in zip(made, (7, 3), strict=True):
        one.content["seed"] = seed
    assert list(dict.fromkeys(row[1] for row in draw(Comparison(made)).table[1:])) == ["7", "3"]


def test_diversity_paths_normalise_and_keep_the_second_half(comparison):
    drawing = diversity_paths(comparison)
    several = [one for one in comparison.evaluations if one.content["members"] > 1]
    for path, one in zip(drawing.figure.axes[0].lines, several, strict=True):
        epochs = [epoch["validation"] for epoch in one.content["training"] if epoch["validation"]]
        expected = [
            (own["accuracy"], own["disagreement"] / (1 - own["member_accuracy"])) for own in epochs[len(epochs) // 2 :]
        ]
        np.testing.assert_allclose(path.get_xydata(), expected)


def test_a_method_looks_the_same_in_every_figure(comparison):
    """Figures without the first methods, which have one member, do not begin with the first colour."""
    positions = {title: place for place, title in enumerate(comparison.titles)}
    drawn = [draw(comparison) for draw in (diversity, diversity_paths, severity_curves, risk_coverage)]
    for drawing in drawn:
        (legend,) = drawing.figure.legends
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True):
            look = series(positions[text.get_text()])
            assert (line.get_color(), line.get_marker()) == (look.colour, look.marker)
    for ax in drawn[0].figure.axes:
        assert [line.get_color() for line in ax.lines[::SEEDS]] == [series(place).colour for place in range(2, 6)]


def test_member_pairs_write_the_mean_over_seeds(comparison):
    drawing = member_pairs(comparison)
    groups = [group for group in comparison.groups.values() if group[0].content["members"] > 1]
    for ax, group in zip(drawing.figure.axes, groups, strict=True):
        mean = np.mean([one.result()["clean"]["diversity"]["pairs"] for one in group], 0)
        written = {tuple(map(int, text.get_position()[::-1])): text.get_text() for text in ax.texts}
        assert written == {(i, j): f"{100 * mean[i, j]:.1f}" for i, j in itertools.permutations(range(4), 2)}
        opacity = ax.images[0].get_array()[..., 3]
        assert (np.diag(opacity) == 0).all()
        above = np.triu_indices(4, 1)
        order = np.argsort(mean[above])
        assert (np.diff(opacity[above][order]) >= 0).all(), "more is stronger"


def test_one_number_of_samples_is_no_curve():
    made = records.classification(2, records.METHODS[4:5], samples=(4,), picture_size=0, shown=0)
    assert samples_per_member(Comparison(made)) is None


def test_pairs_without_a_number_are_not_drawn():
    (one,) = records.classification(1, records.METHODS[4:5], picture_size=0, shown=0)
    one.result()["clean"]["diversity"]["pairs"] = [[None] * 4] * 4
    assert member_pairs(Comparison([one])) is None


def test_samples_per_member(comparison):
    drawing = samples_per_member(comparison)
    for ax, key in zip(drawing.figure.axes, ("nll", "accuracy", "ece", "cnll", "caccuracy", "cece"), strict=True):
        for line, title in zip(_lines(ax), comparison.titles, strict=True):
            expected = [comparison.figure(title, key, samples).mean for samples in (1, 4)]
            np.testing.assert_allclose(line.get_xydata(), np.stack([[0, 2], expected], 1))


def test_training_curves(comparison):
    drawing = training_curves(comparison)
    for ax, (place, name) in zip(
        drawing.figure.axes, (("train", "nll"), ("validation", "nll"), ("train", "kl"), ("train", "beta")), strict=True
    ):
        for line, group in zip(_lines(ax), comparison.groups.values(), strict=True):
            histories = [
                [(epoch["epoch"], epoch[place][name]) for epoch in one.content["training"] if epoch[place]]
                for one in group
            ]
            np.testing.assert_allclose(line.get_xydata(), np.mean(histories, 0))
    lowest = min(np.mean([[e["train"]["nll"] for e in one.content["training"]] for one in group], 0).min()
                 for group in comparison.groups.values())  # fmt: skip
    assert min(float(row[2]) for row in drawing.table[1:]) == pytest.approx(lowest, rel=1e-2)


@pytest.mark.parametrize("epochs", [1, 2, 7])
def test_epochs_are_whole_numbers(comparison, epochs):
    one = copy.deepcopy(comparison.evaluations[0])
    one.content["training"] = one.content["training"][:epochs]
    for ax in training_curves(Comparison([one])).figure.axes:
        low, high = ax.get_xlim()
        shown = [tick for tick in ax.get_xticks() if low <= tick <= high]
        assert shown
        assert all(tick == round(tick) for tick in shown)


def test_long_training_is_thinned_but_ends_where_it_ends(comparison):
    one = copy.deepcopy(comparison.evaluations[0])
    one.content["training"] = [{"epoch": at, "train": {"nll": 1 / at}, "validation": None} for at in range(1, 1001)]
    (line,) = _lines(training_curves(Comparison([one])).figure.axes[0])
    assert len(line.get_xdata()) == 100
    np.testing.assert_allclose(line.get_xydata()[[0, -1]], [[1, 1], [1000, 0.001]])


def test_interval_calibration(real_valued):
    (ax,) = interval_calibration(real_valued).figure.axes
    curves = _by_title(real_valued, lambda one: one.result()["clean"]["calibration"])
    for line, seeds in zip(_lines(ax), curves.values(), strict=True):
        expected = np.stack([seeds[0]["level"], np.mean([seed["coverage"] for seed in seeds], 0)], 1)
        np.testing.assert_allclose(line.get_xydata(), expected)


def test_mean_against_target_shows_the_first_seed(real_valued):
    drawing = mean_against_target(real_valued)
    for ax, group in zip(drawing.figure.axes, real_valued.groups.values(), strict=True):
        scatter = group[0].result()["clean"]["scatter"]
        target, mean, std = (np.array(scatter[key]) for key in ("target", "mean", "std"))
        (line,) = _lines(ax)
        np.testing.assert_allclose(line.get_xydata(), np.stack([target, mean], 1))
        ends = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
        np.testing.assert_allclose(ends, np.stack([mean - std, mean + std], 1))
        share = sum(abs(target - mean) <= std) / len(target)
        assert f"{100 * share:.1f}% within one std" in ax.get_title(loc="left")


def test_spectra_and_maps_of_posteriors(comparison):
    axes = spectra(comparison).figure.axes
    assert len(axes) == 4, "two methods have a posterior, of means and of standard deviations"
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), [0.5, 0.2, 0.1, 0.05])
    np.testing.assert_allclose(axes[1].lines[1].get_ydata(), [0.9, 0.06, 0.02, 0.01])
    drawing = sigma_maps(comparison)
    record = comparison.groups["rank-1 normal"][0].content["posterior"]["heat_maps"][0]
    sigma, rank1 = np.array(record["sigma"]), np.array(record["rank1"])
    error = np.linalg.norm(sigma - rank1) / np.linalg.norm(sigma)
    assert drawing.table[1][5] == f"{100 * error:.1f}%"
    assert [image.get_array().shape for ax in drawing.figure.axes for image in ax.images] == [(16, 8, 4)] * 6


def test_many_layers(comparison):
    one = copy.deepcopy(comparison.groups["rank-1 normal"][0])
    posterior = one.content["posterior"]
    for key in ("spectra", "heat_maps"):
        posterior[key] = [{**posterior[key][0], "layer": f"layer.{depth}"} for depth in range(28)]
    posterior["spectra"][0]["std"] = None
    alone = Comparison([one])
    assert not spectra(alone).figure.legends, "28 names have no room"
    drawing = sigma_maps(alone)
    assert len(drawing.figure.axes) == 3 * MOST_MAPS
    assert "22 more layers are not shown" in drawing.caption


def test_nothing_is_drawn_of_what_is_not_there():
    assert drawings(Comparison([records.minimal()])) == []


def test_classification_and_regression_have_their_own_figures(comparison, real_valued):
    names = {draw.__name__ for draw in FIGURES if draw(real_valued)}
    assert names == {"interval_calibration", "mean_against_target", "severity_curves", "samples_per_member"}


@pytest.mark.parametrize(
    "evaluations",
    [
        pytest.param(lambda: records.classification(1, records.METHODS[4:5], picture_size=0, shown=0), id="one run"),
        pytest.param(
            lambda: records.classification(3, MANY, picture_size=0, shown=0),
            id="13 methods, 3 seeds",
            marks=pytest.mark.slow,
        ),
        pytest.param(lambda: records.regression(1), id="regression"),
        pytest.param(records.bernoulli, id="two classes"),
    ],
)
def test_every_figure_is_sound(evaluations):
    made = drawings(Comparison(evaluations()))
    assert len({drawing.key for drawing in made}) == len(made)
    for drawing in made:
        assert all(len(row) == len(drawing.table[0]) for row in drawing.table)
        assert len(drawing.table) > 1
        assert drawing.title
        assert drawing.caption.endswith(".")
        assert re.search(r"\d", drawing.alt), "the alternative has numbers"
        words = " ".join([drawing.alt, drawing.caption, *itertools.chain(*drawing.table)])
        assert not re.search(r"\b(nan|inf|None)\b", words)
        for line in (line for ax in drawing.figure.axes for line in ax.lines):
            assert np.isfinite(line.get_xydata().astype(float)).all()
        _assert_inside(drawing)


def _assert_inside(drawing):
    """Check that nothing is cut off, in the first row and the last panel, and that the legend covers no panel."""
    figure = drawing.figure
    width, height = figure.bbox.size
    for ax in {*figure.axes[:3], figure.axes[-1]}:
        box = ax.get_tightbbox()
        assert box.x0 >= -1, f"{drawing.key}: {ax.get_title(loc='left')!r} is cut off at the left"
        assert box.x1 <= width + 1, f"{drawing.key}: {ax.get_title(loc='left')!r} is cut off at the right"
        assert -1 <= box.y0 <= box.y1 <= height + 1, f"{drawing.key}: {ax.get_title(loc='left')!r} is cut off"
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert -1 <= box.x0 <= box.x1 <= width + 1, f"{drawing.key}: the legend is cut off"
        assert all(ax.bbox.y0 > box.y1 for ax in figure.axes), f"{drawing.key}: the legend covers a panel"


def test_series_differ_in_more_than_colour():
    looks = [series(index) for index in range(40)]
    assert len(set(looks)) == len(looks)
    for one, other in itertools.pairwise(looks):
        assert one.marker != other.marker
        assert one.dash != other.dash
    assert len({(look.colour, look.marker) for look in looks}) == len(looks)


def test_names_that_are_markup_are_names():
    made = records.evil()
    made[0].content["title"] = "$\\frac{1}"
    made[1].content["title"] = "_hidden"
    texts = [text.get_text() for text in risk_coverage(Comparison(made)).figure.legends[0].get_texts()]
    assert texts == ["$\\frac{1}", "hidden"]


def test_long_names_that_are_alike_stay_apart():
    made = records.classification(2, records.METHODS[4:5], picture_size=0, shown=0)
    for one, members in zip(made, (4, 8), strict=True):
        one.content["title"] = "a method with a name that is long"
        one.content["config"] = {"method": {"members": members}}
    texts = [text.get_text() for text in risk_coverage(Comparison(made)).figure.legends[0].get_texts()]
    assert len(set(texts)) == 2
    assert max(map(len, texts)) <= 30


def test_drawing_leaves_no_trace_and_is_safe_in_threads(comparison):
    from matplotlib import pyplot

    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False}), ThreadPoolExecutor(4) as pool:
        made = list(pool.map(risk_coverage, [comparison] * 4))
    assert {drawing.figure.axes[0].xaxis.label.get_size() for drawing in made} == {9}
    assert dict(matplotlib.rcParams) == before
    assert pyplot.get_fignums() == []


def test_mean_over_seeds_of_unequal_lengths():
    mean = mean_over_seeds([[1.0, 2.0, 5.0], [3.0, None], [5.0]])
    np.testing.assert_allclose(mean.mean, [3, 2, 5])
    np.testing.assert_allclose(mean.error, [2 / math.sqrt(3), np.nan, np.nan])
