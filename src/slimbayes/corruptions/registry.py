"""The corruptions by name."""

from collections.abc import Mapping
from types import MappingProxyType

from slimbayes.corruptions.base import Corruption
from slimbayes.corruptions.colour import BRIGHTNESS, CONTRAST, SATURATE
from slimbayes.corruptions.disk_blur import DEFOCUS_BLUR
from slimbayes.corruptions.elastic import ELASTIC_TRANSFORM
from slimbayes.corruptions.fog import FOG
from slimbayes.corruptions.frost import FROST
from slimbayes.corruptions.gaussian_blur import GAUSSIAN_BLUR
from slimbayes.corruptions.glass import GLASS_BLUR
from slimbayes.corruptions.jpeg import JPEG_COMPRESSION
from slimbayes.corruptions.motion import MOTION_BLUR
from slimbayes.corruptions.noise import GAUSSIAN_NOISE, IMPULSE_NOISE, SHOT_NOISE, SPECKLE_NOISE
from slimbayes.corruptions.pixelate import PIXELATE
from slimbayes.corruptions.snow import SNOW
from slimbayes.corruptions.spatter import SPATTER
from slimbayes.corruptions.zoom import ZOOM_BLUR

__all__ = ["COMMON", "CORRUPTIONS", "EXTRA"]

# In the order of the paper. A corruption's place here is part of its seed: new ones go to the end.
_COMMON = (
    *(GAUSSIAN_NOISE, SHOT_NOISE, IMPULSE_NOISE),
    *(DEFOCUS_BLUR, GLASS_BLUR, MOTION_BLUR, ZOOM_BLUR),
    *(SNOW, FROST, FOG, BRIGHTNESS),
    *(CONTRAST, ELASTIC_TRANSFORM, PIXELATE, JPEG_COMPRESSION),
)
_EXTRA = (SPECKLE_NOISE, GAUSSIAN_BLUR, SPATTER, SATURATE)

#: The names of the 15 corruptions that models are compared on.
COMMON: tuple[str, ...] = tuple(corruption.name for corruption in _COMMON)
#: The names of the 4 corruptions that are meant for choosing settings.
EXTRA: tuple[str, ...] = tuple(corruption.name for corruption in _EXTRA)
#: All of them.
CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType({one.name: one for one in (*_COMMON, *_EXTRA)})
