"""Splits: every row once, exact sizes, classes in proportion, the same every time."""

import pytest
import torch

from slimbayes.data.splits import split_examples, split_rows


@pytest.mark.parametrize(
    ("validation", "test", "sizes"),
    [
        (0, 0, (50, 0, 0)),
        (5, 10, (35, 5, 10)),
        (0.1, 0.2, (35, 5, 10)),
        (0.5, 0, (25, 25, 0)),
        (0.001, 0.0, (49, 1, 0)),  # a fraction above 0 is at least one row
        (49, 0, (1, 49, 0)),
    ],
)
@pytest.mark.parametrize("seed", [0, 7, None])
def test_every_row_is_in_one_part_and_the_sizes_are_exact(validation, test, sizes, seed):
    parts = split_rows(50, validation, test, seed)
    assert tuple(map(len, parts)) == sizes
    assert torch.cat(parts).sort().values.equal(torch.arange(50))
    again = split_rows(50, validation, test, seed)
    assert all(a.equal(b) for a, b in zip(parts, again, strict=True))


def test_without_a_seed_the_order_is_kept_and_with_one_it_is_torchs():
    assert split_rows(60_000, validation=10_000, seed=None).validation.equal(torch.arange(50_000, 60_000))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    assert torch.cat(split_rows(20, 4, 5, seed=3)).equal(order)


@pytest.mark.parametrize("seed", range(5))
def test_classes_are_in_proportion(seed):
    classes = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)[
        torch.randperm(100, generator=torch.Generator().manual_seed(seed))
    ]
    for part, size in zip(split_rows(100, 0.1, 0.2, seed, classes), (70, 10, 20), strict=True):
        counts = torch.bincount(classes[part], minlength=3)
        assert counts.sum() == size
        assert (counts - torch.tensor([0.6, 0.3, 0.1]) * size).abs().max() <= 1
    first, second = (split_rows(100, 0.1, 0.2, s, classes).test for s in (seed, seed + 1))
    assert set(first.tolist()) != set(second.tolist())


def test_a_class_of_one_row_trains():
    classes = torch.tensor([0] * 50 + [1])
    assert all(50 in split_rows(51, 0.1, 0.2, seed, classes).train for seed in range(20))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"validation": -1}, ["`validation`", "-1"]),
        ({"validation": True}, ["`validation`", "True"]),
        ({"test": 1.0}, ["`test`", "1.0", "integer for a number"]),
        ({"test": float("nan")}, ["`test`", "nan"]),
        ({"test": "0.1"}, ["`test`", "'0.1'"]),
        ({"validation": 5, "test": 0.5}, ["leave rows to train on", "of 10 rows"]),
        ({"seed": -1}, ["`seed`", "-1"]),
        ({"seed": None, "classes": torch.zeros(10)}, ["`seed`", "None"]),
    ],
)
def test_options_without_sense(options, words):
    with pytest.raises(ValueError, match="Expected") as error:
        split_rows(10, **options)
    for word in words:
        assert word in str(error.value)


def test_examples_follow_their_rows():
    x, y = torch.arange(12).view(6, 2), torch.arange(6)
    train, validation, test = split_examples((x, x + 1), y, split_rows(6, 0, 2, seed=1))
    assert validation is None
    for part in (train, test):
        assert part.inputs[0].equal(torch.stack([2 * part.targets, 2 * part.targets + 1], 1))
        assert part.inputs[1].equal(part.inputs[0] + 1)
