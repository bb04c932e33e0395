"""Out-of-distribution inputs: examples that fit a network's input, but not what it was trained on."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_choice, check_count
from slimbayes.data._image_files import ImageFiles, find_images
from slimbayes.data.dataset import Batch, DataSet, ExampleSource, Rows
from slimbayes.data.fingerprint import digest_of
from slimbayes.data.folders import data_folder
from slimbayes.data.registry import load_data
from slimbayes.data.sources import SOURCES
from slimbayes.evaluation._ood_images import FittedImages, NoiseImages, Photos
from slimbayes.evaluation.conditions import Condition, evaluated_part
from slimbayes.shifts._choose import layout_of
from slimbayes.shifts._draws import Draws
from slimbayes.shifts.shift import Inputs, Layout
from slimbayes.shifts.tokens import Tokens, is_word

__all__ = ["default_ood", "ood_condition", "ood_files", "ood_names"]

_IMAGE_SETS = ("mnist", "fashion_mnist", "cifar10", "cifar100", "digits", "imagenet")
#: The set that papers usually compare each one with.
_PARTNERS = {
    "mnist": "fashion_mnist",
    "fashion_mnist": "mnist",
    "cifar10": "cifar100",
    "cifar100": "cifar10",
    "digits": "photos",
}
_BLOCK = 4096


def ood_condition(
    name: str, data: DataSet, *, folder: str | os.PathLike[str] | None = None, seed: int = 0, limit: int | None = None
) -> Condition:
    """Return out-of-distribution examples for a network that was trained on a data set; their targets are 0.

    Args:
        name: For images: another set of images, whose test part is resized and made grey or coloured as needed;
            ``"photos"``, patches of scikit-learn's two photographs; ``"noise"``, uniform pixels; or a folder with image
            files. For tables and series: ``"permuted"``, the test examples with each feature taken from another
            example, so that only the dependence between features is lost; ``"noise"``, standard normal
            values. For texts: ``"permuted"``, words drawn by their frequency; ``"noise"``, any words. For events:
            ``"noise"``, any variables with standard normal values.
        data: What the network was trained on.
        folder: The data folder.
        seed: Of random numbers.
        limit: How many examples to use at most; None for all.

    Raises:
        MissingData: The set is not there.
        ValueError: No such thing fits this data set.

    Example:
        >>> from slimbayes.data import load_data
        >>> photos = ood_condition("photos", load_data("digits"))
        >>> (images,), _ = photos.fetch(torch.arange(3))
        >>> len(photos), images.shape
        (500, torch.Size([3, 1, 8, 8]))
    """
    if limit is not None:
        check_count("limit", limit)
    part = evaluated_part(data)
    if _is_images(data):
        source = _image_source(name, data, len(part), data_folder(folder), seed)
        before = _to_unit if data.name == "digits" else None
        found = Condition(name, 0, source, data.preparation, len(source), before)
    else:
        check_choice("name", name, ood_names(data))
        layout: Any = layout_of(data)
        clean = Condition(name, 0, part, data.preparation, len(part))
        size = min(len(part), limit or len(part))
        found = _noisy(clean, layout, seed) if name == "noise" else _permuted(replace(clean, size=size), layout, seed)
    targets = part.fetch(torch.arange(1))[1]
    return replace(found, raw=_Unlabelled(found.raw, targets), size=min(len(found), limit or len(found)))


def ood_names(data: DataSet) -> list[str]:
    """Return what ``ood_condition`` can make for a data set, whether or not its files are there.

    Example:
        >>> from slimbayes.data import load_data
        >>> ood_names(load_data("iris"))
        ['permuted', 'noise']
    """
    if _is_images(data):
        photos = ["photos"] if Photos.fit(data.task.input_shape) else []
        return [*(name for name in _IMAGE_SETS if name != data.name), *photos, "noise"]
    layout = layout_of(data)
    if layout is None:
        return []
    permutable = layout.features is not None or isinstance(layout, Tokens)
    return [*(["permuted"] if permutable else []), *(["noise"] if _is_random(data, layout) else [])]


def default_ood(data: DataSet, folder: str | os.PathLike[str] | None = None) -> list[str]:
    """Return what to evaluate on unless asked otherwise: nothing has to be fetched for it.

    Args:
        data: What the network was trained on.
        folder: The data folder.

    Example:
        >>> from slimbayes.data import load_data
        >>> default_ood(load_data("digits"))
        ['photos', 'noise']
    """
    names = ood_names(data)
    if not _is_images(data):
        return names
    partner = _PARTNERS.get(data.name, "photos")
    there = partner in names and (partner not in SOURCES or SOURCES[partner].find(data_folder(folder)) is not None)
    return [partner, "noise"] if there else ["noise"]


@dataclass(frozen=True)
class _Unlabelled:
    """Examples whose targets are 0, of the shape and type of some other targets."""

    source: ExampleSource
    like: Tensor

    def __len__(self) -> int:
        return len(self.source)

    def fetch(self, rows: Tensor) -> Batch:
        inputs, _ = self.source.fetch(rows)
        return inputs, self.like.new_zeros((len(rows), *self.like.shape[1:]))


# ---------------------------------------------------------------------- images


def _is_images(data: DataSet) -> bool:
    return data.preparation.kind == "images" or data.name == "digits"


def _to_unit(inputs: Inputs, rows: Tensor) -> Inputs:
    return tuple(x.float() / 255 for x in inputs)


def _image_source(name: str, data: DataSet, count: int, folder: Path, seed: int) -> ExampleSource:
    """Return uint8 images of the shape that the network takes."""
    shape = data.task.input_shape
    if name == "noise":
        return NoiseImages(count, shape, seed)
    if name == "photos" and name in ood_names(data):
        return Photos(count, shape, seed)
    images = _folder_images(name, data, folder)
    if images is not None:
        # Files are sorted by name, which may be by class: shuffled, the first few are of any class.
        return Rows(images, Draws("order of files", seed, torch.zeros(1)).uniform(len(images))[0].argsort())
    check_choice("name", name, [*ood_names(data), "(a folder of images)"])
    other = load_data(name, folder)
    assert other.test is not None
    return FittedImages(other.test, shape)


def _folder_images(name: str, data: DataSet, folder: Path) -> ImageFiles | None:
    """Return the images of a folder of this name; None if the name is another set's."""
    images_folder = next((path for path in (Path(name).expanduser(), folder / name) if path.is_dir()), None)
    if name in ood_names(data) or name in _IMAGE_SETS or images_folder is None:
        return None
    files = find_images(images_folder)
    if not files:
        raise ValueError(f"Found no images in {images_folder}, which was named as an out-of-distribution set.")
    channels, height, width = data.task.input_shape
    return ImageFiles(images_folder, files, torch.zeros(len(files), dtype=torch.int64), (height, width), channels)


def ood_files(names: Sequence[str], data: DataSet, folder: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """Return, by name, a hash of the images of each set that is a folder, which may change; see ``fingerprint``."""
    if not _is_images(data):
        return {}
    found = {name: _folder_images(name, data, data_folder(folder)) for name in names}
    return {name: digest_of(images) for name, images in found.items() if images is not None}


# ---------------------------------------------------------------------- other inputs


def _is_random(data: DataSet, layout: Layout) -> bool:
    inputs, _ = evaluated_part(data).fetch(torch.arange(1))
    return layout.noise(data.preparation(*inputs), Draws("noise inputs", 0, torch.arange(1))) is not None


def _noisy(clean: Condition, layout: Layout, seed: int) -> Condition:
    def change(inputs: Inputs, rows: Tensor) -> Inputs:
        drawn = layout.noise(inputs, Draws("noise inputs", seed, rows))
        assert drawn is not None
        return drawn

    return replace(clean, after=change)


def _permuted(clean: Condition, layout: Any, seed: int) -> Condition:
    if layout.features is None:
        words = _Words(clean)
        return replace(clean, after=lambda inputs, rows: words.drawn(inputs[0], Draws("permuted", seed, rows)))

    def change(inputs: Inputs, rows: Tensor) -> Inputs:
        result = torch.empty_like(inputs[0])
        for feature in layout.features.unique():
            order = Draws("permuted", seed, feature.view(1)).uniform(len(clean))[0].argsort()
            (others,), _ = clean.fetch(order[rows])
            result[..., layout.features == feature] = others[..., layout.features == feature]
        return (result,)

    return replace(clean, after=change)


@dataclass(frozen=True)
class _Words:
    """How frequent each word is in some texts, counted when it is first asked for."""

    texts: Condition

    @cached_property
    def _cumulative(self) -> Tensor:
        counts = torch.zeros(0, dtype=torch.int64)
        for rows in torch.arange(len(self.texts)).split(_BLOCK):
            ((tokens,), _) = self.texts.fetch(rows)
            more = tokens[is_word(tokens)].bincount(minlength=len(counts))
            more[: len(counts)] += counts
            counts = more
        return counts.cumsum(0).double() / counts.sum()

    def drawn(self, tokens: Tensor, draws: Draws) -> Inputs:
        """Return texts of the same lengths whose words are drawn by their frequency."""
        words = torch.searchsorted(self._cumulative, draws.uniform(tokens.shape[1]), right=True)
        return (torch.where(is_word(tokens), words, tokens),)
