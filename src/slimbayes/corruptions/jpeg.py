"""JPEG compression and back."""

from io import BytesIO

import numpy as np

from slimbayes.corruptions.base import Corruption, Images

__all__ = ["JPEG_COMPRESSION"]


def _apply(images: Images, quality: int) -> Images:
    """Encode each image with that quality and chroma of half the resolution, and decode it.

    Pixels depend on the codec: Pillow's today is libjpeg-turbo, the original's was IJG libjpeg 9, and the two are about
    one grey level apart; the statistics agree.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('The corruption jpeg_compression needs pillow: pip install "slimbayes[report]"') from error

    result = np.empty_like(images)
    for one, target in zip(images, result, strict=True):
        file = BytesIO()
        Image.fromarray(one.squeeze(-1) if one.shape[-1] == 1 else one).save(
            file, "JPEG", quality=quality, subsampling="4:2:0"
        )
        target[:] = np.asarray(Image.open(file)).reshape(one.shape)
    return result


JPEG_COMPRESSION = Corruption(
    "jpeg_compression",
    {32: (80, 65, 58, 50, 40), 64: (65, 58, 50, 40, 25), 224: (25, 18, 15, 10, 7)},
    _apply,
)
