"""How convolutions move."""

from typing import Any, NamedTuple

__all__ = ["Geometry"]


class Geometry(NamedTuple):
    """How a convolution moves over its input."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def arguments(self) -> tuple[Any, ...]:
        """Return what ``aten::convolution`` takes after the bias."""
        return self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups
