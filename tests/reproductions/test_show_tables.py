"""Tables hold means over seeds and standard errors as NumPy computes them."""

import json

import numpy as np
import pytest
from stored_examples import cells, mean_and_error, run_of, write_reproductions, write_run, write_study
from torch import nn

from reproductions.show import parse_show
from reproductions.show.parameter_counts import FORMULAS
from reproductions.stored import Sources, packed


def shown(folder, **content):
    return parse_show({"study": "digits", **content}).render(Sources(folder), "stem").text


def test_a_table_has_means_over_seeds_beside_the_papers_numbers(tmp_path):
    write_reproductions(tmp_path)
    paper = {"mean_field": ["0.1 ± 0.01", 0.968, 957000], "1-tied": [None, "95.0"]}
    text = shown(tmp_path, kind="table", columns=["nll", "accuracy", "parameters"], paper=paper)
    rows = cells(text)
    assert rows["method"] == ["seeds", "NLL ↓", "paper", "accuracy ↑, %", "paper", "parameters ↓", "paper"]
    nll, error = mean_and_error([0.5, 0.51, 0.52])
    percent, percent_error = 100 * np.array(mean_and_error([0.9, 0.902, 0.904]))
    expected = ["3", f"{nll:.4f} ± {error:.4f}", "0.1 ± 0.01", f"{percent:.2f} ± {percent_error:.2f}", "96.8"]
    assert rows["mean-field"] == [*expected, "1,000", "957,000"]
    assert rows["1-tied"] == ["", "–", "", "–", "95.0", "–", ""]
    assert list(rows) == ["method", "mean-field", "2-tied", "1-tied"]
    assert "Mean ± standard error over seeds. Over test examples a run's standard error is about 0.005 (NLL)" in text


def test_one_seed_has_the_standard_error_over_examples(tmp_path):
    write_reproductions(tmp_path, seeds=1)
    text = shown(tmp_path, kind="table", columns=["nll", "accuracy", "ece"])
    assert cells(text)["mean-field"] == ["1", "0.5000 ± 0.0050", "90.00 ± 0.30", "0.05"]
    assert text.endswith("There is one seed: ± is over test examples.")
    text = shown(tmp_path, kind="table", columns=["nll"], part="validation")
    assert text.endswith("There is one seed: ± is over validation examples.")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("brier_less_one", "-0.7900 ± 0.0058"),
        ("minutes", "30 ± 0"),
        ("parameters_percent", "100.0"),
        ("unheard_of", "–"),
        ("nll.value", "0.5100 ± 0.0058"),
        ("accuracy.value", "90.20 ± 0.12"),
    ],
)
def test_columns(tmp_path, column, expected):
    write_reproductions(tmp_path)
    assert cells(shown(tmp_path, kind="table", columns=[column]))["mean-field"][1] == expected


def test_tables_choose_methods_parts_and_overrides(tmp_path):
    write_study(tmp_path, overrides={"slow": {"optimiser.lr": 1e-4}})
    write_run(tmp_path, {**run_of(), "override": "slow", "cell": "mean_field-slow-seed0"})
    write_run(tmp_path, {**run_of("2-tied"), "override": "slow", "cell": "2-tied-slow-seed0"})
    rows = cells(shown(tmp_path, kind="table", columns=["nll"], part="validation", methods=["mean_field"]))
    assert rows == {"method": ["seeds", "NLL ↓"], "mean-field, slow": ["1", "0.7500 ± 0.0050"]}


def test_metrics_tables_read_evaluations_of_several_studies(tmp_path):
    for study, method in (("one", "mean_field"), ("two", "2-tied")):
        write_study(tmp_path, study)
        write_run(tmp_path, {**run_of(method, study=study), "evaluation": {"cnll": 0.7, "caccuracy": 0.8}})
    rows = cells(shown(tmp_path, kind="metrics_table", study=["one", "two"], columns=["cnll", "caccuracy"]))
    assert rows["mean-field"] == rows["2-tied"] == ["1", "0.7", "80.0"]


def test_the_papers_numbers_are_shown_before_anything_is_run():
    table = parse_show(
        {"kind": "table", "study": "digits", "columns": ["nll"], "paper": {"mean_field": ["0.1 ± 0.01"]}}
    )
    assert cells(table.unrun()) == {"method": ["NLL ↓, paper"], "mean-field": ["0.1 ± 0.01"]}


@pytest.mark.parametrize(("source", "title"), [("low_rank", "rank 1"), ("tie", "tied, k = 1")])
def test_low_rank_tables_begin_with_the_model_itself(tmp_path, source, title):
    write_reproductions(tmp_path)
    paper = {"mean_field": ["0.1"], 1: ["0.2"]}
    content = {"columns": ["nll", "parameters", "parameters_percent"], "source": source, "paper": paper}
    rows = cells(shown(tmp_path, kind="low_rank_table", **content))
    nll, error = mean_and_error([1.5, 1.51, 1.52])
    assert rows["mean-field"] == ["3", "0.5100 ± 0.0058", "0.1", "1,000", "100.0"]
    assert rows[title] == ["3", f"{nll:.4f} ± {error:.4f}", "0.2", "550", "55.0"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"quantity": "negative_elbo", "steps": [50]}, [2.0, 3.0, 4.0]),
        ({"quantity": "snr", "steps": [50]}, [3.0, 4.0, 5.0]),
        ({"quantity": "snr", "steps": [50], "layer": "3"}, [4.0, 5.0, 6.0]),
        ({"quantity": "snr", "steps": [50], "layer": "3", "statistic": "median"}, [2.0, 3.0, 4.0]),
    ],
)
def test_numbers_at_steps(tmp_path, content, expected):
    write_reproductions(tmp_path)
    mean, error = mean_and_error(expected)
    rows = cells(shown(tmp_path, kind="at_steps", paper={"mean_field": ["42.16 ± 0.070"]}, **content))
    assert rows["mean-field"] == ["3", f"{mean:.2f} ± {error:.2f}", "42.16 ± 0.070"]


def test_infinite_and_missing_numbers_are_told_apart(tmp_path):
    write_reproductions(tmp_path)
    rows = cells(shown(tmp_path, kind="at_steps", quantity="snr", layer="3", statistic="mean", steps=[50, 60]))
    assert rows["mean-field"] == ["3", "∞", "–"]


def test_step_times_come_from_a_benchmark(tmp_path):
    content = {
        "kind": "timing",
        "file": "bench-x.json",
        "command": "python -m benchmarks x",
        "cases": {"plain": "point", "k": "tied"},
    }
    timing = parse_show({**content, "paper": {"plain": "2.00 ± 0.0064", "k": "6.14 ± 0.018"}})
    assert (
        "`python -m benchmarks x --out benchmarks/results/bench-x.json`"
        in timing.render(Sources(tmp_path / "own"), "").text
    )
    case = {"seconds": 0.01, "ratio": 1.0, "interval": [1.0, 1.0]}
    stored = {
        "results": {"plain": case, "k": {"seconds": 0.025, "ratio": 2.5, "interval": [2.4, 2.6]}},
        "description": "train step of x",
        "settings": {"threads": 1, "rounds": 9, "baseline": "plain"},
        "hardware": {"processor": "Some CPU"},
        "commit": "0123456789abcdef",
    }
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "bench-x.json").write_text(json.dumps(stored))
    rows = cells(timing.render(Sources(tmp_path / "own"), "").text)
    assert rows["tied"] == ["25.00", "2.50", "2.40 to 2.60", "6.14 ± 0.018", f"{6.14 / 2.00:.2f}"]
    rows = cells(parse_show(content).render(Sources(tmp_path / "own"), "").text)
    assert rows["tied"] == ["25.00", "2.50", "2.40 to 2.60"]


def test_parameter_formulas_are_those_of_the_covariances():
    m, n, k = 3, 4, 2
    free = {
        "multivariate Normal": np.tri(m * n).sum(),
        "diagonal Normal": np.eye(m * n).sum(),
        "matrix Normal": np.tri(m).sum() + np.tri(n).sum(),
        "matrix Normal, diagonal": m + n,
        "k-tied Normal": np.ones((m, k)).size + np.ones((n, k)).size,
    }
    means = nn.Linear(m, n, bias=False).weight.numel()
    assert {family: value(m, n, k) for family, (_, value) in FORMULAS.items()} == {
        family: means + numbers for family, numbers in free.items()
    }


def test_counted_parameters_agree_with_the_formulas(tmp_path):
    rows = cells(parse_show({"kind": "parameter_counts", "shape": [7, 5], "k": 3}).render(Sources(tmp_path), "").text)
    for family in ("diagonal Normal", "matrix Normal, diagonal", "k-tied Normal"):
        assert rows[family][1] == rows[family][2]
    assert rows["k-tied Normal"][1] == str(7 * 5 + 3 * (7 + 5))


def test_stored_counts_of_networks_stand_beside_the_papers(tmp_path):
    (tmp_path / "results").mkdir()
    counts = {"k_tied": [{"network": "MLP, MNIST", "method": "2-tied", "parameters": 484008}]}
    (tmp_path / "results" / "parameter-counts.json").write_text(json.dumps(counts))
    part = parse_show({"kind": "network_counts", "paper": {"MLP, MNIST": {"2-tied": "484"}}})
    assert cells(part.render(Sources(tmp_path), "").text)["MLP, MNIST"] == ["2-tied", "484,008", "484"]


def test_pairs_are_over_the_same_images(tmp_path):
    """Means over seeds first; the error is that of the images' differences."""
    write_study(tmp_path)
    random = np.random.default_rng(0)
    figures = {}
    for method in ("mean_field", "2-tied"):
        for seed in range(3):
            each = {"nll": random.random(50), "right": random.integers(0, 2, 50), "cnll": random.random(20)}
            figures[method, seed] = each = {name: values.round(4) for name, values in each.items()}
            texts = {name: packed(values) for name, values in each.items()}
            write_run(tmp_path, {**run_of(method, seed), "evaluation": {"each": texts}})
    columns = ["nll", "accuracy", "cnll", "caccuracy"]
    rows = cells(shown(tmp_path, kind="pairs", reference="mean_field", columns=columns))
    assert list(rows) == ["method", "2-tied"]
    expected = ["3"]
    for name, factor, decimals in (("nll", 1, 3), ("right", 100, 1), ("cnll", 1, 3)):
        ours, others = (np.mean([figures[of, seed][name] for seed in range(3)], 0) for of in ("2-tied", "mean_field"))
        mean, error = mean_and_error(factor * (ours - others))
        expected.append(f"{mean:.{decimals}f} ± {error:.{decimals}f}")
    assert rows["2-tied"] == [*expected, "–"]


def test_pairs_without_their_reference_say_so(tmp_path):
    write_study(tmp_path)
    write_run(tmp_path, run_of("2-tied"))
    assert "No run of mean-field is stored" in shown(tmp_path, kind="pairs", reference="mean_field")
