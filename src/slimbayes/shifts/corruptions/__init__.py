"""The common corruptions of images (Hendrycks & Dietterich 2019): 15 types and 4 extra ones, at five severities.

>>> import torch, slimbayes as sb
>>> images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
>>> foggy = sb.corruptions.corrupt(images, "fog", severity=3, seed=0)
>>> foggy.shape, foggy.dtype
(torch.Size([8, 3, 32, 32]), torch.uint8)
>>> len(sb.corruptions.COMMON), sb.corruptions.EXTRA
(15, ('speckle_noise', 'gaussian_blur', 'spatter', 'saturate'))
"""

from slimbayes.shifts.corruptions._ops import Corruption as Corruption
from slimbayes.shifts.corruptions.corrupt import COMMON as COMMON
from slimbayes.shifts.corruptions.corrupt import CORRUPTIONS as CORRUPTIONS
from slimbayes.shifts.corruptions.corrupt import EXTRA as EXTRA
from slimbayes.shifts.corruptions.corrupt import corrupt as corrupt
