"""Every example once an epoch, whoever fetches it and however a step is cut up."""

import itertools

import numpy as np
import pytest
import torch

from slimbayes._seeds import mix
from slimbayes.data.dataset import Examples
from slimbayes.data.preparation import Arrays
from slimbayes.training.batches import Batches, blocks

SIZE = 53


def noisy(inputs, generator):
    return tuple(x + torch.rand(x.shape, generator=generator) for x in inputs)


def batches(batch_size=8, augmentation=None, seed=0, parts=1, rank=0, processes=1, workers=0, size=SIZE):
    source = Examples((torch.arange(float(size)),), torch.arange(size))
    return Batches(source, batch_size, Arrays(), augmentation, seed, parts, rank, processes, workers)


def steps_of(parts, processes, batch_size=8, epoch=0):
    """Return a list of steps; a step is a list of parts, those of all processes."""
    steps = []
    for rank in range(processes):
        own = batches(batch_size, parts=parts, rank=rank, processes=processes)
        taken = zip(*[iter(own.epoch(epoch))] * parts, strict=True)
        for number, step in enumerate(taken):
            if rank == 0:
                steps.append([])
            steps[number] += step
        assert number + 1 == own.steps
    return steps


def test_an_epoch_holds_every_example_once():
    own = batches()
    parts = list(own.epoch(0))
    assert [len(part.targets) for part in parts] == [8] * 6 + [5]
    assert own.steps == 7
    assert sorted(torch.cat([part.targets for part in parts]).tolist()) == list(range(SIZE))
    assert all(torch.equal(part.inputs[0], part.targets.float()) for part in parts)
    assert {part.weight for part in parts} == {1.0}


@pytest.mark.parametrize(("parts", "processes"), [(1, 2), (2, 1), (3, 1), (2, 2), (5, 1), (1, 5)])
def test_parts_of_all_processes_make_up_the_step_of_one(parts, processes):
    whole = [step[0] for step in steps_of(1, 1)]
    shared = steps_of(parts, processes)
    assert len(whole) == len(shared)
    for one, many in zip(whole, shared, strict=True):
        assert len(many) == parts * processes
        assert all(len(part.targets) > 0 for part in many)
        assert sorted(torch.cat([part.targets for part in many]).tolist()) == sorted(one.targets.tolist())
        # A mean of parts' means, as accumulation and averaging over processes make it.
        means = [part.weight * np.square(part.targets.numpy()).mean() for part in many]
        np.testing.assert_allclose(np.mean(means), np.square(one.targets.numpy()).mean(), rtol=1e-12)


@pytest.mark.parametrize(("parts", "processes", "steps"), [(5, 1, 7), (6, 1, 6), (3, 2, 6)])
def test_a_last_step_too_small_for_all_parts_is_left_out(parts, processes, steps):
    assert batches(parts=parts, processes=processes).steps == len(steps_of(parts, processes)) == steps


def test_epochs_and_seeds_differ_and_can_be_asked_for_again():
    def order(own, epoch):
        return torch.cat([part.targets for part in own.epoch(epoch)]).tolist()

    own = batches()
    first, second = order(own, 0), order(own, 1)
    assert first != second
    assert first != order(batches(seed=1), 0)
    assert second == order(batches(), 1)  # without epoch 0 before it, as a resumed run asks
    assert first == order(own, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(workers):
    torch.manual_seed(5)
    here, there = batches(augmentation=noisy, parts=2), batches(augmentation=noisy, parts=2, workers=workers)
    for epoch in range(3):
        for one, other in zip(here.epoch(epoch), there.epoch(epoch), strict=True):
            assert torch.equal(one.inputs[0], other.inputs[0])
            assert torch.equal(one.targets, other.targets)
            assert one.weight == other.weight
    there.close()
    untouched = torch.Generator().manual_seed(5)
    assert torch.equal(torch.rand(3), torch.rand(3, generator=untouched))


def test_augmentation_differs_between_epochs_steps_parts_and_processes():
    def drawn(rank):
        own = batches(augmentation=noisy, parts=2, rank=rank, processes=2)
        return [part.inputs[0][0].item() % 1 for epoch in range(2) for part in own.epoch(epoch)]

    numbers = drawn(0) + drawn(1)
    assert len(set(numbers)) == len(numbers)


def test_blocks_share_examples_out_in_order():
    source = Examples((torch.arange(10.0),), torch.arange(10))
    found = [[targets.tolist() for _, targets in blocks(source, Arrays(), 2, rank, 3)] for rank in range(3)]
    assert found == [[[0, 3], [6, 9]], [[1, 4], [7]], [[2, 5], [8]]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 3, "parts": 2, "processes": 2}, "batch_size.*at least.*4, but got 3"),
        ({"batch_size": 8, "parts": 4, "size": 3}, "at least 4 training examples, but got 3"),
    ],
)
def test_too_few_examples_for_all_parts(arguments, message):
    with pytest.raises(ValueError, match=message):
        batches(**arguments)


def test_seeds_depend_on_every_number_and_its_place():
    seeds = [mix(*numbers) for length in (1, 2, 3) for numbers in itertools.product(range(4), repeat=length)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
