"""Memory that operations use while they run, kept from call to call: fresh memory costs more than the arithmetic."""

import math
import threading
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["WITH_MEMORY", "release_scratch", "scratch", "scratch_bytes"]

#: Tensors of other types may be without memory, or stand for something else, as fake ones do.
WITH_MEMORY = (Tensor, nn.Parameter)
#: More than this is not kept for one use.
MOST_BYTES = 2**27
#: Shapes that are remembered at once.
MOST_VIEWS = 256


class _Kept(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype], Tensor] = {}
        self.views: dict[Any, Tensor] = {}


_kept = _Kept()


def scratch(use: str, like: Tensor, *shape: int) -> Tensor:
    """Return memory of the shape, type and memory format of ``like``, until the next call for the same use.

    Only for what an operation is done with when it returns: the same memory is handed out again. A thread has its own.

    Args:
        use: Names what it is for; two uses never share memory.
        like: A tensor on the CPU.
        *shape: Another shape.

    Example:
        >>> first = scratch("example", torch.zeros(2, 3))
        >>> second = scratch("example", torch.zeros(3, 2))
        >>> first.data_ptr() == second.data_ptr(), second.shape
        (True, torch.Size([3, 2]))
    """
    if type(like) not in WITH_MEMORY:  # it must not be kept
        return like.new_empty(shape) if shape else torch.empty_like(like)
    last = not shape and like.dim() == 4 and like.is_contiguous(memory_format=torch.channels_last)
    key = (use, like.dtype, shape or like.shape, last)
    found = _kept.views.get(key)
    if found is not None:
        return found
    size = math.prod(shape or like.shape)
    if size * like.element_size() > MOST_BYTES:
        return torch.empty(shape, dtype=like.dtype, device="cpu") if shape else torch.empty_like(like)
    # Made in inference mode, memory could not be used in training afterwards.
    with torch.inference_mode(False):
        buffer = _kept.buffers.get((use, like.dtype))
        if buffer is None or buffer.numel() < size:
            _kept.views = {other: view for other, view in _kept.views.items() if other[:2] != key[:2]}
            buffer = _kept.buffers[use, like.dtype] = torch.empty(size, dtype=like.dtype, device="cpu")
        view = buffer.as_strided(like.shape, like.stride(), 0) if last else buffer[:size].view(shape or like.shape)
    if len(_kept.views) >= MOST_VIEWS:  # batches of every size
        _kept.views.clear()
    _kept.views[key] = view
    return view


def scratch_bytes() -> int:
    """Return how much memory this thread keeps."""
    return sum(buffer.nbytes for buffer in _kept.buffers.values())


def release_scratch() -> None:
    """Give back what this thread keeps.

    Example:
        >>> kept = scratch("example", torch.zeros(2, 3))
        >>> release_scratch()
        >>> scratch_bytes()
        0
    """
    _kept.buffers.clear()
    _kept.views.clear()
