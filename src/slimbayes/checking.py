"""Whether a converted network keeps its rows in order: its output against its members', one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slimbayes import tree
from slimbayes.chunks import evaluating

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel

__all__ = ["check_rows"]


def check_rows(model: BayesianModel, args: Any, kwargs: Any) -> None:
    """Raise unless the model's answers for its first and last member are those members' own.

    The draws are spread widely, so that members differ also where they start alike.
    """
    plain_args, plain_kwargs = tree.map_leaves(
        lambda leaf: leaf.tensor if isinstance(leaf, tree.BatchAxis) else leaf, (args, kwargs)
    )
    with evaluating(model), torch.no_grad(), _without_fused_paths():
        draw = {name: value * (1 + 0.3 * torch.rand_like(value)) for name, value in model.draw().items()}
        outputs = list(tree.tensors(model(*args, draw=draw, **kwargs)))
        for member in {0, model.members - 1}:
            alone = model.member(member, sample=0, draw=draw)(*plain_args, **plain_kwargs)
            for place, (found, expected) in enumerate(zip(outputs, tree.tensors(alone), strict=True)):
                if found.dim() and not _alike(found[member], expected):
                    raise ValueError(
                        f"Output {place} of the network is not what member {member} alone says: the network does not "
                        "keep its rows in order. Something in its forward sorts, mixes or concatenates along the batch "
                        "axis, or a converted layer sees something else than the batch there. Concatenate along "
                        "another axis, call the layer twice instead, or exclude the layers in between."
                    )


def _alike(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    if not found.is_floating_point():
        return True  # such as labels, where a tie may fall either way
    scale = expected[expected.isfinite()].abs().max().item() if expected.isfinite().any() else 0.0
    return torch.allclose(found.double(), expected.double(), rtol=1e-2, atol=1e-3 * scale, equal_nan=True)


@contextmanager
def _without_fused_paths() -> Iterator[None]:
    """Keep plain transformers on the path that answers for padded positions too."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)
