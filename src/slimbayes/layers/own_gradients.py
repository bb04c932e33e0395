"""Operations that compute their own gradients: when they step aside for what autograd knows."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["autograd_wanted", "gradients_by_autograd", "plain_operations_wanted"]


def plain_operations_wanted() -> bool:
    """Tell whether somebody looks into operations: a compiler, a trace, ``torch.func`` or forward-mode gradients."""
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    return traced or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def autograd_wanted(grad: Tensor) -> bool:
    """Tell whether a backward pass is itself looked into: ``create_graph=True``, or a batch of gradients at once.

    Args:
        grad: The gradient that the pass is given.
    """
    # Of gradients that come as a batch, autograd shows one at a time, which has no memory of its own.
    return torch.is_grad_enabled() or plain_operations_wanted() or not torch._C._has_storage(grad)


def gradients_by_autograd(
    function: Callable[..., Any], inputs: Sequence[Any], gradients: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of plain operations, with the history that a second backward pass needs.

    What an operation has saved for its own backward pass has none; under ``create_graph=True`` it asks here instead.

    Args:
        function: The same operation in terms that autograd knows.
        inputs: Its arguments.
        gradients: Of its outputs.

    Example:
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> gradients_by_autograd(lambda x: x**3, [x], [torch.tensor(1.0)])
        (tensor(27., grad_fn=<MulBackward0>),)
    """
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    with torch.enable_grad():
        outputs = function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        found = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=True, allow_unused=True))
    return tuple(next(found) if isinstance(x, Tensor) and x.requires_grad else None for x in inputs)
