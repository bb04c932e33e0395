"""The document on costs shows the stored runs, and what it claims holds in them."""

import json
from pathlib import Path

import pytest

from benchmarks.lstm import LSTM, LSTM_ROWS
from benchmarks.networks import PLAIN_NETWORKS
from benchmarks.pages import BLOCK, PAGES, with_tables
from benchmarks.price import all_networks
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
    for name, cases in run["results"].items():
        rows = LSTM_ROWS if name == LSTM.name else ROWS
        applied = {row.name: row.also_against for row in rows.values() if row.applies(all_networks()[name])}
        also = {f"{row} against {other}" for row, other in applied.items() if other in applied}
        assert set(cases) == {*applied, *also}
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


#: By peer: which of our rows does the same.
SAME_METHOD = {
    "torch-uncertainty BatchEnsemble": "batch_ensemble",
    "torch-uncertainty Bayesian": "slimbayes mean_field Reparameterization",
    "bayesian-torch Flipout": "slimbayes mean_field Flipout",
    "bayesian-torch Reparameterization": "slimbayes mean_field Reparameterization",
    "naive rank-1 per example": "rank1 per example",
    "tabm BatchEnsemble": "batch_ensemble",
}


def test_the_page_says_which_peers_are_not_slower():
    found = {
        (network, peer): (rows[ours], rows[peer])
        for network, rows in peers()["results"].items()
        for peer, ours in SAME_METHOD.items()
        if peer in rows
    }
    unsure = {cell for cell, (ours, peer) in found.items() if ours["interval"][1] >= peer["interval"][0]}
    lower = {
        ("mlp_512", "tabm BatchEnsemble"),
        ("conv_16", "naive rank-1 per example"),
        ("wrn_16_4", "naive rank-1 per example"),
        ("conv_16", "bayesian-torch Reparameterization"),
    }
    assert "in all but five cells" in PAGE
    assert unsure == lower | {("wrn_16_4", "torch-uncertainty BatchEnsemble")}
    assert {cell for cell, (ours, peer) in found.items() if peer["ratio"] < ours["ratio"]} == lower
    assert not any(peer["interval"][1] < ours["interval"][0] for ours, peer in found.values())
    gains = {
        network: round(100 * (1 - rows["rank1 per example"]["ratio"] / rows["naive rank-1 per example"]["ratio"]))
        for network, rows in peers()["results"].items()
    }
    assert gains == {"conv_16": -1, "conv_64": 1, "mlp_512": 11, "mlp_1024": 8, "wrn_16_4": -1}


def test_the_page_says_what_bfloat16_costs():
    compiled, parts = stored("compiled-resnet-20-bf16")["results"], stored("fast-resnet-20-bf16")["results"]
    found = {
        name: (row["ratio"], row["seconds"] / compiled["plain compiled"]["seconds"]) for name, row in compiled.items()
    }
    said = {"rank1 per example": (1.17, 1.19), "rank1 shared": (1.24, 1.26), "batch_ensemble": (1.22, 1.24)}
    assert {name: tuple(round(x, 2) for x in found[f"{name} compiled"]) for name in said} == said
    (sentence,) = [part for part in PAGE.split("\n\n") if part.startswith("A compiled step")]
    assert all(f"{eager:.2f}" in sentence and f"{other:.2f}" in sentence for eager, other in said.values())
    per_example = stored("")["results"]["resnet_20_bf16"]["rank1 per example"]
    assert f"{per_example['ratio']:.2f} in the price table" in sentence
    assert f"{parts['rank1 per example, none']['ratio']:.2f} with `_fast` switched off" in " ".join(sentence.split())


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
