"""IMDB film reviews (Maas et al. 2011) from the publisher's archive, as Keras's ``imdb_lstm`` example has them."""

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from slimbayes.data.dataset import DataSet, Examples, Task
from slimbayes.data.sources import missing
from slimbayes.data.splits import split_examples, split_rows
from slimbayes.data.text import Text, rank_words, words_of

__all__ = ["load_imdb"]

_ARCHIVE = "aclImdb_v1.tar.gz"
#: Keras shuffles with this seed: first the training texts, then with the same generator the test texts.
_KERAS_SEED = 113


def load_imdb(folder: Path, *, vocabulary: int = 20_000, length: int = 80, validation: int | float = 5_000) -> DataSet:
    """Load the reviews in Keras's order, which was found to be a shuffle of the sorted file names.

    Ranks of words are recounted from the texts: those of Keras's own download differ slightly among rare words.

    Args:
        folder: Holds ``imdb/aclImdb_v1.tar.gz``, or it without the sub-folder, or either unpacked to ``aclImdb``.
        vocabulary: Number of different tokens; rarer words become one token.
        length: Tokens of a review: the last ones, with padding before shorter reviews.
        validation: The last training reviews, by number or fraction, are set aside; 0 for none.

    Raises:
        MissingData: The files are not there.
        ValueError: The archive is broken or incomplete, or an argument makes no sense.

    Example:
        >>> load_imdb(Path("no-such-folder"))
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no aclImdb_v1.tar.gz or aclImdb ...
    """
    Text("", vocabulary, length)  # raises for wrong arguments before a long read
    place = _find(folder)
    parts = _read(place)
    text = Text(" ".join(rank_words(words_of(review) for _, review in parts["train"])), vocabulary, length)
    generator = np.random.RandomState(_KERAS_SEED)
    inputs, targets = {}, {}
    for split in ("train", "test"):
        order = np.arange(len(parts[split]))
        generator.shuffle(order)
        shuffled = [parts[split][row] for row in order]
        inputs[split] = text.encode(words_of(review) for _, review in shuffled)
        targets[split] = torch.tensor([float(positive) for positive, _ in shuffled])
    train, chosen, _ = split_examples(
        (inputs["train"],), targets["train"], split_rows(len(inputs["train"]), validation, seed=None)
    )
    task = Task("bernoulli", 1, (length,), classes=("negative", "positive"), vocabulary=vocabulary)
    return DataSet("imdb", train, chosen, Examples((inputs["test"],), targets["test"]), task, text)


def _find(folder: Path) -> Path:
    places = [base / name for base in (folder / "imdb", folder) for name in (_ARCHIVE, "aclImdb")]
    for place in (*places, folder):
        if place.is_file() or (place / "train" / "pos").is_dir():
            return place
    raise missing("imdb", f"{_ARCHIVE} or aclImdb in {folder} or its sub-folder imdb")


def _read(place: Path) -> dict[str, list[tuple[bool, str]]]:
    """Return each split's reviews and whether they are positive: these first, each side sorted by file name."""
    found: dict[str, list[tuple[bool, str, str]]] = {"train": [], "test": []}
    for path, content in _members(place) if place.is_file() else _files(place):
        split, side, name = path.parts[-3:]
        found[split].append((side != "pos", name, _decoded(place, path, content)))
    for split, reviews in found.items():
        if len({negative for negative, _, _ in reviews}) < 2:
            raise ValueError(f"{place} is incomplete: it lacks texts {split}/pos/*.txt or {split}/neg/*.txt.")
    return {split: [(not negative, text) for negative, _, text in sorted(reviews)] for split, reviews in found.items()}


def _wanted(path: PurePosixPath) -> bool:
    places = [(split, side) for split in ("train", "test") for side in ("pos", "neg")]
    return path.suffix == ".txt" and path.parts[-3:-1] in places


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the reviews of the archive, which is read once and in order, since it cannot be searched."""
    try:
        # Not "r|gz", which takes a cut archive for a short one.
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if _wanted(path) and (content := tar.extractfile(member)) is not None:
                    yield path, content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{archive} is truncated or damaged: {error}. Fetch it again.") from error


def _files(root: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    for path in root.glob("t*/*/*.txt"):
        if _wanted(relative := PurePosixPath(path.relative_to(root).as_posix())):
            yield relative, path.read_bytes()


def _decoded(place: Path, path: PurePosixPath, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} in {place} is not UTF-8: {error}.") from error
