"""Plots of what evaluations found: the points that are drawn are means made by hand."""

import statistics

import pytest
from stored_examples import write_run, write_study

from reproductions.show.metrics_plot import MetricsPlot, checkpoints, severities
from reproductions.stored import Sources


def run(method, seed, clean, one, five):
    spread = {
        "1": {"accuracy": {"mean": one, "median": one / 2}},
        "5": {"accuracy": {"mean": five, "median": five / 2}},
    }
    evaluation = {"accuracy": clean, "normalised_disagreement": 1 - clean, "by_severity": spread}
    about = {"study": "s", "scale": "small", "cell": f"{method}-seed{seed}"}
    return {**about, "method": method, "override": None, "seed": seed, "evaluation": evaluation}


RUNS = [run("rank1", 0, 0.9, 0.8, 0.5), run("rank1", 1, 0.92, 0.84, 0.6), run("batch_ensemble", 0, 0.88, 0.7, 0.4)]


@pytest.mark.parametrize(("statistic", "factor"), [("mean", 1.0), ("median", 0.5)])
def test_scores_at_a_severity_are_means_over_seeds(statistic, factor):
    found = severities(RUNS[:2], "accuracy", statistic)
    assert list(found) == [0, 1, 5]
    assert found[0].value == pytest.approx(0.91)
    assert found[5].value == pytest.approx(0.55 * factor)
    assert found[5].error == pytest.approx(factor * statistics.stdev([0.5, 0.6]) / 2**0.5)


def test_severities_that_a_run_lacks_are_left_out():
    lacking = run("rank1", 2, 0.9, 0.8, 0.5)
    del lacking["evaluation"]["by_severity"]["5"]
    assert list(severities([*RUNS[:2], lacking], "accuracy", "mean")) == [0, 1]


@pytest.fixture
def sources(tmp_path):
    write_study(tmp_path, "s", methods=["rank1", "batch_ensemble"], seeds=2)
    for one in RUNS:
        write_run(tmp_path, one)
    return Sources(tmp_path)


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        ({"y": ["accuracy"]}, [0, 1, 5]),
        ({"x": "accuracy", "y": ["normalised_disagreement"]}, None),
    ],
)
def test_each_method_is_drawn_once_and_the_same_runs_give_the_same_bytes(sources, monkeypatch, keys, labels):
    drawn = []
    from matplotlib.axes import Axes

    plot, errorbar = Axes.plot, Axes.errorbar
    monkeypatch.setattr(Axes, "errorbar", lambda ax, x, y, *a, **k: drawn.append((x, y)) or errorbar(ax, x, y, *a, **k))
    if labels is None:
        monkeypatch.setattr(Axes, "plot", lambda ax, x, y, *a, **k: drawn.append((x, y)) or plot(ax, x, y, *a, **k))
    part = MetricsPlot(kind="metrics_plot", study="s", **keys)
    shown = part.render(sources, "stem")
    (two, one) = drawn
    if labels is None:
        assert sorted(two[0]) == pytest.approx([90, 92])
        assert sorted(two[1]) == pytest.approx([0.08, 0.1])
        assert list(one[0]) == pytest.approx([88])
    else:
        assert two == (labels, pytest.approx([91, 82, 55]))
        assert one == (labels, pytest.approx([88, 70, 40]))
    assert "figures/stem.svg" in shown.text
    assert part.render(sources, "stem") == shown


def test_checkpoints_are_points_of_their_own():
    """Of epochs that were validated; a member's error of nothing has no normalised disagreement."""
    scores = {"accuracy": 0.9, "disagreement": 0.1, "member_accuracy": 0.75}
    epochs = [{"validation": None}, {"validation": scores}, {"validation": {**scores, "member_accuracy": 1.0}}]
    found = [one["evaluation"] for one in checkpoints([{"evaluation": {"epochs": epochs}}, {"evaluation": {}}])]
    assert [one["accuracy"] for one in found] == [0.9, 0.9]
    assert found[0]["normalised_disagreement"] == pytest.approx(0.4)
    assert "normalised_disagreement" not in found[1]
