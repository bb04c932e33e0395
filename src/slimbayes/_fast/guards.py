"""When the plain operations are needed: they are being recorded, or a tensor is not a plain one in memory."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad


def followed() -> bool:
    """Tell whether operations are being recorded: by a compiler or a trace."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def ordinary(*tensors: Tensor | None) -> bool:
    """Tell whether all are plain tensors on the CPU, with memory of their own and no forward-mode gradient.

    Inside ``torch.func`` transforms, and for a batch of gradients, a tensor stands for another and has no memory.

    Example:
        >>> ordinary(torch.ones(2), None), ordinary(torch.ones(2, device="meta"))
        (True, False)
    """
    return not followed() and all(x is None or _is_ordinary(x) for x in tensors)


def _is_ordinary(x: Tensor) -> bool:
    return x.is_cpu and has_memory(x)


def has_memory(x: Tensor) -> bool:
    """Tell whether a tensor, on any device, is what it seems and has no forward-mode gradient."""
    if type(x) not in (Tensor, nn.Parameter):
        return False
    try:
        x.untyped_storage()
    except NotImplementedError:
        return False
    return forward_ad.unpack_dual(x).tangent is None


def autograd_wanted(grad: Tensor) -> bool:
    """Tell whether a backward pass is itself differentiated (``create_graph=True``), or gets a batch of gradients."""
    return torch.is_grad_enabled() or followed() or not has_memory(grad)


def gradients_by_autograd(
    function: Callable[..., Any], inputs: Sequence[Any], gradients: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of plain operations, with the history that a second backward pass needs.

    Args:
        function: The same operation in terms that autograd knows.
        inputs: Its arguments.
        gradients: Of its outputs.

    Example:
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> gradients_by_autograd(lambda x: x**3, [x], [torch.tensor(1.0)])
        (tensor(27., grad_fn=<MulBackward0>),)
    """
    with torch.enable_grad():  # as views, since one tensor may be two of the inputs
        inputs = [x.view_as(x) if isinstance(x, Tensor) and x.requires_grad else x for x in inputs]
        wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        outputs = function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        found = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=True, allow_unused=True))
    return tuple(next(found) if isinstance(x, Tensor) and x.requires_grad else None for x in inputs)
