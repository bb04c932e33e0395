"""What the last layer of a trained network is given on the training data, and how its answers are read."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from slimbayes import batching
from slimbayes.conversion import copy_of
from slimbayes.likelihoods import Categorical, Gaussian, Likelihood, get_likelihood


def last_step(
    net: nn.Module, name: str, batches: Iterable[tuple[Any, Tensor]], reading: Likelihood
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the layer is given, ``(n, in)``, what it answers, ``(n, out)``, and the targets, in one row."""
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
            answer = batching.output_tensor(_call(net, inputs))
            if not answer.isfinite().all():
                raise ValueError("The network's answers to the training data are not all finite. Train it first.")
            if len(calls) != 1 or not torch.equal(calls[0][1].flatten().to(answer.dtype), answer.flatten()):
                raise ValueError(
                    f"Expected the network's answer to be that of its layer {name!r}, called once, but it is not. Name "
                    "the last one as `layer`, and let the network return its logits as they are."
                )
            targets = targets.to(answer.device)
            _check_targets(reading, answer, targets)
            features, outputs = (part.flatten(0, -2) for part in calls[0])
            found.append((features, outputs, targets.flatten()))
    if not sum(len(features) for features, _, _ in found):
        raise ValueError("Expected argument `train_batches` to have examples, but it is empty. Give the training data.")
    features, outputs, targets = (torch.cat(parts) for parts in zip(*found, strict=True))
    return features, outputs, targets


def _call(net: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return net(**inputs)
    several = isinstance(inputs, (tuple, list)) and not isinstance(inputs, PackedSequence)
    return net(*inputs) if several else net(inputs)


def _check_targets(reading: Likelihood, answer: Tensor, targets: Tensor) -> None:
    """Raise unless the targets are those of a batch's answers, each at its position."""
    if isinstance(reading, Categorical):
        if reading.class_dim not in (None, -1, answer.dim()):
            raise ValueError(
                f"Expected argument `likelihood` to have the classes where the last layer has its outputs, on the last "
                f"axis, but got class_dim={reading.class_dim}. Use -1."
            )
        if targets.is_floating_point():
            raise ValueError(
                f"Expected argument `train_batches` to have class numbers, which are integers, but got {targets.dtype}."
            )
    elif targets.numel() != answer.numel():
        raise ValueError(
            f"Expected argument `train_batches` to have {answer.numel()} targets, one for each answer of the network, "
            f"but got {targets.numel()}."
        )
    elif not targets.isfinite().all():
        raise ValueError("Expected argument `train_batches` to have finite targets, but some are not. Leave them out.")
    if len(targets):
        reading.log_prob(answer.unsqueeze(0), targets)  # raises for another shape, and for what is no class


def readable(likelihood: str | dict[str, Any] | Likelihood) -> Likelihood:
    """Return the likelihood, or raise if its curvature is not known."""
    reading = get_likelihood(likelihood)
    if not isinstance(reading, (Categorical, Gaussian)) or (
        isinstance(reading, Gaussian) and (reading.noise == "predicted" or reading.outputs is not None)
    ):
        raise ValueError(
            "Expected argument `likelihood` to be 'categorical', or 'gaussian' with one noise that is not predicted, "
            f"but got {reading.spec()}. A yes or no can be two classes."
        )
    return reading


def read(
    reading: Likelihood, trained: bool, features: Tensor, outputs: Tensor, targets: Tensor
) -> tuple[Likelihood, Tensor, Tensor]:
    """Return the likelihood with its noise as a number, and features and targets of what counts.

    Args:
        reading: The likelihood.
        trained: Whether a learned noise is there already, rather than to be found from the residuals.
        features: ``(n, in)``.
        outputs: ``(n, out)``.
        targets: ``(n,)`` classes, or ``(n * out,)`` numbers.
    """
    if isinstance(reading, Categorical):
        counts = targets != reading.ignore_index
        if not counts.any():
            raise ValueError(
                f"Expected argument `train_batches` to have targets that count, but all are {reading.ignore_index}, "
                "the `ignore_index` of the likelihood."
            )
        return reading, features[counts], targets[counts].long()
    assert isinstance(reading, Gaussian)
    targets = targets.view_as(outputs).double()
    if isinstance(reading.noise, str):
        std = reading.moments(outputs)[1].flatten()[0] if trained else (outputs - targets).square().mean().sqrt()
        if not std > 0:
            raise ValueError("The training residuals are all 0. State the noise: likelihood=sb.Gaussian(noise=0.1).")
        reading = Gaussian(noise=std.item())
    return reading, features, targets
