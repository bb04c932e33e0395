"""What each part of _fast gains is what its line in the folder's docstring says, by the stored runs."""

import json
from pathlib import Path

import pytest

from slimbayes import _fast

RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"
#: By function: the stored run that its line speaks of, and the row of the price table.
GAINS = {
    "scaled_linear": ("fast-mlp-512", "batch_ensemble"),
    "scale_rows": ("fast-resnet-20-bf16", "batch_ensemble"),
    "signed_noise": ("fast-mlp-512", "rank1 per example"),
    "weighted_sum": ("fast-mlp-512", "k_tied local"),
    "local_linear": ("fast-mlp-512", "k_tied local"),
}


def test_every_part_has_a_measured_gain():
    parts = {name for name in vars(_fast) if getattr(_fast, name).__class__.__name__ == "function"}
    assert parts == GAINS.keys()


@pytest.mark.parametrize("name", GAINS)
def test_what_is_fast_says_what_it_gains(name):
    run, case = GAINS[name]
    stored = json.loads((RESULTS / f"bench-{run}.json").read_text())
    ratios = {row: one["ratio"] for row, one in stored["results"].items()}
    gain = round(100 * (ratios[f"{case}, no {name}"] / ratios[case] - 1))
    (line,) = [line for line in _fast.__doc__.splitlines() if line.startswith(f"``{name}``")]
    assert f" {gain}%, " in line
    assert gain >= 5
