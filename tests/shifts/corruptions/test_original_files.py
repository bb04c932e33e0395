"""All of the original program's pictures, where they are."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from golden import SEVERITIES, assert_alike, replayed
from slimbayes.shifts.corruptions import CORRUPTIONS

FOLDER = Path(__file__).parents[4] / "shared" / "golden"
#: The share of values that may be one grey level apart.
SHARES = dict.fromkeys(("defocus_blur", "glass_blur", "gaussian_blur", "snow", "spatter"), 0.006)
#: Another codec, and photographs that were compressed again: the mean difference in grey levels.
MEANS = {"jpeg_compression": 1.5, "frost": 4.0}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the original's pictures are not in {FOLDER}"),
]


@cache
def pictures(side: int) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"corruptions{side}.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("side", [32, 224])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_equals_the_original(name, side, severity):
    expected = pictures(side)[f"{name}/{severity}"]
    ours = replayed(CORRUPTIONS[name], pictures(side)["images"][: len(expected)], severity, side)
    difference = ours.astype(int) - expected
    if name in MEANS:
        assert np.abs(difference).mean() < MEANS[name]
    else:
        assert_alike(difference, SHARES.get(name, 0.0))
