"""The document on costs shows the stored runs, and what it claims holds in them."""

import json
from pathlib import Path

import pytest

from benchmarks.networks import NETWORKS, PLAIN_NETWORKS
from benchmarks.pages import BLOCK, PAGES, with_tables
from benchmarks.price_rows import ROWS
from benchmarks.price_table import peers

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "bench.md").read_text()


SUITES = (
    "dense",
    "dense-first",
    "loop-mlp",
    "loop-conv",
    "compiled-mlp-512",
    "compiled-conv-16",
    "compiled-resnet-20-bf16",
    "fast-mlp-512",
    "fast-conv-16",
    "fast-resnet-20-bf16",
)


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


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_are_those_of_the_stored_runs(page):
    text = (ROOT / "docs" / page).read_text()
    assert with_tables(text) == text


def test_every_stored_run_is_shown():
    shown = {name for page in PAGES for _, name, _ in BLOCK.findall((ROOT / "docs" / page).read_text())}
    assert shown == {"price", "profile", "peers", "growth", "splitting", "service", *SUITES}


def test_the_price_table_is_complete_and_was_made_in_ten_minutes():
    run = stored("")
    assert run["seconds"] < 600
    assert run["results"].keys() >= PLAIN_NETWORKS.keys()
    for network in (NETWORKS[name] for name in run["results"]):
        assert set(run["results"][network.name]) == {row.name for row in ROWS.values() if row.applies(network)}
    for network, cases in run["results"].items():
        missed = {name for name, one in cases.items() if one.get("met") is False}
        assert missed <= set(run["profiles"][network])


def test_peers_were_measured_beside_ours():
    run = peers()
    assert run is not None
    assert not run["commit"].endswith("dirty")
    for network in PLAIN_NETWORKS:
        assert {"plain", "batch_ensemble", "rank1 per example", "torch-uncertainty BatchEnsemble"} <= set(
            run["results"][network]
        )


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
