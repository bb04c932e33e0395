"""What each of two processes does in test_fast_elsewhere.py: gradients of the fast paths and of the plain one."""

import os
import sys

import torch
import torch.distributed as dist
from fast_oracle import PASSES, assert_fast_is_plain, convert, flipping
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def network():
    """Return convolutions and dense layers, with and without a bias and a norm."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, 3, stride=2, groups=2),
        nn.Flatten(),
        nn.Linear(24, 5),
        nn.ReLU(inplace=True),
        nn.Linear(5, 3, bias=False),
    )


def inputs(batch, dtype):
    return torch.randn(batch, 2, 6, 6, dtype=dtype)


def main(store: str, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for dtype in (torch.float32, torch.float64):
        model = convert(network(), dtype)
        # A pass without noise has no use for the scales.
        parallel = DistributedDataParallel(model, find_unused_parameters=True)
        for batch, flips, arguments in PASSES.values():
            torch.manual_seed(rank)
            x = inputs(batch, dtype)
            with flipping(flips):
                assert len(assert_fast_is_plain(parallel, x, **arguments)) == 8
            for parameter in model.parameters():
                both = [torch.empty_like(parameter) for _ in range(2)]
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_gather(both, gradient)
                assert torch.equal(*both)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    os._exit(0)  # done; gloo's threads sometimes abort while the interpreter is torn down
