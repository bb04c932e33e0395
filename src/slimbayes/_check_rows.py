"""Whether a converted network keeps its rows in order: its output against its members', one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slimbayes import batching
from slimbayes._chunks import evaluating
from slimbayes.layers.transformer import without_fused_paths

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel

__all__ = ["check_rows"]


def check_rows(model: BayesianModel, args: Any, kwargs: Any) -> None:
    """Raise unless the model's answers for its first and last member are those members' own.

    The draws are spread widely, so that members differ also where they start alike.
    """
    plain_args, plain_kwargs = batching.unmarked((args, kwargs))
    with evaluating(model), torch.no_grad(), without_fused_paths():
        samples = 2 if model.members == 1 else 1  # one draw alone has no rows that another could get
        draw = {name: _spread(value) for name, value in model.draw(samples).items()}
        foldable = all(value.is_floating_point() for value in draw.values())
        outputs = list(batching.tensors(model(*args, draw=draw, **kwargs)))
        for row in {0, model.members * samples - 1}:
            member = row // samples
            if foldable:
                net = model.member(member, sample=row % samples, draw=draw)
                alone = list(batching.tensors(net(*plain_args, **plain_kwargs)))
            else:
                one = {name: value[row : row + 1] for name, value in draw.items()}
                alone = [x[0] if x.dim() else x for x in batching.tensors(model(*args, draw=one, **kwargs))]
            for place, (found, expected) in enumerate(zip(outputs, alone, strict=True)):
                if found.dim() and not _alike(found[row], expected):
                    raise ValueError(
                        f"Output {place} of the network is not what member {member} alone says: the network does not "
                        "keep its rows in order. Something in its forward sorts, mixes or concatenates along the batch "
                        "axis, or a converted layer sees something else than the batch there. Concatenate along "
                        "another axis, call the layer twice instead, or exclude the layers in between."
                    )


def _spread(value: Tensor) -> Tensor:
    return value * (1 + 0.3 * torch.rand_like(value)) if value.is_floating_point() else value  # seeds differ enough


def _alike(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    if not found.is_floating_point():
        return True  # such as labels, where a tie may fall either way
    scale = expected[expected.isfinite()].abs().max().item() if expected.isfinite().any() else 0.0
    return torch.allclose(found.double(), expected.double(), rtol=1e-2, atol=1e-3 * scale, equal_nan=True)
