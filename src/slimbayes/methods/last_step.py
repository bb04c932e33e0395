"""What the last layer of a trained network is given on the training data, and how its answers are read."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from slimbayes import tree
from slimbayes.likelihoods import Categorical, Gaussian, Likelihood, get_likelihood
from slimbayes.methods.conversion import copy_of

__all__ = ["last_step", "read"]


def last_step(net: nn.Module, name: str, batches: Iterable[tuple[Any, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the layer is given, ``(n, in)``, what it answers, ``(n, out)``, and the targets."""
    net = copy_of(net).eval()
    calls: list[tuple[Tensor, Tensor]] = []
    net.get_submodule(name).register_forward_hook(lambda module, inputs, output: calls.append((inputs[0], output)))
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    with torch.no_grad():
        for batch in batches:
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise ValueError(
                    "Expected argument `train_batches` to have pairs of inputs and targets, but got a "
                    f"{type(batch).__name__}. Give a DataLoader, or [(x, y)]."
                )
            inputs, targets = batch
            calls.clear()
            answer = tree.output_tensor(_call(net, inputs))
            if not answer.isfinite().all():
                raise ValueError("The network's answers to the training data are not all finite. Train it first.")
            if len(calls) != 1 or not torch.equal(calls[0][1].flatten().to(answer.dtype), answer.flatten()):
                raise ValueError(
                    f"Expected the network's answer to be that of its layer {name!r}, called once, but it is not. Name "
                    "the last one as `layer`, and let the network return its logits as they are."
                )
            features, outputs = (part.flatten(0, -2) for part in calls[0])
            found.append((features, outputs, targets.to(outputs.device).flatten()))
    if not sum(len(features) for features, _, _ in found):
        raise ValueError("Expected argument `train_batches` to have examples, but it is empty. Give the training data.")
    features, outputs, targets = (torch.cat(parts) for parts in zip(*found, strict=True))
    return features, outputs, targets


def _call(net: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return net(**inputs)
    several = isinstance(inputs, (tuple, list)) and not isinstance(inputs, PackedSequence)
    return net(*inputs) if several else net(inputs)


def read(
    likelihood: str | dict[str, Any] | Likelihood, features: Tensor, outputs: Tensor, targets: Tensor
) -> tuple[Likelihood, Tensor, Tensor]:
    """Return the likelihood with its noise as a number, and features and targets of what counts.

    Args:
        likelihood: As in ``sb.laplace``.
        features: ``(n, in)``.
        outputs: ``(n, out)``.
        targets: ``(n,)`` classes, or ``(n * out,)`` numbers.
    """
    reading = get_likelihood(likelihood)
    if isinstance(reading, Categorical):
        reading.log_prob(outputs.unsqueeze(0), targets)  # raises for targets that are no classes of these outputs
        counts = targets != reading.ignore_index
        return reading, features[counts], targets[counts].long()
    if not isinstance(reading, Gaussian) or reading.noise == "predicted":
        raise ValueError(
            "Expected argument `likelihood` to be 'categorical', or 'gaussian' with a noise that is not predicted, but "
            f"got {reading.spec()}. A yes or no can be two classes."
        )
    if targets.numel() != outputs.numel():
        raise ValueError(
            f"Expected argument `train_batches` to have {outputs.numel()} targets, one for each answer of the network, "
            f"but got {targets.numel()}."
        )
    targets = targets.view_as(outputs).double()
    if isinstance(reading.noise, str):
        trained = isinstance(likelihood, Likelihood)
        std = reading.moments(outputs)[1].flatten()[0] if trained else (outputs - targets).square().mean().sqrt()
        if not std > 0:
            raise ValueError("The training residuals are all 0. State the noise: likelihood=sb.Gaussian(noise=0.1).")
        reading = Gaussian(noise=std.item())
    return reading, features, targets
