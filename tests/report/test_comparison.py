"""Which evaluations are the seeds of one method, and which may stand side by side at all."""

import re

import pytest
from records import METHODS, classification, minimal

from slimbayes.evaluation.record import Evaluation
from slimbayes.report import write_report
from slimbayes.report.comparison import Comparison


def runs(*configs, title="rank-1"):
    """Return an evaluation for each configuration, by seed, with NLL 0, 1, 2, ..."""
    made = [minimal(title) for _ in configs]
    for seed, (one, config) in enumerate(zip(made, configs, strict=True)):
        one.content.update({"config": config, "seed": seed, "weights": f"digest {seed}"})
        one.clean()["nll"] = float(seed)
    return made


def seeds(comparison):
    return {title: [one.content["seed"] for one in group] for title, group in comparison.groups.items()}


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        pytest.param([{"epochs": 3}] * 3, {"rank-1": [0, 1, 2]}, id="seeds"),
        pytest.param([None, {}, {"schedule": {}}], {"rank-1": [0, 1, 2]}, id="nothing"),
        pytest.param(
            [{"method": {"members": 4}}, {"method": {"members": 8}}, {"method": {"members": 4}}],
            {"rank-1 (members=4)": [0, 2], "rank-1 (members=8)": [1]},
            id="value",
        ),
        pytest.param(
            [{"method": {"name": "rank1"}}, {"method": {"name": "rank1", "members": None}}],
            {"rank-1 (members=default)": [0], "rank-1 (members=null)": [1]},
            id="left out is not null",
        ),
        pytest.param(
            [{"a": {"name": "x"}}, {"b": {"name": "x"}}],
            {"rank-1 (a.name=x, b.name=default)": [0], "rank-1 (a.name=default, b.name=x)": [1]},
            id="same last part",
        ),
        pytest.param([{"lr": 4}, {"lr": "4"}], {"rank-1 (lr=4)": [0], "rank-1 (lr=4) #2": [1]}, id="looks the same"),
        pytest.param(
            [{"net": {"hidden": [64, 64]}}, {"net": {"hidden": [64]}}],
            {"rank-1 (hidden=[64, 64])": [0], "rank-1 (hidden=[64])": [1]},
            id="list",
        ),
        pytest.param(
            [{"b": 1, "a": 2}, {"a": 2, "b": 1}, {"a": 3, "b": 1}],
            {"rank-1 (a=2)": [0, 1], "rank-1 (a=3)": [2]},
            id="order does not matter",
        ),
    ],
)
def test_one_title_and_configuration_is_one_method(configs, expected):
    comparison = Comparison(runs(*configs))
    assert seeds(comparison) == expected
    for title, own in expected.items():
        assert comparison.figure(title, "nll").mean == pytest.approx(sum(own) / len(own))
        assert comparison.figure(title, "nll").seeds == len(own)


def test_titles_come_in_the_order_of_their_first_evaluations():
    first, second = runs({"lr": 1}, {"lr": 2})
    (other,) = runs({"lr": 3}, title="other")
    other.content["weights"] = "other"
    comparison = Comparison([first, other, second])
    assert comparison.titles == ["rank-1 (lr=1)", "other", "rank-1 (lr=2)"]
    assert [title for title, _ in comparison.titled()] == comparison.titles


def test_a_title_that_is_taken():
    made = [*runs({"lr": 1}, {"lr": 2}), *runs({}, title="rank-1 (lr=1)")]
    made[2].content["weights"] = "other"
    assert sorted(Comparison(made).titles) == ["rank-1 (lr=1)", "rank-1 (lr=1) #2", "rank-1 (lr=2)"]


def test_the_whole_report_of_two_configurations_of_one_title(tmp_path):
    made = classification(seeds=2, methods=METHODS[4:5], picture_size=0, types=("fog",))
    for one, members in zip(made, (4, 8), strict=True):
        one.content["config"] = {"method": {"members": members}}
    page = write_report(made, tmp_path / "report.html").read_text(encoding="utf-8")
    drawn = re.findall("<figure.*?</figure>", page, re.DOTALL)
    assert len(drawn) > 10
    for title in ("rank-1 normal (members=4)", "rank-1 normal (members=8)"):
        for figure in drawn:
            assert title in figure
        assert page.count(title) > 2 * len(drawn)


def other_limit(content):
    content["settings"]["limit"] = 100


def other_corruptions(content):
    content["settings"]["corruptions"] = "official"


def other_task(content):
    content["task"]["outputs"] = 3


def other_classes(content):
    content["task"]["classes"] = [f"class {number}" for number in range(100)]


def data_option(**options):
    return lambda content: content.update(config={"data": {"name": "table", **options}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.update(data="iris"), 'data sets differ: "iris"; "wine"'),
        (other_limit, "numbers of examples differ: 100; null"),
        (other_corruptions, 'corruptions differ: "official"; "own"'),
        (other_task, "tasks differ"),
        (other_classes, r'classes differ: \["class 0", [^;]*\.\.\.; null'),
        (data_option(path="other.csv"), 'by path, differ: "my.csv"; "other.csv"'),
        (data_option(target="age"), 'by target, differ: "age"; "kind"'),
        (lambda content: content.update(results={}), "has none yet. Go on with it: slimbayes evaluate rank-1-seed0"),
        (lambda content: content["results"]["1"].update(clean=None), "has none yet"),
    ],
    ids=["data", "limit", "corruptions", "task", "classes", "path", "target", "empty", "begun"],
)
def test_what_cannot_be_compared_is_refused(change, words):
    first, second = runs(*[{"data": {"name": "table", "path": "a/my.csv", "target": "kind"}}] * 2)
    change(second.content)
    with pytest.raises(ValueError, match=words):
        Comparison([first, second])


@pytest.mark.parametrize("options", [{"path": "/where/my.csv", "target": "kind"}, {}], ids=["absolute", "default"])
def test_the_same_data_by_other_words_are_compared(options):
    assert len(Comparison(runs({"data": {"path": "my.csv", "target": "kind"}}, {"data": options})).evaluations) == 2


def test_the_same_weights_twice_are_no_two_seeds(tmp_path):
    first, second = runs({}, {})
    second.content["weights"] = first.content["weights"]
    with pytest.raises(ValueError, match=r"rank-1-seed0 and rank-1-seed0 have the same weights\. Leave one out"):
        Comparison([first, second])
    placed = Evaluation(second.content, tmp_path / "second")
    with pytest.raises(ValueError, match="rank-1-seed0 and .*second have the same weights"):
        Comparison([first, placed])
    for one in (first, second):
        one.content["weights"] = ""
    assert len(Comparison([first, second]).evaluations) == 2, "without a digest nothing is known"


def test_nothing_to_report():
    with pytest.raises(ValueError, match="at least one evaluation"):
        Comparison([])
