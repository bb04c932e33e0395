"""Out-of-distribution sets: what becomes of images against pillow, of marginals against sorted columns."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from slimbayes.data._columns import Category, Number, spec_of
from slimbayes.data.dataset import DataSet, Examples, Task
from slimbayes.data.events import EventExamples, Records, Scaling
from slimbayes.data.folders import MissingData
from slimbayes.data.images import Images
from slimbayes.data.mimic import MimicEvents
from slimbayes.data.physionet import PhysionetHourly
from slimbayes.data.registry import load_data
from slimbayes.data.table import Table
from slimbayes.data.text import Text
from slimbayes.evaluation._ood_images import Photos, fitted
from slimbayes.evaluation.ood_sets import default_ood, ood_condition, ood_names

FOLDER = os.environ.get("SLIMBAYES_DATA")


def image_data(name="cifar10", shape=(3, 32, 32), count=30):
    examples = Examples((torch.zeros(count, *shape, dtype=torch.uint8),), torch.zeros(count, dtype=torch.int64))
    preparation = Images([0.5] * shape[0], [0.25] * shape[0], shape[1:])
    return DataSet(name, examples, None, examples, Task("categorical", 10, shape), preparation)


def text_data(count=400, length=30, vocabulary=50):
    random = np.random.default_rng(0)
    tokens = np.zeros((count, length), np.int64)
    for row, words in zip(tokens, random.integers(0, length, count), strict=True):
        row[length - words - 1 :] = [1, *np.minimum(random.geometric(0.2, words) + 3, vocabulary - 1)]
    examples = Examples((torch.from_numpy(tokens),), torch.ones(count))
    preparation = Text(" ".join(map(str, range(vocabulary))), vocabulary, length)
    return DataSet(
        "imdb", examples, None, examples, Task("bernoulli", 1, (length,), vocabulary=vocabulary), preparation
    )


def everything(condition):
    return condition.fetch(torch.arange(len(condition)))


# ---------------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("before", "shape"), [((40, 40), (1, 28, 28)), ((28, 28), (3, 32, 32)), ((30, 50), (3, 20, 20))]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_fitted_as_pillow_does(before, shape, channels):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (*before, channels), dtype=np.uint8)
    image = Image.fromarray(pixels.squeeze()).convert("L" if shape[0] == 1 else "RGB")
    left = (before[1] - before[0]) // 2
    box = (left, 0, left + before[0], before[0])
    # As floats: between two passes over bytes pillow would clip what shoots over.
    bands = [band.convert("F").crop(box).resize(shape[:0:-1], Image.Resampling.BICUBIC) for band in image.split()]
    expected = torch.from_numpy(np.stack(bands)).clamp(0, 255)
    found = fitted(torch.from_numpy(pixels).permute(2, 0, 1).unsqueeze(0), shape)
    assert found.dtype == torch.uint8
    assert (found[0] - expected).abs().max() < 1.01  # half a level for grey, and half for the result
    assert torch.equal(fitted(found, shape), found)


def test_another_set_gets_the_runs_own_preparation():
    condition = ood_condition("digits", image_data(shape=(3, 16, 16)), limit=40)
    (x,), y = everything(condition)
    digits = load_data("digits").test.inputs[0][:40]
    size, bicubic = (16, 16), Image.Resampling.BICUBIC
    big = torch.from_numpy(np.stack([Image.fromarray(one.numpy()[0]).resize(size, bicubic) for one in digits]))
    expected = (big.clamp(0, 1).unsqueeze(1).expand(-1, 3, -1, -1) - 0.5) / 0.25
    torch.testing.assert_close(x, expected, atol=0.51 / 255 / 0.25, rtol=0)
    assert (condition.name, condition.severity, len(condition)) == ("digits", 0, 40)
    assert y.dtype == torch.int64
    assert not y.any()


def test_photos_are_patches_of_the_photographs():
    sklearn = pytest.importorskip("sklearn.datasets")
    photographs = torch.from_numpy(np.stack(sklearn.load_sample_images().images)).permute(0, 3, 1, 2)
    (patches,), _ = Photos(40, (3, 8, 8), seed=1).fetch(torch.arange(40))
    # A patch is somewhere: its mean is about that of 32 x 32 pixels.
    sums = torch.nn.functional.pad(photographs.double(), (1, 0, 1, 0)).cumsum(2).cumsum(3)
    sums = sums[:, :, 32:] - sums[:, :, :-32]
    means = (sums[..., 32:] - sums[..., :-32]).flatten(2).movedim(1, 2).flatten(0, 1) / 32**2
    for patch in patches:
        assert (means - patch.double().mean((1, 2))).abs().amax(1).min() < 2
    assert len(patches.flatten(1).unique(dim=0)) == 40
    assert patches.float().std((1, 2, 3)).median() > 10  # not only sky


@pytest.mark.parametrize("name", ["photos", "noise", "digits"])
def test_small_float_images_stay_on_their_scale(name):
    data = load_data("digits")
    if name == "digits":
        with pytest.raises(ValueError, match="but got 'digits'"):
            ood_condition(name, data)
        return
    (x,), y = everything(ood_condition(name, data, seed=2))
    assert x.shape == (500, 1, 8, 8)
    assert x.dtype == torch.float32
    assert 0 <= x.min() < x.max() <= 1
    assert y.shape == (500,)


def test_noise_images_are_uniform():
    condition = ood_condition("noise", image_data(shape=(1, 28, 28)))
    (x,), _ = everything(condition)
    levels = ((x * 0.25 + 0.5) * 255).round().long()
    assert stats.chisquare(levels.flatten().bincount(minlength=256).numpy()).pvalue > 0.001


@pytest.mark.parametrize("name", ["noise", "photos", "digits"])
def test_an_image_is_the_same_in_any_block(name):
    condition = ood_condition(name, image_data())
    rows = torch.tensor([17, 4])
    assert torch.equal(condition.fetch(rows)[0][0], everything(condition)[0][0][rows])


def test_a_folder_of_images(tmp_path):
    (tmp_path / "others" / "deep").mkdir(parents=True)
    for number in range(6):
        Image.new("RGB", (64, 48), (40 * number, 0, 0)).save(tmp_path / "others" / "deep" / f"{number}.png")
    for name in (str(tmp_path / "others"), "others"):
        condition = ood_condition(name, image_data(), folder=tmp_path)
        (x,), y = everything(condition)
        assert sorted(((x[:, 0, 0, 0] * 0.25 + 0.5) * 255).round().tolist()) == [0, 40, 80, 120, 160, 200]
        assert y.shape == (6,)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="Found no images in"):
        ood_condition("empty", image_data(), folder=tmp_path)


def test_names_and_defaults_of_images(tmp_path):
    assert default_ood(image_data("cifar10"), tmp_path) == ["noise"]
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (tmp_path / "fashion-mnist").mkdir(exist_ok=True)
            (tmp_path / "fashion-mnist" / f"{part}-{kind}-ubyte.gz").touch()
    assert default_ood(image_data("mnist", (1, 28, 28)), tmp_path) == ["fashion_mnist", "noise"]
    assert default_ood(image_data("image_folder", (3, 64, 64)), tmp_path) == ["photos", "noise"]
    assert default_ood(image_data("imagenet", (3, 224, 224)), tmp_path) == ["noise"]
    assert "cifar10" not in ood_names(image_data("cifar10"))
    with pytest.raises(MissingData, match="data get cifar100"):
        ood_condition("cifar100", image_data("cifar10"), folder=tmp_path)
    with pytest.raises(ValueError, match="Did you mean 'cifar100'"):
        ood_condition("cifar-100", image_data("cifar10"), folder=tmp_path)
    with pytest.raises(ValueError, match="but got 'photos'"):
        ood_condition("photos", image_data("imagenet", (3, 224, 224)), folder=tmp_path)


@pytest.mark.skipif(not FOLDER, reason="needs the real files: set SLIMBAYES_DATA")
def test_fashion_for_a_network_of_cifar():
    condition = ood_condition("fashion_mnist", image_data(), folder=FOLDER, limit=100)
    (x,), _ = everything(condition)
    assert x.shape == (100, 3, 32, 32)
    assert torch.equal(x[:, 0], x[:, 2])
    mean = load_data("fashion_mnist", FOLDER).test.inputs[0][:100].float().mean() / 255
    assert (x.mean() * 0.25 + 0.5).item() == pytest.approx(mean.item(), abs=0.01)


# ---------------------------------------------------------------------- tables, series, texts


def test_permuted_columns_have_the_same_marginals_and_no_correlation():
    data = load_data("breast_cancer")
    condition = ood_condition("permuted", data)
    (x,), y = everything(condition)
    clean = data.preparation(*data.test.inputs)[0]
    assert torch.equal(x.sort(0).values, clean.sort(0).values)
    before, after = (np.corrcoef(one.T)[np.triu_indices(30, 1)] for one in (clean, x))
    assert np.square(after).mean() < 3 / len(x) < np.square(before).mean()  # 1 / n is expected of independent columns
    assert not y.any()


def test_permuted_rows_do_not_depend_on_the_block_and_only_blocks_are_fetched():
    data = load_data("wine")
    fetched = []

    class Counted(Examples):
        def fetch(self, rows):
            fetched.append(len(rows))
            return super().fetch(rows)

    test = Counted(data.test.inputs, data.test.targets)
    data = DataSet("wine", data.train, None, test, data.task, data.preparation)
    condition = ood_condition("permuted", data)
    (whole,), _ = everything(condition)
    fetched.clear()
    rows = torch.tensor([9, 1, 20])
    assert torch.equal(condition.fetch(rows)[0][0], whole[rows])
    assert max(fetched) == 3


def test_limited_examples_are_permuted_among_themselves():
    data = load_data("iris")
    (x,), _ = everything(ood_condition("permuted", data, limit=10))
    clean = data.preparation(*data.test.fetch(torch.arange(10))[0])[0]
    assert torch.equal(x.sort(0).values, clean.sort(0).values)


def table(numbers=True):
    random = np.random.default_rng(0)
    columns = [Category("pet", ["cat", "dog"])]
    parts = [columns[0].encode(random.choice(["cat", "dog", "owl"], 300))]
    if numbers:
        columns.append(Number("age", "number", 0.0, 1.0, 0.0, flagged=True))
        parts.append(columns[1].encode(np.where(random.random(300) < 0.3, np.nan, random.exponential(size=300))))
    examples = Examples((torch.from_numpy(np.concatenate(parts, 1)),), torch.zeros(300))
    preparation = Table([spec_of(column) for column in columns])
    return DataSet("table", examples, None, examples, Task("gaussian", 1, (preparation.width,)), preparation)


def test_categories_and_flags_stay_together():
    (x,), _ = everything(ood_condition("permuted", table()))
    assert (x[:, :3].sum(1) == 1).all()
    assert (x[x[:, 4] == 1, 3] == 0).all()
    (x,), _ = everything(ood_condition("noise", table()))
    before = table().test.inputs[0]
    assert torch.equal(x[:, [0, 1, 2, 4]], before[:, [0, 1, 2, 4]])
    missing = x[:, 4] == 1
    assert (x[missing, 3] == 0).all()
    assert stats.kstest(x[~missing, 3].numpy(), "norm").pvalue > 0.001
    assert ood_names(table()) == ["permuted", "noise"]
    assert ood_names(table(numbers=False)) == ["permuted"]


def test_noise_of_columns_is_standard_normal():
    (x,), _ = everything(ood_condition("noise", load_data("breast_cancer")))
    assert stats.kstest(x.flatten().numpy(), "norm").pvalue > 0.001


def test_words_are_drawn_by_their_frequency():
    data = text_data()
    (before,) = data.test.inputs
    (tokens,), y = everything(ood_condition("permuted", data))
    assert torch.equal(tokens > 1, before > 1)
    assert torch.equal(tokens[tokens < 2], before[before < 2])
    expected, found = (one[one > 1].bincount(minlength=50)[4:20].double() for one in (before, tokens))
    assert stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > 0.001
    assert (tokens != before)[before > 1].float().mean() > 0.5
    assert y.dtype == torch.float32
    assert not y.any()


def test_noisy_texts_have_any_words():
    data = text_data()
    (tokens,), _ = everything(ood_condition("noise", data))
    words = tokens[data.test.inputs[0] > 1]
    assert stats.chisquare(words.bincount(minlength=50)[4:].numpy()).pvalue > 0.001
    assert words.min() == 4


def test_targets_have_the_form_of_the_data():
    examples = Examples((torch.randn(9, 3),), torch.randn(9, 2))
    data = DataSet("arrays", examples, None, examples, Task("gaussian", 2, (3,)))
    _, y = everything(ood_condition("permuted", data))
    assert y.shape == (9, 2)
    assert not y.any()


def test_unknown_inputs_have_no_sets():
    tokens = Examples((torch.zeros(3, 4, dtype=torch.int64),), torch.zeros(3))
    data = DataSet("arrays", tokens, None, tokens, Task("gaussian", 1, (4,)))
    assert ood_names(data) == default_ood(data) == []
    with pytest.raises(ValueError, match="`name`"):
        ood_condition("noise", data)


def test_series_of_patients_are_permuted_by_variable():
    hours = torch.randn(60, 48, 37, generator=torch.Generator().manual_seed(0))
    hours[hours < 0.5] = torch.nan
    scalings = [Scaling([-9.0] * count, [9.0] * count, [0.0] * count, [1.0] * count).parts for count in (37, 8)]
    examples = Examples((hours, torch.randn(60, 8)), torch.zeros(60))
    data = DataSet("x", examples, None, examples, Task("bernoulli", 1, (48, 82)), PhysionetHourly(*scalings))
    assert default_ood(data) == ["permuted", "noise"]
    (clean,) = data.preparation(*examples.inputs)
    (x,), _ = everything(ood_condition("permuted", data))
    for columns in ([3, 37 + 3], [36, 73], list(range(74, 82))):  # whole series, each once
        before, after = (one[..., columns].flatten(1).unique(dim=0) for one in (clean, x))
        assert torch.equal(before, after)
    assert not torch.equal(x[..., 3].argsort(0), x[..., 4].argsort(0))
    (x,), _ = everything(ood_condition("noise", data))
    assert torch.equal(x[..., 37:], clean[..., 37:])
    assert stats.kstest(x[..., :37][clean[..., 37:74] > 0].numpy(), "norm").pvalue > 0.001


def test_noisy_events_are_of_any_variable():
    records = Records.of([300, 0, 700], np.linspace(0, 9, 1000), np.ones(1000), np.ones(1000), np.zeros((3, 1)))
    examples = EventExamples(records, torch.zeros(3))
    scalings = [Scaling([-9.0] * count, [9.0] * count, [0.0] * count, [1.0] * count).parts for count in (2, 1)]
    preparation = MimicEvents(["a", "b", "drug"], *scalings, 24.0, ["labevents"], 900)
    data = DataSet("mimic3", examples, None, examples, Task("bernoulli", 1, (700,)), preparation)
    assert default_ood(data) == ["noise"]
    times, variables, values, _ = everything(ood_condition("noise", data))[0]
    assert torch.equal(times, examples.fetch(torch.arange(3))[0][0])
    assert torch.equal((variables > 0).sum(1), torch.tensor([300, 0, 700]))
    assert stats.chisquare(variables[variables > 0].bincount(minlength=4)[1:].numpy()).pvalue > 0.001
    assert stats.kstest(values[(variables == 1) | (variables == 2)].numpy(), "norm").pvalue > 0.001
    assert not values[(variables == 0) | (variables == 3)].any()
