"""Figures draw what is stored, twice the same."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from stored_examples import cells, mean_and_error, run_of, write_reproductions, write_run, write_study

from reproductions.show import parse_show
from reproductions.show.pictures import mean_lines
from reproductions.stored import Sources

FIGURES = {
    "curves per step": {"kind": "curves", "studies": ["digits", "other"]},
    "curves per second": {"kind": "curves", "studies": ["digits"], "x": "seconds", "until": 100, "log": False},
    "spectra": {"kind": "spectra", "studies": ["digits"]},
    "spectra by layer": {"kind": "spectra", "studies": ["digits"], "by_layer": True, "values": 2},
    "heat maps": {"kind": "heat_maps", "study": "digits"},
    "scales": {"kind": "scales", "study": "digits"},
    "against k": {"kind": "against_option", "study": "digits", "option": "k", "columns": ["nll", "accuracy"]},
    "families": {"kind": "families"},
}


@pytest.fixture
def sources(tmp_path):
    return Sources(write_reproductions(tmp_path))


@pytest.fixture
def lines(monkeypatch):
    """Return what is plotted, as lists of x and y."""
    found = []
    plot = Axes.plot

    def noted(self, x, y, *rest, **options):
        found.append((np.asarray(x, float).tolist(), np.asarray(y, float).tolist()))
        return plot(self, x, y, *rest, **options)

    monkeypatch.setattr(Axes, "plot", noted)
    return found


@pytest.mark.parametrize("content", FIGURES.values(), ids=FIGURES)
def test_the_same_runs_give_the_same_file(sources, content):
    first, second = (parse_show(content).render(sources, "stem") for _ in range(2))
    assert first == second
    ((name, picture),) = first.figures.items()
    assert f"](figures/{name})" in first.text
    if name.endswith(".svg"):
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert b"<dc:date>" not in picture
    else:
        assert picture.startswith(b"\x89PNG")


def test_scores_against_an_option_have_a_line_for_each_kind(tmp_path, monkeypatch):
    """Runs with the same value of the option are the seeds of one point; methods without it are level."""
    methods = {"deterministic": {}, **{f"K={k}": {"name": "rank1", "members": k} for k in (1, 4)}}
    methods |= {"K=4-split": {"name": "rank1", "members": 4, "train_on": "split"}}
    write_study(tmp_path, methods=methods, seeds=2)
    values = {"deterministic": (0.9, 0.8), "K=1": (0.7, 0.5), "K=4": (0.4, 0.2), "K=4-split": (0.6, 0.5)}
    for method, pair in values.items():
        for seed, value in enumerate(pair):
            write_run(tmp_path, {**run_of(method, seed), "evaluation": {"nll": value}})
    drawn, level = [], []
    errorbar, axhline = Axes.errorbar, Axes.axhline

    def noted(self, x, y, error, **options):
        drawn.append((list(x), list(y), list(error)))
        return errorbar(self, x, y, error, **options)

    monkeypatch.setattr(Axes, "errorbar", noted)
    monkeypatch.setattr(Axes, "axhline", lambda self, y, **options: level.append(y) or axhline(self, y, **options))
    lines = {"tile": ["K=1", "K=4"], "split": ["K=1", "K=4-split"]}
    content = {"kind": "against_option", "study": "digits", "option": "members", "part": "evaluation", "log": True}
    shown = parse_show({**content, "columns": ["nll"], "lines": lines}).render(Sources(tmp_path), "stem")
    assert drawn == [
        ([1, 4], pytest.approx([0.6, 0.3]), pytest.approx([0.1, 0.1])),
        ([1, 4], pytest.approx([0.6, 0.55]), pytest.approx([0.1, 0.05])),
    ]
    assert level == [pytest.approx(0.85)]
    assert "dotted: deterministic" in shown.text


def test_curves_are_means_over_seeds(sources, lines):
    parse_show({"kind": "curves", "studies": ["digits"], "methods": ["mean_field"]}).render(sources, "stem")
    expected = [np.mean([100 / step + seed for seed in range(3)]) for step in (10, 50, 100)]
    assert lines == [([10, 50, 100], pytest.approx(expected))]


def test_curves_per_second_are_at_mean_seconds_and_end_in_time(sources, lines):
    content = {"kind": "curves", "studies": ["digits"], "methods": ["mean_field"], "x": "seconds", "until": 100}
    parse_show(content).render(sources, "stem")
    assert lines[0][0] == [20, 100]  # seeds take step, 2 step and 3 step seconds


def test_steps_that_a_seed_lacks_are_left_out():
    runs = [{"curve": [{"step": 1, "loss": 4.0}, {"step": 2, "loss": 2.0}]}, {"curve": [{"step": 2, "loss": 3.0}]}]
    assert mean_lines(runs, "step", "loss") == ([2], [[2.0, 3.0]])


def test_spectra_tell_the_share_of_the_first_values(sources, lines):
    content = {"kind": "spectra", "studies": ["digits"], "layers": {"digits": ["3"]}}
    text = parse_show(content).render(sources, "stem").text
    mean, error = 100 * np.array(mean_and_error([0.8, 0.81, 0.82]))
    first, both = f"{mean:.2f} ± {error:.2f}", f"{mean + 10:.2f} ± {error:.2f}"
    assert cells(text)["Digits MLP"] == ["dense 2", first, both, "50.0 ± 0"]
    assert [line[1] for line in lines] == [pytest.approx([0.3, 0.2, 0.1]), pytest.approx([0.81, 0.1, 0.05])]


def test_standard_deviations_over_training_are_by_epoch(sources, lines):
    text = parse_show({"kind": "scales", "study": "digits", "layers": ["3"]}).render(sources, "stem").text
    assert lines == [([1, 5, 10], pytest.approx([0.101, 0.501, 1.001]))]
    assert cells(text)["dense 2"] == ["0.10100 ± 0.00058", "1.00100 ± 0.00058"]


@pytest.mark.parametrize(
    ("content", "one", "several"),
    [
        (FIGURES["against k"], "One seed: ± is over test examples; dotted", "standard error over seeds; dotted"),
        (FIGURES["curves per step"], "One seed.", "Mean over seeds"),
        (FIGURES["spectra"], "explain: one seed.", "mean over seeds, ± standard error"),
    ],
    ids=lambda content: content["kind"] if isinstance(content, dict) else "",
)
def test_figures_say_what_their_errors_are_over(tmp_path, content, one, several):
    for seeds, words, others in ((1, one, several), (3, several, one)):
        text = parse_show(content).render(Sources(write_reproductions(tmp_path / str(seeds), seeds)), "stem").text
        assert words in text
        assert others not in text


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "heat_maps", "study": "digits", "methods": []},
        {"kind": "scales", "study": "digits", "methods": []},
        {"kind": "spectra", "studies": ["digits"], "method": "other"},
    ],
    ids=lambda content: content["kind"],
)
def test_runs_without_what_is_to_be_drawn_say_so(sources, content):
    shown = parse_show(content).render(sources, "stem")
    assert "stored with these runs" in shown.text
    assert not shown.figures
