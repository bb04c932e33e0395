"""Running means of the loss's terms, and a watch for what is not finite."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from slimbayes.likelihoods import Bernoulli, Categorical, Likelihood, Ordinal, mixture

__all__ = ["Means", "Meter", "NonFiniteLoss", "correct"]


class NonFiniteLoss(ArithmeticError):  # noqa: N818
    """The loss is NaN or infinite."""


class Means(NamedTuple):
    """Means over the examples since the last reading.

    Attributes:
        nll: Negative log-likelihood.
        kl: KL, not divided by the number of examples.
        beta: Its weight at the last step.
        loss: The objective.
        accuracy: Share of examples whose most probable class is the target; None for regressions.
        examples: Their number.
    """

    nll: float
    kl: float
    beta: float
    loss: float
    accuracy: float | None
    examples: int


class Meter:
    """Collects a few numbers a step without waiting for the device.

    Steps are counted from 1.

    Args:
        patience: Steps after which collected numbers are looked at; 1 where looking costs nothing.

    Example:
        >>> meter = Meter()
        >>> meter.add(1, torch.tensor(2.0), torch.tensor(30.0), 0.5, torch.tensor(2.25), torch.tensor(3.0), 4)
        >>> meter.recent()
        Means(nll=2.0, kl=30.0, beta=0.5, loss=2.25, accuracy=0.75, examples=4)
        >>> meter.recent().examples, meter.whole().examples
        (0, 4)
    """

    def __init__(self, patience: int = 1) -> None:
        self.patience = patience
        self._pending: list[tuple[int, tuple[Tensor, ...], float, int]] = []
        self._beta, self._has_accuracy = 0.0, False
        self._recent, self._whole = [0.0] * 5, [0.0] * 5

    def add(
        self, step: int, nll: Tensor, kl: Tensor, beta: float, loss: Tensor, correct: Tensor | None, examples: int
    ) -> None:
        """Take up the terms of a step.

        Raises:
            NonFiniteLoss: One of them is not finite; says which step it was and all terms.
        """
        self._has_accuracy = correct is not None
        terms = (nll.detach(), kl.detach(), loss.detach(), *(() if correct is None else (correct,)))
        self._pending.append((step, terms, beta, examples))
        if len(self._pending) >= self.patience:
            self._look()

    def _look(self) -> None:
        if not self._pending:
            return
        rows = torch.stack([term.float() for _, terms, _, _ in self._pending for term in terms]).tolist()
        width = len(rows) // len(self._pending)
        for index, (step, _, beta, examples) in enumerate(self._pending):
            nll, kl, loss, *right = rows[index * width : (index + 1) * width]
            if not all(map(math.isfinite, (nll, kl, loss))):
                raise NonFiniteLoss(
                    f"the loss is not finite at step {step}: loss {loss}, NLL {nll}, KL {kl}, beta {beta}"
                )
            numbers = (nll * examples, kl * examples, loss * examples, sum(right), examples)
            self._recent = [one + other for one, other in zip(self._recent, numbers, strict=True)]
            self._beta = beta
        self._pending.clear()

    def recent(self, total: Callable[[Tensor], Tensor] | None = None) -> Means:
        """Return the means since the last call.

        Args:
            total: Sums a tensor over all processes; None for one process.
        """
        self._look()
        sums, self._recent = self._recent, [0.0] * 5
        self._whole = [one + other for one, other in zip(self._whole, sums, strict=True)]
        return self._means(sums, total)

    def whole(self, total: Callable[[Tensor], Tensor] | None = None) -> Means:
        """Return the means since the beginning."""
        self._look()
        return self._means([one + other for one, other in zip(self._whole, self._recent, strict=True)], total)

    def _means(self, sums: list[float], total: Callable[[Tensor], Tensor] | None) -> Means:
        *values, examples = sums if total is None else total(torch.tensor(sums, dtype=torch.float64)).tolist()
        nll, kl, loss, right = (value / max(1, examples) for value in values)
        return Means(nll, kl, self._beta, loss, right if self._has_accuracy else None, int(examples))


@torch.no_grad()
def correct(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Return how many examples' most probable class is the target; None if the likelihood has no classes.

    Shape:
        - ``outputs``: ``(draws, batch, *)``. ``targets``: ``(batch,)``. Result: a scalar.

    Example:
        >>> correct(Categorical(), torch.tensor([[[2.0, 0.0], [0.0, 1.0]]]), torch.tensor([0, 0]))
        tensor(1.)
    """
    if isinstance(likelihood, Bernoulli):
        outputs = outputs.squeeze(-1) if outputs.dim() > targets.dim() + 1 else outputs
        right = ((outputs.sigmoid().mean(0) > 0.5) == (targets > 0.5)).float()
        return right.sum() / right[0].numel()  # of several labels, their share counts
    if isinstance(likelihood, Ordinal):
        return (mixture(likelihood.class_log_probs(outputs)).argmax(-1) == targets).float().sum()
    if isinstance(likelihood, Categorical) and targets.dim() == 1:
        logits = outputs.movedim(likelihood.class_axis(outputs), -1)
        # By hand: torch's softmax is slow on rows as short as these, and this is done in every step.
        weights = (logits - logits.amax(-1, keepdim=True)).exp_()
        labels = (weights / weights.sum(-1, keepdim=True)).mean(0).argmax(-1)
        return (labels == targets).float().sum()
    return None
