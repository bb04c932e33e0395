"""The original program's pictures, and its random numbers replayed.

``golden32.npz`` has two images and all their corruptions; ``golden224.npz`` has one image and every seventh pixel of
its corruptions in both directions. They are parts of larger files, which ``test_original_files.py`` tests where they
are.
"""

from functools import cache
from pathlib import Path

import numpy as np

from slimbayes.shifts.corruptions._ops import Corruption, Images

ORDER = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    *("speckle_noise", "gaussian_blur", "spatter", "saturate"),
)
SEVERITIES = range(1, 6)
STRIDE = {32: 1, 224: 7}


class LegacyRandom:
    """NumPy's frozen ``RandomState`` under the method names of ``numpy.random.Generator``; dtypes are ignored."""

    def __init__(self, seed: int) -> None:
        self.state = np.random.RandomState(seed)

    def normal(self, loc=0.0, scale=1.0, size=None):
        return self.state.normal(loc, scale, size)

    def standard_normal(self, size=None, dtype=None):
        return self.state.standard_normal(size)

    def random(self, size=None, dtype=None):
        return self.state.random_sample(size)

    def uniform(self, low=0.0, high=1.0, size=None):
        return self.state.uniform(low, high, size)

    def poisson(self, lam=1.0, size=None):
        return self.state.poisson(lam, size)

    def integers(self, low, high=None, size=None, dtype=None):
        """One call for many pairs takes the same numbers from the stream as one call per pair."""
        return self.state.randint(low, high, size)


@cache
def golden(side: int) -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name(f"golden{side}.npz")) as arrays:
        return dict(arrays)


def replayed(corruption: Corruption, images: Images, severity: int, constants: int) -> Images:
    """What the corruption makes of ``images`` (numbers 0, 1, ...) with the random numbers of the original program."""
    chosen = corruption.constants[constants][severity - 1]
    if corruption.draw is None:
        return corruption.apply(images, chosen)
    seed = (ORDER.index(corruption.name) * 5 + severity - 1) * 1000
    draws = [corruption.draw(LegacyRandom(seed + i), image, chosen) for i, image in enumerate(images)]
    return corruption.apply(images, chosen, *map(np.stack, zip(*draws, strict=True)))


def differences(corruption: Corruption, severity: int, side: int) -> np.ndarray:
    """Grey levels between ours and the original, in the small files."""
    ours = replayed(corruption, golden(side)["images"], severity, side)
    stride = STRIDE[side]
    return ours[:, ::stride, ::stride].astype(int) - golden(side)[f"{corruption.name}/{severity}"]


def assert_alike(difference: np.ndarray, share: float = 0.0) -> None:
    """Equal, but for a ``share`` of values that may be one grey level apart."""
    assert np.abs(difference).max() <= (share > 0)
    assert (difference != 0).mean() <= share
