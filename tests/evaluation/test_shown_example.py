"""What is shown of raw examples, against Pillow, Text.encode and the numbers put in."""

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from slimbayes.data import Task, load_data
from slimbayes.data._physionet_records import VARIABLES
from slimbayes.data.images import Images
from slimbayes.data.physionet import PhysionetEvents, PhysionetHourly
from slimbayes.data.preparation import Arrays
from slimbayes.data.table import Table
from slimbayes.data.text import Text, words_of
from slimbayes.evaluation._shown_example import named_values, picture, png, shown, text, values


def decoded(uri: str | None) -> np.ndarray:
    assert uri is not None
    head, _, content = uri.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 20), (1, 1, 1), (3, 96, 96)])
def test_pillow_reads_the_same_pixels(shape):
    image = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = image[0].numpy() if shape[0] == 1 else image.permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(decoded(picture((image,))), expected)


def test_smooth_pictures_are_stored_by_differences():
    smooth = (
        np.repeat(np.arange(200, dtype=np.uint8)[:, None, None], 50, axis=1) + np.arange(50, dtype=np.uint8)[:, None]
    )
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(smooth)))), smooth[..., 0])
    assert len(png(smooth)) < 400


def test_digits_of_scikit_learn_are_pictures_of_their_grey_levels():
    data = load_data("digits")
    (images,), _ = data.train.fetch(torch.tensor([3]))
    expected = np.rint(images[0, 0].numpy() * 255).astype(np.uint8)
    one = shown((images[0],), data.task, data.preparation)
    np.testing.assert_array_equal(decoded(one["picture"]), expected)
    assert one["text"] is one["values"] is None


def test_real_values_are_stretched_and_large_images_averaged():
    np.testing.assert_array_equal(decoded(picture((torch.tensor([[[-1.0, 0.0, 1.0]]]),))), [[0, 128, 255]])
    blocks = torch.tensor([[0, 40], [80, 200]], dtype=torch.uint8).repeat_interleave(96, 0).repeat_interleave(96, 1)
    small = decoded(picture((blocks[None],)))
    assert small.shape == (96, 96)
    np.testing.assert_array_equal(small[::48, ::48], [[0, 40], [80, 200]])
    assert decoded(picture((torch.full((1, 2, 2), 7.0),))).max() == 0  # constant: nothing to stretch


@pytest.mark.parametrize(
    "raw",
    [(torch.zeros(4),), (torch.zeros(2, 5, 5),), (torch.full((1, 2, 2), math.nan),), (torch.full((1, 2, 2), 300),)],
)
def test_what_is_no_image_has_no_picture(raw):
    assert picture(raw) is None


def test_text_is_what_was_encoded():
    preparation = Text(words="film the good bad was rare1 rare2", vocabulary=9, length=6)
    encode = lambda words: (preparation.encode([words_of(words)])[0],)  # noqa: E731
    assert text(encode("The film was bad"), preparation) == "the film was bad"
    assert text(encode("good rare2"), preparation) == "good [rare]"
    assert text(encode("bad film the film was good film"), preparation) == "... film the film was good film"
    assert text(encode(""), preparation) == ""
    assert shown(encode(""), Task("bernoulli", 1, (6,), vocabulary=9), preparation)["values"] is None
    assert text((torch.tensor([1, 2]),), Arrays()) is None


def test_tables_are_decoded(tmp_path):
    specs = [
        {"kind": "categorical", "name": "pet", "categories": ["cat", "dog"]},
        {"kind": "number", "name": "age", "mean": 40.0, "std": 8.0, "fill": 40.0, "flagged": True},
        {"kind": "date", "name": "born", "mean": 10_000.0, "std": 64.0, "fill": 10_000.0, "flagged": False},
        {"kind": "boolean", "name": "ill", "mean": 0.0, "std": 1.0, "fill": 0.25, "flagged": False},
    ]
    file = tmp_path / "pets.csv"
    file.write_text("pet,age,born,ill\ndog,44,1999-12-31,true\nowl,,2001-02-03,false\n")
    pytest.importorskip("pyarrow")
    table = Table(specs)
    (features,), _ = table.read(file)
    assert named_values((features[0],), table) == {"pet": "dog", "age": 44.0, "born": "1999-12-31", "ill": "true"}
    assert named_values((features[1],), table) == {
        **{"pet": "other or missing", "age": None, "born": "2001-02-03", "ill": "false"}
    }


def scales(count: int) -> dict[str, list[float]]:
    return {"low": [0.0] * count, "high": [9.0] * count, "mean": [1.0] * count, "std": [2.0] * count}


def test_records_show_admission_and_the_last_observations():
    context = torch.tensor([54.0, 1.0, math.nan, 80.0, 1, 0, 0, 0])
    events = PhysionetEvents(VARIABLES, scales(37), scales(8))
    raw = (torch.tensor([0.5, 1, 2, 0]), torch.tensor([15, 12, 15, 0]), torch.tensor([70.0, 5.5, 90.0, 0.0]), context)
    expected = {"Age": 54.0, "Gender": 1.0, "Height": None, "Weight": 80.0, "HR (last)": 90.0, "Glucose (last)": 5.5}
    assert list(named_values(raw, events).items()) == list(expected.items())
    hours = torch.full((48, 37), math.nan)
    hours[3, VARIABLES.index("HR")], hours[40, VARIABLES.index("HR")] = 70.0, 90.0
    hours[5, VARIABLES.index("Glucose")] = 5.5
    assert named_values((hours, context), PhysionetHourly(scales(37), scales(8))) == expected


def test_other_inputs_are_numbered_and_few():
    assert values((torch.arange(20.0),), Arrays()) == {f"feature {i}": float(i) for i in range(12)}
    series = torch.tensor([[1.0, 2.0], [3.0, math.inf]])
    assert values((series,), Arrays()) == {"feature 0 (last)": 3.0, "feature 1 (last)": None}
    assert values((torch.tensor([7]), torch.tensor(0.5)), Arrays()) == {
        **{"input 0, token 0": 7, "input 1, feature 0": 0.5}
    }
    assert values((torch.zeros(2, 3, 4, 5),), Arrays()) is None


def test_a_raw_image_is_shown_whatever_the_normalisation():
    image = torch.full((1, 2, 2), 9, dtype=torch.uint8)
    one = shown((image,), Task("categorical", 2, (1, 2, 2)), Images(mean=[0.5], std=[0.1], size=[2, 2]))
    assert decoded(one["picture"]).tolist() == [[9, 9], [9, 9]]
