"""Image files on disk: decoding against pillow's own steps, folders of classes, and ImageNet's layout."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator

from slimbayes.data._image_files import ImageFiles, decode_image, find_images
from slimbayes.data.augmentation import ResizedCropFlip
from slimbayes.data.folders import MissingData
from slimbayes.data.registry import load_data


def picture(height, width, seed=0):
    """A smooth colour picture, so that JPEG and resizing keep it."""
    y, x = np.mgrid[:height, :width]
    planes = [127 + 120 * np.sin((seed + 1 + c) * (x / width + c * y / height)) for c in range(3)]
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


def resized_then_cropped(image, shorter, size):
    """The usual two steps: the shorter side to a length, then the centre."""
    scale = shorter / min(image.size)
    larger = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (larger.width - size) // 2, (larger.height - size) // 2
    return np.array(larger.crop((left, top, left + size, top + size)))


# ---------------------------------------------------------------------- one file


@pytest.mark.parametrize("ending", ["png", "bmp", "webp", "tiff", "gif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_file_of_the_right_size_is_taken_as_it_is(ending, channels, tmp_path):
    image = picture(5, 7) if channels == 3 and ending != "gif" else picture(5, 7).convert("L")
    image.save(tmp_path / f"a.{ending}", **({"lossless": True} if ending == "webp" else {}))
    x = decode_image(tmp_path / f"a.{ending}", (5, 7), channels)
    expected = np.array(image.convert("L" if channels == 1 else "RGB")).reshape(5, 7, channels)
    assert x.dtype == torch.uint8
    assert x.is_contiguous()
    np.testing.assert_array_equal(x.permute(1, 2, 0), expected)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 96), (128, 64), (16, 32), (32, 32)])
def test_resize_and_centre_crop_in_one_step(height, width, tmp_path):
    picture(height, width).save(tmp_path / "a.png")
    x = decode_image(tmp_path / "a.png", (28, 28), 3, zoom=32 / 28)
    expected = resized_then_cropped(picture(height, width), 32, 28)
    assert np.abs(x.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1


def test_a_wide_picture_keeps_its_proportions(tmp_path):
    stripes = np.repeat(np.array([10, 200, 10], np.uint8), 20)[None].repeat(20, 0)  # only the middle third is bright
    Image.fromarray(stripes).save(tmp_path / "a.png")
    assert decode_image(tmp_path / "a.png", (20, 20), 1).unique().tolist() == [200]
    assert decode_image(tmp_path / "a.png", (10, 30), 1)[0, 5, [0, 15, 29]].tolist() == [10, 200, 10]


def test_transparent_palettes_and_jpeg(tmp_path):
    image = picture(6, 6).quantize(8)
    image.save(tmp_path / "a.png", transparency=bytes([0, 255, 128, 1, 2, 3, 4, 5]))
    expected = np.array(image.convert("RGB"))
    np.testing.assert_array_equal(decode_image(tmp_path / "a.png", (6, 6)).permute(1, 2, 0), expected)
    picture(32, 32).convert("CMYK").save(tmp_path / "b.jpg", quality=100)
    difference = decode_image(tmp_path / "b.jpg", (32, 32)).permute(1, 2, 0).numpy().astype(int) - picture(32, 32)
    assert np.abs(difference).mean() < 3


def test_a_broken_file_is_named(tmp_path):
    picture(64, 64).save(tmp_path / "whole.png")
    picture(64, 64).save(tmp_path / "whole.jpg")
    whole = {name: (tmp_path / name).read_bytes() for name in ("whole.png", "whole.jpg")}
    broken = {
        "cut.png": whole["whole.png"][:200],
        "cut.jpg": whole["whole.jpg"][: len(whole["whole.jpg"]) // 2],
        "header.png": whole["whole.png"][:12] + b"\0" * 40,
        "text.jpg": b"<html>not found</html>",
        "empty.png": b"",
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is not a readable image"):
            decode_image(tmp_path / name, (8, 8))
    with pytest.raises(ValueError, match="nowhere.png is not a readable image"):
        decode_image(tmp_path / "nowhere.png", (8, 8))


def test_deep_pixels_and_wrong_options_are_refused(tmp_path):
    Image.fromarray(np.arange(16, dtype=np.uint16).reshape(4, 4) * 4000).save(tmp_path / "deep.png")
    picture(4, 4).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="deep.png has more than 8 bits"):
        decode_image(tmp_path / "deep.png", (4, 4), 1)
    with pytest.raises(ValueError, match="`channels` to be 1 .* or 3 .* but got 4"):
        decode_image(tmp_path / "a.png", (4, 4), 4)
    with pytest.raises(ValueError, match="`zoom`"):
        decode_image(tmp_path / "a.png", (4, 4), 3, zoom=0.9)


def test_files_are_fetched_in_the_order_asked_for(tmp_path):
    names = [f"pörträt {i}.png" for i in range(5)]
    for i, name in enumerate(names):
        Image.fromarray(np.full((4, 4), 10 * i, np.uint8)).save(tmp_path / name)
    files = ImageFiles(tmp_path, names, torch.tensor([0, 1, 2, 0, 1]), (2, 2), channels=1)
    for source in (files, pickle.loads(pickle.dumps(files))):
        (x,), y = source.fetch(torch.tensor([3, 0, 3]))
        assert x.shape == (3, 1, 2, 2)
        assert x[:, 0, 0, 0].tolist() == [30, 0, 30]
        assert y.tolist() == [0, 0, 0]
    assert files.fetch(torch.tensor([], dtype=torch.int64))[0][0].shape == (0, 1, 2, 2)
    assert find_images(tmp_path) == sorted(names)
    with pytest.raises(ValueError, match="4 and 3"):
        ImageFiles(tmp_path, names[:4], torch.zeros(3), (2, 2))


# ---------------------------------------------------------------------- folders of classes


def write(root, classes, side=8, first=0):
    """Write grey squares: class number times 50, plus the number of the image and of the folder."""
    for number, (name, count) in enumerate(classes.items()):
        (root / name).mkdir(parents=True)
        for i in range(count):
            value = np.full((side, side), 50 * number + i + first, np.uint8)
            Image.fromarray(value).save(root / name / f"{i:02}.png")


def values(source):
    (x,), y = source.fetch(torch.arange(len(source)))
    return x[:, 0, 0, 0].tolist(), y.tolist()


def pairs(source):
    return sorted(zip(*values(source), strict=True))


def test_a_folder_for_each_part(tmp_path):
    classes = {"ant": 3, "bee": 2}
    write(tmp_path / "my/train", classes)
    write(tmp_path / "my/val", classes, first=10)
    write(tmp_path / "my/test", {"ant": 1}, first=20)
    data = load_data("image_folder", tmp_path, path="my", size=[4, 6], channels=1, augment=False)
    assert pairs(data.train) == [(0, 0), (1, 0), (2, 0), (50, 1), (51, 1)]
    assert pairs(data.validation) == [(10, 0), (11, 0), (12, 0), (60, 1), (61, 1)]
    assert pairs(data.test) == [(20, 0)]
    assert data.task.classes == ("ant", "bee")
    assert data.task.input_shape == (1, 4, 6)
    (x,), _ = data.test.fetch(torch.tensor([0]))
    torch.testing.assert_close(data.preparation(x)[0], torch.full((1, 1, 4, 6), 20 / 127.5 - 1))


@pytest.mark.parametrize("name", ["valid", "validation"])
def test_other_names_of_validation_and_no_test(name, tmp_path):
    write(tmp_path / "train", {"ant": 2, "bee": 2})
    write(tmp_path / name, {"ant": 0, "bee": 1}, first=7)
    data = load_data("image_folder", path=str(tmp_path), size=4)
    assert pairs(data.validation) == [(57, 1)]
    assert data.test is None
    assert len(data.train) == 4


def test_one_folder_is_split_by_the_seed(tmp_path):
    write(tmp_path, {"ant": 12, "bee": 8})

    def parts(seed, **options):
        data = load_data("image_folder", path=str(tmp_path), size=4, seed=seed, validation=0.25, test=3, **options)
        return [values(part) for part in (data.train, data.validation, data.test)]

    first = parts(0)
    assert [len(part[0]) for part in first] == [12, 5, 3]
    together = sorted(value for part in first for value in part[0])
    assert together == [*range(12), *range(50, 58)]
    for pixels, labels in first:
        assert labels == [int(value >= 50) for value in pixels]
    assert parts(0) == first == parts(0, augment=False)
    assert parts(1) != first


def test_validation_is_split_off_where_only_training_has_a_folder(tmp_path):
    write(tmp_path / "train", {"ant": 5, "bee": 5})
    data = load_data("image_folder", path=str(tmp_path), size=4)
    assert (len(data.train), len(data.validation), data.test) == (9, 1, None)
    assert load_data("image_folder", path=str(tmp_path), size=4, validation=0).validation is None


def test_the_first_examples_of_each_part_are_of_many_classes(tmp_path):
    for part in ("train", "val", "test"):
        write(tmp_path / part, dict.fromkeys("abcd", 10))
    data = load_data("image_folder", path=str(tmp_path), size=4).limited(train=12, evaluation=12)
    for part in (data.train, data.validation, data.test):
        assert set(values(part)[1]) == {0, 1, 2, 3}


def test_a_class_may_be_called_train(tmp_path):
    write(tmp_path, {"bus": 4, "train": 6})
    data = load_data("image_folder", path=str(tmp_path), size=4, validation=0, test=0)
    assert data.task.classes == ("bus", "train")
    assert len(data.train) == 10


def test_augmented_training_sees_the_whole_and_evaluation_the_centre(tmp_path):
    write(tmp_path, {"ant": 4, "bee": 4}, side=64)
    data = load_data("image_folder", path=str(tmp_path), size=28, zoom=8 / 7, least_area=0.5)
    (x,), _ = data.train.fetch(torch.tensor([0, 1]))
    assert x.shape == (2, 3, 32, 32)
    assert data.augmentation == ResizedCropFlip((28, 28), 0.5)
    (y,) = data.augmentation((x,), Generator().manual_seed(0))
    assert y.shape[2:] == data.validation.fetch(torch.tensor([0]))[0][0].shape[2:] == (28, 28)
    assert data.preparation.mean == [0.485, 0.456, 0.406]
    assert data.preparation.spec()["zoom"] == 8 / 7
    plain = load_data("image_folder", path=str(tmp_path), size=28, augment=False)
    assert plain.train.fetch(torch.tensor([0]))[0][0].shape == (1, 3, 28, 28)


def test_prediction_reads_what_evaluation_saw(tmp_path):
    for name in ("train/ant", "test/ant"):
        (tmp_path / name).mkdir(parents=True)
        picture(40, 60).save(tmp_path / name / "a.jpg")
        picture(50, 30, seed=4).save(tmp_path / name / "b.jpg")
    data = load_data("image_folder", path=str(tmp_path), size=28, validation=0)
    (seen,), _ = data.test.source.fetch(torch.arange(2))
    (read,), names = data.preparation.read(tmp_path / "test")
    assert names == ["ant/a.jpg", "ant/b.jpg"]
    assert torch.equal(seen, read)


def test_what_is_wrong_with_a_folder_is_said(tmp_path):
    with pytest.raises(MissingData, match="no folder nowhere.*--data-dir or SLIMBAYES_DATA"):
        load_data("image_folder", tmp_path, path="nowhere")
    with pytest.raises(ValueError, match="no images in .*a folder of them for each class"):
        load_data("image_folder", path=str(tmp_path))
    write(tmp_path / "train", {"ant": 2})
    write(tmp_path / "val", {"wasp": 2})
    with pytest.raises(ValueError, match="val has the folder wasp, which is no class"):
        load_data("image_folder", path=str(tmp_path))
    (tmp_path / "val/wasp").rename(tmp_path / "val/ant")
    for option, value in (("size", 0), ("zoom", 0.5), ("channels", 4), ("least_area", 2.0), ("normalise", "imagnet")):
        with pytest.raises(ValueError, match=f"`{option}`"):
            load_data("image_folder", path=str(tmp_path), **{option: value})


# ---------------------------------------------------------------------- ImageNet


def write_imagenet(root):
    for part, count in (("train", 5), ("val", 2)):
        for number, wnid in enumerate(("n02", "n01")):
            (root / part / wnid).mkdir(parents=True)
            for i in range(count):
                picture(320 + 80 * i, 320, seed=number).save(root / part / wnid / f"{wnid}_{i}.JPEG")


@pytest.mark.parametrize("sub", ["imagenet", "ILSVRC2012", "imagenet/ILSVRC/Data/CLS-LOC", "."])
def test_imagenet_in_its_usual_layout(sub, tmp_path):
    write_imagenet(tmp_path / sub)
    data = load_data("imagenet", tmp_path, validation=3)
    assert (len(data.train), len(data.validation), len(data.test)) == (7, 3, 4)
    assert data.task.classes == ("n01", "n02")
    assert data.task.input_shape == (3, 224, 224)
    (x,), y = data.test.source.fetch(torch.tensor([0, 3]))
    assert sorted(data.test.rows.tolist()) == [0, 1, 2, 3]
    assert y.tolist() == [0, 1]
    for row, (wnid, name) in enumerate((("n01", "n01_0"), ("n02", "n02_1"))):
        with Image.open(tmp_path / sub / "val" / wnid / f"{name}.JPEG") as image:
            expected = resized_then_cropped(image, 256, 224)
        difference = x[row].permute(1, 2, 0).numpy().astype(int) - expected
        assert np.abs(difference).max() <= 1
    assert data.train.fetch(torch.tensor([0]))[0][0].shape == (1, 3, 256, 256)
    assert data.augmentation == ResizedCropFlip((224, 224))


def test_missing_imagenet_says_where_to_register(tmp_path):
    (tmp_path / "imagenet/train/n01").mkdir(parents=True)
    (tmp_path / "imagenet/val").mkdir()  # validation images that were not sorted into classes
    with pytest.raises(MissingData) as error:
        load_data("imagenet", tmp_path)
    for word in (str(tmp_path), "a folder for each class", "register", "image-net.org", "--data-dir", "SLIMBAYES_DATA"):
        assert word in str(error.value)


def squares(folder, sizes):
    """Write random images of these heights and widths, in two classes."""
    random = np.random.default_rng(0)
    for number, (height, width) in enumerate(sizes):
        place = folder / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (height, width, 3), np.uint8)).save(place / f"{number}.png")


def test_images_keep_their_own_size(tmp_path):
    squares(tmp_path, [(32, 24)] * 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = load_data("image_folder", path=str(tmp_path), augment=False, normalise="unit", validation=0, test=0)
    assert data.task.input_shape == (3, 32, 24)
    inputs, _ = data.train.fetch(torch.arange(1))
    original = np.array(Image.open(data.train.source.path(int(data.train.rows[0]))))
    np.testing.assert_array_equal(inputs[0][0], original.transpose(2, 0, 1))  # neither resized nor cropped


def test_of_several_sizes_the_most_common_one_is_taken_and_said(tmp_path):
    squares(tmp_path, [(32, 24)] * 7 + [(48, 48)] * 5)
    with pytest.warns(UserWarning, match=r"2 sizes.*height 32 and width 24, which 7 of 12 have; the option `size`"):
        data = load_data("image_folder", path=str(tmp_path))
    assert data.task.input_shape == (3, 32, 24)
    assert load_data("image_folder", path=str(tmp_path), size=16).task.input_shape == (3, 16, 16)


def test_training_images_before_their_crop_are_prepared_as_evaluation_shows_them(tmp_path):
    squares(tmp_path, [(32, 32)] * 12)
    options = {"path": str(tmp_path), "size": 28, "validation": 0, "test": 0}
    data = load_data("image_folder", **options)
    plain = load_data("image_folder", augment=False, **options)
    (found,), (expected,) = (one.preparation(*one.train.fetch(torch.arange(4))[0]) for one in (data, plain))
    assert found.shape == expected.shape == (4, 3, 28, 28)
    assert torch.equal(found, expected)  # 32 = 28 * 8/7: both are the centre of the image as it is
