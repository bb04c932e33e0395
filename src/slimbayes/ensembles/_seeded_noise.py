"""Noise that a seed brings back: the same on every device, and inside a compiled graph."""

import torch
from torch import Generator, Tensor


# An operator of its own, because torch.compile cannot trace a generator that is seeded on the way.
@torch.library.custom_op("slimbayes::seeded_noise", mutates_args=())
def seeded_noise(seeds: Tensor, size: int) -> Tensor:
    """Return standard normal numbers, drawn on the CPU from a generator for each seed.

    Args:
        seeds: ``(n,)``, of int64.
        size: How many of each.

    Returns:
        ``(n, size)``, of float32, where the seeds are.

    Example:
        >>> noise = seeded_noise(torch.tensor([3, 4, 3]), 5)
        >>> noise.shape, torch.equal(noise[0], noise[2]), torch.equal(noise[0], noise[1])
        (torch.Size([3, 5]), True, False)
    """
    rows = [torch.randn(size, generator=Generator().manual_seed(seed)) for seed in seeds.tolist()]
    return torch.stack(rows).to(seeds.device)


@seeded_noise.register_fake
def _shape(seeds: Tensor, size: int) -> Tensor:
    return seeds.new_empty(seeds.shape[0], size, dtype=torch.float32)
