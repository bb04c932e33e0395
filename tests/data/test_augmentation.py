"""Random changes of batches, against slow and plain computations of the same."""

import pickle
from collections import Counter

import pytest
import torch
from torch import Generator
from torch.nn import functional as F

from slimbayes.data.augmentation import PadCropFlip, ResizedCropFlip


def seeded(seed=0):
    return Generator().manual_seed(seed)


def images(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(1))


def crops(image, pad):
    """Every crop of one padded image, by its position and whether it is flipped."""
    _, height, width = image.shape
    padded = torch.zeros(image.shape[0], height + 2 * pad, width + 2 * pad, dtype=torch.uint8)
    padded[:, pad : pad + height, pad : pad + width] = image
    for top in range(2 * pad + 1):
        for left in range(2 * pad + 1):
            crop = padded[:, top : top + height, left : left + width]
            yield (top, left, False), crop
            yield (top, left, True), torch.stack([crop[..., column] for column in reversed(range(width))], -1)


@pytest.mark.parametrize(("pad", "flip"), [(4, True), (2, False), (0, True)])
def test_each_image_is_one_of_its_own_crops_and_all_are_as_likely(pad, flip):
    x = images(1, 3, 6, 5).expand(4000, -1, -1, -1)
    (y,) = PadCropFlip(pad, flip)((x,), seeded())
    assert y.shape == x.shape
    assert y.dtype == torch.uint8
    assert y.is_contiguous()
    which = {crop.numpy().tobytes(): position for position, crop in crops(x[0], pad) if flip or not position[2]}
    seen = Counter(which[one.numpy().tobytes()] for one in y)
    assert len(which) == (2 * pad + 1) ** 2 * (1 + flip)
    expected = len(y) / len(which)
    chi_squared = sum((seen[position] - expected) ** 2 / expected for position in which.values())
    freedom = len(which) - 1
    assert abs(chi_squared - freedom) < 4 * (2 * freedom) ** 0.5


def test_images_of_a_batch_are_changed_independently():
    x = images(64, 3, 8, 8)
    (y,) = PadCropFlip(1)((x,), seeded())
    positions = []
    for one, changed in zip(x, y, strict=True):
        (position,) = [position for position, crop in crops(one, 1) if torch.equal(crop, changed)]
        positions.append(position)
    assert len(set(positions)) > 10


@pytest.mark.parametrize("augmentation", [PadCropFlip(2), ResizedCropFlip((5, 6))])
def test_the_generator_alone_decides(augmentation):
    x = images(16, 3, 8, 8)
    before = x.clone()
    (first,) = augmentation((x,), seeded(7))
    torch.manual_seed(123)
    (again,) = pickle.loads(pickle.dumps(augmentation))((x,), seeded(7))
    (other,) = augmentation((x,), seeded(8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(x, before)


def test_a_resized_crop_is_what_interpolation_of_the_box_gives():
    x = images(12, 3, 16, 16)
    augmentation = ResizedCropFlip((7, 9))
    (y,) = augmentation((x,), seeded(3))
    half, centre = augmentation.boxes(x.shape, generator := seeded(3))
    flipped = torch.randint(2, (12,), generator=generator).bool()
    assert 0 < flipped.sum() < 12
    for row in range(12):
        (across, down), (cx, cy) = half[row].tolist(), centre[row].tolist()
        for i, j in ((0, 0), (3, 8), (6, 2)):
            column = 8 - j if flipped[row] else j
            # the position in pixels, where pixel p has its centre at p + 1/2
            u = 8 * (1 + cx + across * ((2 * column + 1) / 9 - 1)) - 0.5
            v = 8 * (1 + cy + down * ((2 * i + 1) / 7 - 1)) - 0.5
            u, v = min(max(u, 0), 15), min(max(v, 0), 15)
            left, top = min(int(u), 14), min(int(v), 14)
            a, b = u - left, v - top
            corners = x[row, :, top : top + 2, left : left + 2].double()
            value = torch.einsum(
                "cij,i,j->c", corners, torch.tensor([1 - b, b]).double(), torch.tensor([1 - a, a]).double()
            )
            assert (y[row, :, i, j].double() - value).abs().max() < 0.51


def test_a_box_of_the_whole_image_is_a_plain_resize():
    x = images(4, 3, 8, 8)
    (y,) = ResizedCropFlip((16, 16), least_area=0.999999, most_stretch=1)((x,), seeded())
    plain = F.interpolate(x.float(), (16, 16), mode="bilinear", align_corners=False)
    distances = torch.stack([(y - one).abs().amax((1, 2, 3)) for one in (plain, plain.flip(-1))])
    assert (distances.amin(0) <= 0.51).all()


@pytest.mark.parametrize("shape", [(20_000, 3, 256, 256), (20_000, 3, 256, 128)])
def test_boxes_lie_inside_and_have_the_area_and_shape_asked_for(shape):
    half, centre = ResizedCropFlip((224, 224), 0.08, 4 / 3).boxes(torch.Size(shape), seeded())
    assert (half + centre.abs()).max() <= 1 + 1e-6
    area = half.prod(1)
    stretch = half[:, 0] * shape[3] / (half[:, 1] * shape[2])
    whole = (half == 1).all(1)
    assert area.min() >= 0.0799
    assert area[~whole].max() <= 1
    assert 0.7499 < stretch[~whole].min() < 0.76
    assert 1.31 < stretch[~whole].max() < 1.3334
    torch.testing.assert_close(area[~whole].min().item(), 0.08, atol=0.01, rtol=0)
    if shape[2] == shape[3]:
        # Rejection of tries, written out: areas and stretches drawn until the box fits.
        draw = torch.rand(2, 400_000, generator=seeded(5), dtype=torch.float64)
        areas, stretches = 0.08 + 0.92 * draw[0], (4 / 3) ** (2 * draw[1] - 1)
        fits = (areas * stretches <= 1) & (areas / stretches <= 1)
        assert abs(area.mean() - areas[fits].mean()) < 4 * areas[fits].std() / len(area) ** 0.5
        assert centre.mean(0).abs().max() < 0.01


def test_wrong_arguments_are_named():
    for wrong, words in (
        (lambda: PadCropFlip(-1), "`pad`"),
        (lambda: ResizedCropFlip((0, 3)), "`size`"),
        (lambda: ResizedCropFlip((3, 3), least_area=0), "`least_area`"),
        (lambda: ResizedCropFlip((3, 3), most_stretch=0.5), "`most_stretch`"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()


def test_an_empty_batch():
    empty = torch.empty(0, 3, 8, 8, dtype=torch.uint8)
    assert PadCropFlip()((empty,), seeded())[0].shape == (0, 3, 8, 8)
