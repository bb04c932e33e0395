"""Findings: each claim against numbers made for it."""

import math

import pytest
from records import METHODS, classification, minimal, regression
from test_report_tables import with_nll

from slimbayes.report.comparison import Comparison
from slimbayes.report.findings import cautions, few_seeds, findings


def text(comparison, about):
    """Return a finding with plain spaces."""
    return {finding.about: finding.text.replace("\N{NO-BREAK SPACE}", " ") for finding in findings(comparison)}[about]


def test_a_difference_beyond_two_standard_errors():
    # Errors 0.01 / sqrt(3) each; the difference 0.1 is 0.1 / (0.01 sqrt(2 / 3)) = 12.2 of its standard errors.
    comparison = with_nll({"a": [0.49, 0.5, 0.51], "b": [0.59, 0.6, 0.61]})
    expected = f"{0.1 / (0.01 * math.sqrt(2 / 3)):.1f}"
    assert text(comparison, "NLL, clean") == (
        f"a is best (0.500 ± 0.006); then comes b (0.600 ± 0.006, {expected} standard errors behind)."
    )
    assert few_seeds(comparison) is None


def test_a_difference_within_two_standard_errors_is_said_to_be_so():
    comparison = with_nll({"a": [0.4, 0.5, 0.6], "b": [0.41, 0.51, 0.61]})
    assert "but b is within two standard errors of it" in text(comparison, "NLL, clean")
    assert "behind" not in text(comparison, "NLL, clean")


def test_few_seeds_claim_nothing():
    comparison = with_nll({"a": [0.1], "b": [0.9]})
    assert text(comparison, "NLL, clean") == "a is best (0.100), b follows (0.900)."
    assert "may be chance" in few_seeds(comparison)


def test_equal_seeds_are_no_difference():
    comparison = with_nll({"a": [0.5] * 3, "b": [0.5] * 3})
    assert "b is within two standard errors" in text(comparison, "NLL, clean")


def test_one_run_has_its_interval():
    one = minimal()
    one.content["results"]["1"]["clean"]["intervals"] = {"nll": [0.4, 0.6]}
    comparison = Comparison([one])
    assert text(comparison, "NLL, clean") == "alone has 0.500 (95% interval over test examples: 0.400 to 0.600)."
    assert few_seeds(comparison) is None


def test_coverage_allows_for_chance():
    # Of 51 examples, two standard errors of 90% are 8.4%: 91% is right, 81% is not.
    said = text(Comparison(regression()), "Intervals")
    assert "81.0% for deterministic (too few)" in said
    assert "91.0% for rank-1 normal (about right)" in said


def test_accuracy_falls_under_corruption():
    comparison = Comparison(classification(seeds=1))
    falls = {
        title: comparison.figure(title, "accuracy").mean - comparison.figure(title, "caccuracy").mean
        for title in comparison.titles
    }
    least = min(falls, key=falls.get)
    assert f"least for {least} (−{100 * falls[least]:.1f} points)" in text(comparison, "Robustness")


def test_equal_falls_are_not_ranked():
    made = classification(seeds=1, methods=METHODS[:2])
    for one, more in zip(made, (0.0, 1e-6), strict=True):
        one.clean()["accuracy"] = 0.9
        one.result()["summary"]["mean"]["accuracy"] = 0.8 + more
    assert text(Comparison(made), "Robustness").endswith("it changes by about as much for all (−10.0 points).")


def test_sizes_are_ratios():
    assert "4 times (deep ensemble)" in text(Comparison(classification(seeds=1)), "Size")


def test_nothing_to_say():
    one = minimal()
    one.content["results"]["1"]["clean"]["scores"] = {"nll": None}
    assert findings(Comparison([one])) == []


def same(content):
    pass


def incomplete(content):
    content["complete"] = False


def limited(content):
    content["settings"]["limit"] = 100


def other_draws(content):
    content["results"] = {"8": content["results"]["1"]}


def other_examples(content):
    content["results"]["1"]["clean"]["examples"] = 11


def other_checkpoint(content):
    content["settings"]["which"] = "last"


def other_corruptions(content):
    content["results"]["1"]["corrupted"] = {"fog": {"1": {"scores": {"nll": 1.0}}}}


def same_seed(content):
    content["seed"] = 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (same, None),
        (incomplete, "not complete"),
        (limited, "first 100 test examples"),
        (other_draws, "number of draws, all members together: 4 and 32"),
        (other_examples, "number of test examples: 10 and 11"),
        (other_checkpoint, "checkpoint: best and last"),
        (other_corruptions, "cannot be compared"),
        (same_seed, "same seed"),
    ],
)
def test_cautions(change, words):
    comparison = with_nll({"a": [1.0, 2.0]})
    for one in comparison.evaluations:
        one.content["complete"] = True
    change(comparison.evaluations[1].content)
    said = cautions(comparison)
    assert said == [] if words is None else len(said) == 1 and words in said[0]


def test_one_draw_of_fixed_weights_is_as_good_as_many():
    comparison = with_nll({"a": [1.0, 2.0]})
    for one in comparison.evaluations:
        one.content["complete"] = True
    other_draws(comparison.evaluations[1].content)
    comparison.evaluations[1].content["point"] = True
    assert cautions(comparison) == []


def test_draws_are_compared_where_there_are_several():
    made = classification(seeds=1, methods=(METHODS[0], METHODS[4]))
    del made[0].content["results"]["1"]
    saved = made[1].clean(1)["nll"] - made[1].clean(4)["nll"]
    assert f"{saved:.4f}"[:5] in text(Comparison(made), "Draws")
