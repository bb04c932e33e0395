"""Keeps torch's fused transformer paths, which read weights directly, away from Bayesian layers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from slimbayes.layers.base import BayesianLayer

__all__ = ["Patch", "close_fast_paths", "undo_patches", "without_fused_paths"]

_switching = threading.RLock()

#: Module name, attribute, and the value it had.
Patch = tuple[str, str, Any]


def close_fast_paths(net: nn.Module) -> list[Patch]:
    """Close the fused paths of transformer modules that hold a Bayesian layer; return what was changed.

    In evaluation without gradients, ``nn.TransformerEncoderLayer`` passes the weights of its children to
    one fused kernel, and ``nn.TransformerEncoder`` turns padded batches into nested tensors for it. Both
    would bypass the factors. Where torch asks whether the activation is one that the kernel knows, we
    say no.
    """
    patches: list[Patch] = []
    for name, module in net.named_modules():
        if not any(isinstance(child, BayesianLayer) for child in module.modules()):
            continue
        if isinstance(module, nn.TransformerEncoderLayer):
            patches.append((name, "activation_relu_or_gelu", module.activation_relu_or_gelu))
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder):
            patches.append((name, "use_nested_tensor", module.use_nested_tensor))
            module.use_nested_tensor = False
        if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            # Sequence first is these layers' own layout, whatever the network around them does.
            row_dim = 0 if module.self_attn.batch_first else 1
            for child in module.children():
                if isinstance(child, BayesianLayer):
                    child.row_dim = row_dim
    return patches


def undo_patches(net: nn.Module, patches: list[Patch]) -> None:
    """Put back what ``close_fast_paths`` changed."""
    for name, attribute, value in patches:
        setattr(net.get_submodule(name), attribute, value)


@contextmanager
def without_fused_paths() -> Iterator[None]:
    """Switch off torch's fused path, which leaves padded positions out and which ``vmap`` cannot follow.

    The switch is one for all threads: one at a time.
    """
    with _switching:
        enabled = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(enabled)
