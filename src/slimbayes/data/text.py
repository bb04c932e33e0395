"""Texts as token numbers, prepared as Keras prepares them for its IMDB example."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.data.preparation import Preparation, Raw, register_preparation

__all__ = ["OFFSET", "RARE", "START", "Text", "rank_words", "words_of"]

#: What Keras's Tokenizer takes out; the apostrophe stays.
_SEPARATORS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))

#: Padding, the start of a text, a known but rare word; the commonest word is 4, since Keras counts ranks from 1
#: and adds 3.
START, RARE, OFFSET = 1, 2, 3


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case and without punctuation.

    Example:
        >>> words_of("It's GOOD, really-<br />good!")
        ["it's", 'good', 'really', 'br', 'good']
    """
    return list(filter(None, text.lower().translate(_SEPARATORS).split(" ")))


def rank_words(texts: Iterable[Sequence[str]]) -> list[str]:
    """Return the different words of some texts, the commonest first; ties in the order of their appearance.

    Example:
        >>> rank_words([["b", "a"], ["a"]])
        ['a', 'b']
    """
    counts: Counter[str] = Counter()
    for words in texts:
        counts.update(words)
    return [word for word, _ in counts.most_common()]


@register_preparation
class Text(Preparation):
    """Numbers the words of a text, and keeps its end.

    0 is padding (before the text), 1 the start of a text, 2 a word of the training texts that is too rare, 4 their
    commonest word and so on. A word that the training texts never have is skipped.

    Args:
        words: The words of the training texts, the commonest first, with single spaces between.
        vocabulary: Number of different tokens, the special ones included.
        length: Tokens of each text; of longer ones the last are kept.

    Shape:
        - Raw and result: ``(batch, length)``, int64.

    Example:
        >>> text = Text(words="good a film", vocabulary=6, length=5)
        >>> text.encode([words_of("A good, UNSEEN film")])
        tensor([[0, 1, 5, 4, 2]])
    """

    kind = "text"

    def __init__(self, words: str, vocabulary: int, length: int) -> None:
        check_count("vocabulary", vocabulary, OFFSET + 2, "Four numbers are taken: padding, start, rare, unused.")
        check_count("length", length)
        self.words, self.vocabulary, self.length = words, vocabulary, length
        self._number = {
            word: number if number < vocabulary else RARE for number, word in enumerate(words.split(" "), OFFSET + 1)
        }

    def encode(self, texts: Iterable[Sequence[str]]) -> Tensor:
        """Return the tokens of texts that are given as lists of words."""
        texts = list(texts)
        tokens = np.zeros((len(texts), self.length), np.int64)
        for row, words in zip(tokens, texts, strict=True):
            from_the_end = (self._number[word] for word in reversed(words) if word in self._number)
            kept = list(islice(chain(from_the_end, [START]), self.length))
            row[self.length - len(kept) :] = kept[::-1]
        return torch.from_numpy(tokens)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "words": self.words, "vocabulary": self.vocabulary, "length": self.length}

    def read(self, path: Path) -> Raw:
        """Read a .csv with a column ``text``, a .txt with one text a line, or a folder of .txt files."""
        names, texts = _read_texts(path)
        if not texts:
            raise ValueError(f"{path} holds no text: give a .csv with a column `text`, a .txt or a folder of .txt.")
        return Raw((self.encode([words_of(text) for text in texts]),), names)


def _read_texts(path: Path) -> tuple[list[str], list[str]]:
    if path.is_dir():
        files = sorted(path.glob("*.txt"))
        return [file.stem for file in files], [_content(file) for file in files]
    if path.suffix == ".txt":
        texts = _content(path).removesuffix("\n").split("\n")
    elif path.suffix == ".csv":
        texts = _column(path)
    else:
        raise ValueError(f"Expected {path} to be a .csv with a column `text`, a .txt or a folder of .txt files.")
    return [str(row) for row in range(len(texts))], texts


def _column(path: Path) -> list[str]:
    rows = csv.DictReader(io.StringIO(_content(path), newline=""))
    try:
        if "text" not in (rows.fieldnames or ()):
            found = ", ".join(rows.fieldnames or ()) or "none"
            raise ValueError(f"{path} should have a column `text`, but its columns are: {found}.")
        return [row["text"] or "" for row in rows]
    except csv.Error as error:  # such as a very long text, or an unclosed quotation mark
        raise ValueError(
            f"{path}, after line {rows.line_num}: {error}. Give such texts as a folder of .txt files."
        ) from error


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}.") from error
