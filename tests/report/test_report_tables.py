"""Tables against means and standard errors worked by hand, and their files against other readers."""

import csv
import io
import math
import re

import pytest
from records import METHODS, bernoulli, classification, evil, minimal, regression

from slimbayes.report._score_tables import main_tables, scores
from slimbayes.report._tabular import Table, as_csv, as_latex, decimals_for, markdown, number_cell, word, write_table
from slimbayes.report.comparison import Comparison


def with_nll(values):
    """Evaluations whose NLL is as given, by title."""
    found = []
    for title, numbers in values.items():
        for seed, number in enumerate(numbers):
            one = minimal(title)
            one.content["seed"] = seed
            one.content["results"]["1"]["clean"]["scores"] = {"nll": number}
            found.append(one)
    return Comparison(found)


def column(table, key):
    position = [head.key for head in table.heads].index(key)
    return [row[position] for row in table.rows]


def test_mean_and_standard_error_by_hand():
    # 1, 2, 3: mean 2, standard deviation 1, standard error 1 / sqrt(3). 4, 6: mean 5, deviation sqrt(2), error 1.
    cells = column(scores(with_nll({"a": [1.0, 2.0, 3.0], "b": [4.0, 6.0]})), "nll")
    assert [cell.value for cell in cells] == [2.0, 5.0]
    assert [cell.error for cell in cells] == pytest.approx([1 / math.sqrt(3), 1.0], abs=1e-12)
    assert [(cell.text, cell.spread, cell.best) for cell in cells] == [
        ("2.00", "± 0.58", True),
        ("5.00", "± 1.00", False),
    ]


def test_one_seed_has_no_error_and_one_method_no_best():
    (cell,) = column(scores(with_nll({"a": [1.0]})), "nll")
    assert (cell.error, cell.spread, cell.best) == (None, "", False)


def test_a_seed_without_a_score_leaves_it_out():
    table = scores(with_nll({"a": [1.0, None], "b": [2.0, 2.0], "c": [3.0, 3.0]}))
    assert [cell.missing for cell in column(table, "nll")] == [True, False, False]
    assert [cell.best for cell in column(table, "nll")] == [False, True, False]


def test_more_is_better_where_it_is():
    table = scores(Comparison(classification(seeds=2)))
    accuracies = [cell.value for cell in column(table, "accuracy")]
    assert [cell.best for cell in column(table, "accuracy")] == [value == max(accuracies) for value in accuracies]


@pytest.mark.parametrize(
    ("made", "keys"),
    [
        (classification(seeds=2), {"scores", "intervals", "samples", "members", "ood"}),
        (bernoulli(), {"scores", "intervals", "members", "ood"}),
        (regression(), {"scores", "intervals", "samples", "members"}),
        ([minimal()], {"scores"}),
    ],
    ids=["classification", "bernoulli", "regression", "minimal"],
)
def test_only_tables_with_something_to_show(made, keys):
    tables = main_tables(Comparison(made))
    assert set(tables) == keys
    for table in tables.values():
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.heads)}


def test_samples_have_their_own_means():
    comparison = Comparison(classification(seeds=2, methods=METHODS[:2]))
    table = main_tables(comparison)["samples"]
    named = zip(table.rows, column(table, "nll"), strict=True)
    shown = {(row[0].text, row[1].value): cell.value for row, cell in named}
    for title, group in comparison.groups.items():
        for count in (1, 4):
            expected = sum(one.content["results"][str(count)]["clean"]["scores"]["nll"] for one in group) / 2
            assert shown[title, count] == pytest.approx(expected, abs=1e-12)


def test_best_of_each_unknown_data_set():
    comparison = Comparison(classification(seeds=1))
    for one in comparison.evaluations:
        one.result()["ood"]["noise"] = {**one.result()["ood"]["svhn"]}
    table = main_tables(comparison)["ood"]
    for name in ("svhn", "noise"):
        rows = [row for row in table.rows if row[1].text == name]
        values = [row[2].value for row in rows]
        assert [row[2].best for row in rows] == [value == max(values) for value in values]


@pytest.mark.parametrize(
    ("values", "unit", "errors", "expected"),
    [
        ([], "", [], 3),
        ([0.0], "", [], 3),
        ([0.0123], "", [], 4),
        ([0.961], "%", [], 1),
        ([0.961], "%", [0.0004], 2),
        ([1.0], "", [1e-9], 3),
        ([123456.0], "", [], 0),
        ([1e-9], "", [], None),
    ],
)
def test_decimals(values, unit, errors, expected):
    assert decimals_for(values, unit, errors) == expected


@pytest.mark.parametrize(
    ("values", "errors", "expected"), [([1.801, 1.803], [], 3), ([1.801, 1.801], [], 2), ([1.801, 1.803], [0.1], 2)]
)
def test_decimals_that_tell_numbers_apart(values, errors, expected):
    assert decimals_for(values, "", errors, apart=values) == expected
    assert decimals_for(values, "", errors) == 2


def test_the_best_of_one_seed_each_does_not_look_like_the_next():
    cells = column(scores(with_nll({"a": [1.801], "b": [1.803], "c": [2.5]})), "nll")
    assert [cell.text for cell in cells] == ["1.801", "1.803", "2.500"]
    cells = column(scores(with_nll({"a": [1.8], "b": [2.501], "c": [2.503]})), "nll")
    assert [cell.text for cell in cells] == ["1.80", "2.50", "2.50"]


def test_negative_numbers_have_a_minus_sign():
    assert number_cell(-0.5, 2).text == "−0.50"


def test_csv_has_all_digits():
    comparison = with_nll({"a": [0.1, 0.2], "b,c": [0.3, 0.5]})
    rows = list(csv.DictReader(io.StringIO(as_csv(scores(comparison)))))
    assert [row["method"] for row in rows] == ["a", "b,c"]
    assert [float(row["nll"]) for row in rows] == [(0.1 + 0.2) / 2, 0.4]
    assert float(rows[1]["nll_se"]) == pytest.approx(0.1, abs=1e-12)


def test_csv_carries_no_formula():
    titles = ["=cmd|' /C calc'!A0", "@x", "-a", "+1"]
    rows = list(csv.reader(io.StringIO(as_csv(scores(with_nll({title: [1.0] for title in titles}))))))
    assert [row[0] for row in rows[1:]] == ["'=cmd|' /C calc'!A0", "'@x", "'-a", "+1"]


def test_csv_of_intervals_has_both_ends():
    comparison = Comparison(regression())
    rows = list(csv.DictReader(io.StringIO(as_csv(main_tables(comparison)["intervals"]))))
    assert (rows[0]["nll_low"], rows[0]["nll_high"]) == ("2.4", "2.7")


def test_latex_by_hand():
    text = as_latex(scores(with_nll({"a_b & c%": [1.0, 3.0], r"\x{~^}$#<": [4.0, 6.0]})))
    lines = text.splitlines()
    assert lines[1:3] == [r"\begin{tabular}{lrrrr}", r"\toprule"]
    assert lines[3] == r"Method & NLL $\downarrow$ & Draws & Parameters & Seeds \\"
    assert lines[5] == r"a\_b \& c\% & \textbf{2.00} $\pm$ 1.00 & 4 & 1\,000 & 2 \\"
    escaped = r"\textbackslash{}x\{\textasciitilde{}\textasciicircum{}\}\$\#\textless{}"
    assert lines[6].startswith(escaped + " & 5.00")
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]


@pytest.mark.parametrize("title", ["[a]", "*", 'say "x"', "\\\\", "{", "}}", "a\nb", "100%", "#1", "~^_$&<>|", "方法"])
def test_latex_of_any_name_is_balanced(title):
    """As TeX reads it: no brace, dollar, comment, alignment or paragraph by accident, nor an option of a row's end."""
    text = as_latex(scores(with_nll({"first": [1.0, 3.0], title: [4.0, 6.0]})))
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert not re.search(r"\\\\\s*[\[*]", body)
    plain = re.sub(r"\\\\|\\[^a-zA-Z]|\\[a-zA-Z]+", "", body)
    depth = 0
    for brace in re.findall("[{}]", plain):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    assert not set('%#~^_<>|"') & set(plain)
    assert [line.count("&") for line in plain.splitlines()] == [4, 4]
    assert body.count("\\\\\n") == 2


def test_csv_of_any_name_comes_back():
    titles = ['a,"b"', "x\ny", "=1+1", " space ", "方法", "<b>&amp;"]
    made = with_nll({title: [0.1 * position, 1 / 3] for position, title in enumerate(titles)})
    rows = list(csv.DictReader(io.StringIO(as_csv(scores(made)), newline="")))
    assert [row["method"] for row in rows] == [title.replace("=1", "'=1") for title in titles]  # no formula
    assert [float(row["nll"]) for row in rows] == [made.figure(title, "nll").mean for title in titles]
    assert [float(row["nll_se"]) for row in rows] == [made.figure(title, "nll").error for title in titles]


def test_markdown_by_hand():
    text = markdown(scores(with_nll({"a_b|c": [1.0, 3.0], "<d>": [4.0, 6.0]})))
    assert text.splitlines()[2:4] == [
        r"| a\_b\|c | **2.00** ± 1.00 | 4 | 1" + "\u202f" + "000 | 2 |",
        r"| \<d\> | 5.00 ± 1.00 | 4 | 1" + "\u202f" + "000 | 2 |",
    ]


def test_files_of_evil_names(tmp_path):
    for table in main_tables(Comparison(evil())).values():
        paths = write_table(table, tmp_path)
        assert [path.name for path in paths] == [f"{table.key}{suffix}" for suffix in (".csv", ".tex", ".md")]
        rows = list(csv.reader(io.StringIO(paths[0].read_text(encoding="utf-8"))))
        assert {row[0] for row in rows[1:]} == {"<script>alert(1)</script>", "a_b & c%|{d}"}


def test_an_empty_table_is_written(tmp_path):
    table = Table("none", "None", "Nothing.", main_tables(Comparison([minimal()]))["scores"].heads)
    assert len(write_table(table, tmp_path)) == 3
    assert word("x").label
