"""The document on costs shows the stored runs, and what it claims holds in them."""

import json
from pathlib import Path

from slimbayes.bench.table import table

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "bench.md").read_text()


def stored(name):
    return json.loads((ROOT / "experiments" / "results" / f"bench-{name}.json").read_text())


def test_the_page_shows_the_stored_runs():
    for name in ("dense", "dense-first", "loop-mlp", "loop-conv"):
        run = stored(name)
        assert table(run, markdown=True) in PAGE
        assert run["commit"]
        assert not run["commit"].endswith("dirty")


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
