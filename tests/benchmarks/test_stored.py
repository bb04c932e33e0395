"""The document on costs shows the stored runs, and what it claims holds in them."""

import json
from pathlib import Path

import pytest

from benchmarks.growth import growth_points_table, growth_table, splitting_table
from benchmarks.networks import NETWORKS
from benchmarks.price_rows import ROWS
from benchmarks.price_table import peers, price_table, profile_table
from benchmarks.service import service_table
from benchmarks.suite_run import table

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "bench.md").read_text()


SUITES = ("dense", "dense-first", "loop-mlp", "loop-conv", "compiled-mlp-512", "compiled-conv-16")


def stored(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"bench{name and '-'}{name}.json").read_text())


@pytest.mark.parametrize("name", ["", *SUITES, "growth", "service"])
def test_a_stored_run_says_where_it_comes_from(name):
    run = stored(name)
    assert run["commit"]
    assert not run["commit"].endswith("dirty")
    assert run["hardware"]["processor"]
    assert run["versions"]["torch"]
    assert run["settings"]["threads"] == 1


@pytest.mark.parametrize("name", SUITES)
def test_the_page_shows_a_suite(name):
    assert table(stored(name), markdown=True) in PAGE


def test_the_page_shows_the_price_table_and_where_the_time_goes():
    run = stored("")
    assert price_table(run, markdown=True) in PAGE
    assert profile_table(run) in PAGE


def test_the_price_table_is_complete_and_was_made_in_ten_minutes():
    run = stored("")
    assert run["seconds"] < 600
    for network in NETWORKS.values():
        assert set(run["results"][network.name]) == {row.name for row in ROWS.values() if row.applies(network)}
    for network, cases in run["results"].items():
        missed = {name for name, one in cases.items() if one.get("met") is False}
        assert missed <= set(run["profiles"][network])


def test_peers_were_measured_beside_ours():
    run = peers()
    assert run is not None
    assert not run["commit"].endswith("dirty")
    for network in NETWORKS:
        assert {"plain", "batch_ensemble", "rank1 per example", "torch-uncertainty BatchEnsemble"} <= set(
            run["results"][network]
        )


def test_growth_and_service_have_their_pages():
    growth, service = stored("growth"), stored("service")
    page = (ROOT / "docs" / "bench-growth.md").read_text()
    assert growth_table(growth, markdown=True).split("\n\n")[0] in page
    assert growth_points_table(growth, markdown=True) in page
    assert splitting_table(growth, markdown=True) in page
    assert service_table(service, markdown=True) in (ROOT / "docs" / "bench-service.md").read_text()


def test_tied_weights_cost_less_than_half_of_what_mean_field_weights_add():
    for name, limit in (("dense", 1.5), ("dense-first", 1.5)):
        ratios = {case: row["ratio"] for case, row in stored(name)["results"].items()}
        tied = ratios.pop("k_tied/local")
        assert tied < limit
        others = [ratio for case, ratio in ratios.items() if case.startswith("mean_field")]
        assert len(others) == 3
        assert all(2 * (tied - 1) < other - 1 for other in others)
    assert stored("dense")["results"]["k_tied/local"]["interval"][1] < 1.5


def test_the_training_loop_has_at_least_0_95_of_a_bare_loops_throughput():
    for name in ("loop-mlp", "loop-conv"):
        ratio = stored(name)["results"]["slimbayes train"]["ratio"]
        assert 1 / ratio >= 0.95
        assert f"{1 / ratio:.3f}" in PAGE
