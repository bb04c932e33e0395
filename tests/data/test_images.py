"""Normalisation against numbers worked out by hand, and every kind of file that predictions can be asked for."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from slimbayes.data.dataset import Examples
from slimbayes.data.images import Images, image_set, named_preparation
from slimbayes.data.preparation import get_preparation

COLOUR = Images(mean=[0.4, 0.5, 0.6], std=[0.1, 0.2, 0.4], size=[2, 3])
GREY = Images(mean=[0.5], std=[0.5], size=[2, 3])


def pixels(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_each_channel_is_normalised():
    raw = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    (x,) = COLOUR(raw)
    torch.testing.assert_close(x.flatten(), torch.tensor([(0 - 0.4) / 0.1, (0.2 - 0.5) / 0.2, (1 - 0.6) / 0.4]))
    assert x.dtype == torch.float32
    assert raw.flatten().tolist() == [0, 51, 255]


def test_symmetric_and_unit_are_exact_at_both_ends():
    ends = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    assert named_preparation("symmetric", (1, 1, 1), {})(ends)[0].flatten().tolist() == [-1, 1]
    assert named_preparation("unit", (1, 1, 1), {})(ends)[0].flatten().tolist() == [0, 1]
    assert named_preparation("mine", (1, 1, 1), {"mine": ([0.5], [0.25])})(ends)[0].flatten().tolist() == [-2, 2]


def test_the_result_does_not_depend_on_the_memory_layout():
    raw = torch.from_numpy(pixels(2, 4, 5, 3)).permute(0, 3, 1, 2)
    (x,), (y,) = COLOUR(raw), COLOUR(raw.contiguous())
    assert torch.equal(x, y)
    assert x.is_contiguous()


def test_float_images_are_not_changed_in_place():
    raw = torch.ones(1, 1, 2, 3)
    GREY(raw)
    assert (raw == 1).all()


def test_the_spec_is_json_and_rebuilds_it():
    first = Images(mean=(0.485,), std=(0.229,), size=(4, 6), zoom=8 / 7)
    again = get_preparation(json.loads(json.dumps(first.spec())))
    raw = torch.from_numpy(pixels(2, 1, 4, 6))
    assert again.spec() == first.spec()
    assert torch.equal(again(raw)[0], first(raw)[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mean": [0.5], "std": [0.5, 0.5], "size": [1, 1]}, "`std`"),
        ({"mean": [0.5], "std": [0.0], "size": [1, 1]}, "`std`"),
        ({"mean": [float("nan")], "std": [1.0], "size": [1, 1]}, "`mean`"),
        ({"mean": [0.5], "std": [0.5], "size": [1, 1, 1]}, "`size`"),
        ({"mean": [0.5], "std": [0.5], "size": [0, 1]}, "`size`"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        Images(**arguments)


def test_wrong_channels_and_names():
    with pytest.raises(ValueError, match=r"3 channels, but got shape \(2, 1, 2, 3\)"):
        COLOUR(torch.zeros(2, 1, 2, 3))
    with pytest.raises(ValueError, match="`normalise`.*Did you mean 'symmetric'"):
        named_preparation("symetric", (1, 2, 3), {})


# ---------------------------------------------------------------------- files to predict


def test_a_folder_is_read_with_its_sub_folders_in_order(tmp_path):
    images = {"b/2.png": pixels(2, 3, 3), "a.png": pixels(2, 3, 3) // 2, "b/1.BMP": pixels(2, 3, 3) // 3}
    (tmp_path / "b").mkdir()
    for name, image in images.items():
        Image.fromarray(image).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "._a.png").write_text("what a Mac leaves behind")
    inputs, names = COLOUR.read(tmp_path)
    assert names == ["a.png", "b/1.BMP", "b/2.png"]
    assert inputs[0].dtype == torch.uint8
    np.testing.assert_array_equal(inputs[0].permute(0, 2, 3, 1), np.stack([images[name] for name in names]))


def test_one_image_grey_or_colour(tmp_path):
    grey = pixels(2, 3)
    Image.fromarray(grey).save(tmp_path / "one.png")
    (x,), names = GREY.read(tmp_path / "one.png")
    assert names == ["one.png"]
    np.testing.assert_array_equal(x, grey[None, None])
    (x,), _ = COLOUR.read(tmp_path / "one.png")
    np.testing.assert_array_equal(x, np.stack([grey] * 3)[None])


def test_files_are_brought_to_the_size(tmp_path):
    Image.fromarray(np.full((40, 20), 9, np.uint8)).save(tmp_path / "tall.png")
    assert torch.equal(GREY.read(tmp_path)[0][0], torch.full((1, 1, 2, 3), 9, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("preparation", "shape", "to_nchw"),
    [
        (COLOUR, (4, 3, 2, 3), lambda x: x),
        (COLOUR, (4, 2, 3, 3), lambda x: x.transpose(0, 3, 1, 2)),
        (GREY, (4, 1, 2, 3), lambda x: x),
        (GREY, (4, 2, 3), lambda x: x[:, None]),
        (GREY, (4, 2, 3, 1), lambda x: x.transpose(0, 3, 1, 2)),
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_arrays_of_every_layout(preparation, shape, to_nchw, ending, tmp_path):
    images, path = pixels(*shape), tmp_path / f"x.{ending}"
    np.save(path, images) if ending == "npy" else np.savez(path, x=images)
    (x,), names = preparation.read(path)
    np.testing.assert_array_equal(x, to_nchw(images))
    assert names == ["0", "1", "2", "3"]
    assert preparation(x)[0].shape == x.shape


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 3, 2, 3)), ["uint8", "float", "by 255"]),
        (np.zeros((4, 3, 2, 3), np.int64), ["uint8", "int64", "Convert"]),
        (np.zeros((4, 3, 5, 5), np.uint8), ["3 x 2 x 3", "(4, 3, 5, 5)", "Resize"]),
        (np.zeros((4, 1, 2, 3), np.uint8), ["3 x 2 x 3", "(4, 1, 2, 3)"]),
        (np.zeros((4, 2, 3), np.uint8), ["3 x 2 x 3", "(4, 2, 3)"]),
    ],
)
def test_arrays_that_do_not_fit(array, words, tmp_path):
    np.save(tmp_path / "my.npy", array)
    with pytest.raises(ValueError, match="my.npy") as error:
        COLOUR.read(tmp_path / "my.npy")
    for word in words:
        assert word in str(error.value)


def test_several_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "my.npz", x0=pixels(2, 3, 2, 3), x1=pixels(2, 3, 2, 3))
    with pytest.raises(ValueError, match="one array of images.*holds 2"):
        COLOUR.read(tmp_path / "my.npz")


def test_nothing_to_read(tmp_path):
    with pytest.raises(ValueError, match=r"no images in .*\.png"):
        GREY.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere.*folder of images"):
        GREY.read(tmp_path / "nowhere")


# ---------------------------------------------------------------------- sets in memory


@pytest.mark.parametrize(("validation", "trained"), [(0, 10), (3, 7), (0.2, 8)])
def test_the_last_images_validate(validation, trained):
    train = Examples((torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1),), torch.arange(10))
    data = image_set("toy", train, train, ["a", "b"], validation, named_preparation("unit", (1, 1, 1), {}))
    assert data.train.targets.tolist() == list(range(trained))
    assert data.train.inputs[0].flatten().tolist() == list(range(trained))
    held_out = data.validation.targets.tolist() if data.validation else []
    assert held_out == list(range(trained, 10))
    assert (data.task.outputs, data.task.input_shape, data.task.classes) == (2, (1, 1, 1), ("a", "b"))


@pytest.mark.parametrize("validation", [10, -1, 1.5])
def test_a_wrong_validation_is_named(validation):
    train = Examples((torch.zeros(10, 1, 1, 1, dtype=torch.uint8),), torch.zeros(10))
    with pytest.raises(ValueError, match="`validation`"):
        image_set("toy", train, train, ["a"], validation, named_preparation("unit", (1, 1, 1), {}))
