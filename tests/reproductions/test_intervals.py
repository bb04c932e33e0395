"""The page of intervals has the stored numbers, and says of each set whether it is outside."""

import json
from pathlib import Path

from reproductions.intervals import METHODS, SETS, table

ROOT = Path(__file__).parents[2]
STORED = json.loads((ROOT / "reproductions" / "results" / "intervals.json").read_text())


def row(coverage, split):
    scores = {"rmse": 0.5, "noise": 0.4, "spread": 0.3, "kurtosis": 3.0, "test_rows": 31}
    return {"set": "yacht", "method": "rank1", "split": split, "coverage": coverage, **scores}


def test_the_page_has_the_stored_numbers():
    assert table(STORED) in (ROOT / "docs" / "intervals.md").read_text()
    assert not STORED["commit"].endswith("dirty")
    runs = [(one["set"], one["method"], one["split"]) for one in STORED["rows"]]
    assert sorted(runs) == sorted((name, method, k) for name in SETS for method in METHODS for k in range(SETS[name]))


def test_a_cell_is_a_mean_with_its_standard_error():
    assert "90.0 ± 1.0" in table({"rows": [row(0.89, 0), row(0.91, 1)]})
    outside = table({"rows": [row(0.94, 0), row(0.96, 1)]})
    assert outside.count("**95.0 ± 1.0**") == 2
    assert "0.50" in outside
