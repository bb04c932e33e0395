"""What a shift is: a change of prepared inputs, of severity 1 to 5."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from slimbayes.shifts._draws import Draws

__all__ = ["CONSTANTS", "Inputs", "Layout", "Shift", "check_severity", "stretch"]

#: The network's inputs, by position; the first axis of each counts the examples.
Inputs = tuple[Tensor, ...]

#: What each severity from 1 to 5 means, by the shift's name.
CONSTANTS: dict[str, tuple[float, float, float, float, float]] = {
    "missing": (0.1, 0.2, 0.3, 0.4, 0.5),  # chance of each feature (column, variable) to be missing
    "noise": (0.1, 0.2, 0.4, 0.6, 0.8),  # standard deviation, on the standardised scale
    "drift": (0.2, 0.4, 0.6, 0.8, 1.0),  # the same, of an offset that all examples share
    "gap": (0.1, 0.2, 0.3, 0.4, 0.5),  # share of the time, or of the words, that is lost in one stretch
    "dropped": (0.1, 0.2, 0.3, 0.5, 0.7),  # chance of each event or word to be lost
    "unknown": (0.1, 0.2, 0.3, 0.5, 0.7),  # chance of each word to become an unknown one
}


@dataclass(frozen=True)
class Shift:
    """One shift.

    Its random numbers belong to each example, and are the same for all severities: what is missing at one is missing
    at the next.

    Args:
        name: One of ``CONSTANTS``.
        apply: Takes inputs, the constant of a severity, and draws for the examples.

    Example:
        >>> halved = Shift("gap", lambda inputs, share, draws: tuple((1 - share) * x for x in inputs))
        >>> halved((torch.ones(1, 2),), severity=5)
        (tensor([[0.5000, 0.5000]]),)
    """

    name: str
    apply: Callable[[Inputs, float, Draws], Inputs]

    def __call__(self, inputs: Inputs, severity: int, *, seed: int = 0, numbers: Tensor | None = None) -> Inputs:
        """Return shifted inputs; those given stay as they are.

        Args:
            inputs: Prepared inputs.
            severity: 1 to 5.
            seed: Of the random numbers.
            numbers: ``(n,)``, each example's own number, such as its row of the test set; None for 0, 1, and so on.
        """
        check_severity("severity", severity)
        numbers = torch.arange(len(inputs[0])) if numbers is None else numbers
        return self.apply(inputs, CONSTANTS[self.name][severity - 1], Draws(self.name, seed, numbers))


class Layout(Protocol):
    """What the prepared inputs of a kind of data hold, and so how they can be shifted."""

    @property
    def shifts(self) -> dict[str, Shift]:
        """The shifts that fit, by name."""
        ...

    @property
    def features(self) -> Tensor | None:
        """Which feature each column of the only input's last axis belongs to; None if they cannot be taken apart."""
        ...

    def noise(self, inputs: Inputs, draws: Draws) -> Inputs | None:
        """Return inputs of the same form whose content is noise; None if nothing in them is random by nature."""
        ...


def check_severity(argument: str, severity: int) -> None:
    """Raise unless a severity is a whole number from 1 to 5."""
    if severity not in (1, 2, 3, 4, 5):
        raise ValueError(f"Expected argument `{argument}` to be a whole number from 1 to 5, but got {severity!r}.")


def stretch(count: int | Tensor, share: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Return where a stretch of round(share * count) positions begins, uniformly, and ends (exclusive): ``(n,)``.

    Args:
        count: Number of positions, the same for all examples, or ``(n,)``.
        share: Of them.
        draws: For the examples.
    """
    length = (torch.as_tensor(count) * share + 0.5).long()
    start = draws.below(count - length + 1)
    return start, start + length
