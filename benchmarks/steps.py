"""What is timed: a train step and a prediction, of a plain network or a Bayesian model."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import slimbayes as sb

__all__ = ["Step", "prediction", "train_step"]

Step = Callable[[], None]
#: Of inputs and targets.
Loss = Callable[[Tensor, Tensor], Tensor]

#: Divides the KL. Any number costs the same; this one is CIFAR's.
NUM_DATA = 50_000


def train_step(
    model: nn.Module,
    batches: Sequence[tuple[Tensor, Tensor]],
    wrap: Callable[[Loss], Loss] | None = None,
    precision: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Step:
    """Return a function that trains on the next batch: zero_grad, forward, cross entropy, backward, fused Adam.

    Args:
        model: A plain network or a ``BayesianModel``, whose loss has the KL, too.
        batches: Inputs and class indices; the step goes round them, so that as many steps as batches are an epoch.
        wrap: What to make of the forward pass and loss, such as a compiled one.
        precision: Makes the context that forward pass and loss run in, such as autocast.

    Example:
        >>> net = nn.Linear(8, 3)
        >>> before = net.weight.clone()
        >>> train_step(net, [(torch.randn(5, 8), torch.zeros(5, dtype=torch.long))])()
        >>> torch.equal(net.weight, before)
        False
    """
    loss = sb.ELBO(model, NUM_DATA, "categorical") if isinstance(model, sb.BayesianModel) else F.cross_entropy
    optimiser = torch.optim.Adam(model.train().parameters(), fused=True)
    rounds = cycle(batches)

    def forward(x: Tensor, y: Tensor) -> Tensor:
        with precision():
            return loss(model(x), y)

    if wrap is not None:
        forward(*batches[0])  # the first pass checks that every layer is called, which is not compiled
    whole = forward if wrap is None else wrap(forward)

    def step() -> None:
        x, y = next(rounds)
        optimiser.zero_grad()
        whole(x, y).backward()
        optimiser.step()

    return step


def prediction(
    model: nn.Module, x: Tensor, precision: Callable[[], AbstractContextManager[object]] = nullcontext
) -> Step:
    """Return a function that predicts: ``model.predict(x)``, or a plain network's forward pass in evaluation mode.

    Example:
        >>> prediction(nn.Linear(8, 3), torch.randn(5, 8))()
    """
    model.eval()

    def predict() -> None:
        with precision(), torch.no_grad():
            model.predict(x) if isinstance(model, sb.BayesianModel) else model(x)

    return predict
