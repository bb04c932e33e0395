"""Shifts of texts against plain lists of words."""

import numpy as np
import pytest
import torch

from slimbayes.data.dataset import DataSet, Examples, Task
from slimbayes.data.text import Text
from slimbayes.shifts import CONSTANTS, shifts_for

COUNT, LENGTH, VOCABULARY = 500, 40, 1000


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    tokens = np.zeros((COUNT, LENGTH), np.int64)
    for row, words in zip(tokens, random.integers(0, LENGTH + 10, COUNT), strict=True):
        text = [1, *random.permutation(np.arange(4, VOCABULARY))[:words]][-LENGTH:]  # of long texts the end
        row[LENGTH - len(text) :] = text
    tokens[0] = [*[0] * (LENGTH - 1), 1]  # no word at all
    examples = Examples((torch.from_numpy(tokens),), torch.zeros(COUNT))
    preparation = Text(" ".join(map(str, range(VOCABULARY))), VOCABULARY, LENGTH)
    return DataSet(
        "imdb", examples, None, examples, Task("bernoulli", 1, (LENGTH,), vocabulary=VOCABULARY), preparation
    )


def words_in(tokens):
    """Return the words of each text, after a check of what comes before them."""
    result = []
    for row in tokens.tolist():
        text = [token for token in row if token]
        assert row == [0] * (LENGTH - len(text)) + text
        assert 1 not in text[1:]
        result.append(text[1:] if text[:1] == [1] else text)
    return result


def pairs(data, name, severity):
    (tokens,) = data.test.inputs
    (shifted,) = shifts_for(data)[name]((tokens,), severity)
    assert shifted.dtype == tokens.dtype
    assert torch.equal((shifted == 1).any(1), (tokens == 1).any(1))  # the start of a text stays
    return list(zip(words_in(tokens), words_in(shifted), strict=True))


def test_unknown_words(data):
    replaced = []
    for before, after in pairs(data, "unknown", 4):
        assert len(before) == len(after)
        assert all(new in (2, old) for old, new in zip(before, after, strict=True))
        replaced += [new == 2 for new in after]
    assert np.mean(replaced) == pytest.approx(CONSTANTS["unknown"][3], abs=4 * 0.5 / np.sqrt(len(replaced)))


def test_dropped_words(data):
    lost = []
    for before, after in pairs(data, "dropped", 2):
        kept = set(after)
        assert after == [word for word in before if word in kept]  # words of a text are distinct here
        lost += [word not in kept for word in before]
    assert np.mean(lost) == pytest.approx(CONSTANTS["dropped"][1], abs=4 * 0.4 / np.sqrt(len(lost)))


@pytest.mark.parametrize("severity", [1, 5])
def test_a_gap_is_one_stretch_of_words(data, severity):
    for before, after in pairs(data, "gap", severity):
        length = int(len(before) * CONSTANTS["gap"][severity - 1] + 0.5)
        starts = range(len(before) - length + 1)
        assert any(after == before[:start] + before[start + length :] for start in starts)


@pytest.mark.parametrize("name", ["unknown", "dropped", "gap"])
def test_a_text_does_not_depend_on_its_batch(data, name):
    shift, rows = shifts_for(data)[name], torch.tensor([44, 0, 499])
    (whole,) = shift(data.test.inputs, 3, seed=2)
    (some,) = shift(data.test.fetch(rows)[0], 3, seed=2, numbers=rows)
    assert torch.equal(some, whole[rows])
