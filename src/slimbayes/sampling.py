"""What one forward pass draws, told to every Bayesian layer by the one object they share.

Inside the network the draws are folded into the batch, member-major:
row = ((member * samples) + sample) * batch + example. A layer therefore needs only the number of
members to find each member's rows, whatever later code merges into the batch on the right.
"""

from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from slimbayes._checks import check_choice, check_count

__all__ = ["NOISES", "Sampling", "check_sampling"]

NOISES = ("example", "shared", "independent")


@dataclass
class Sampling:
    """The state of the forward pass under way; at rest, what a layer used on its own does.

    Attributes:
        samples: Draws per member; 0 asks for each member's location.
        noise: ``"example"``: each row has its own draw. Where that takes many numbers, rank-1 factors of a few rows
            share the magnitudes of their noise, see ``_fast.row_noise``; ``"independent"``: never. ``"shared"``: one
            draw per member and sample.
        rows: Rows the model made (members * samples * batch); None for a layer used on its own.
        batch_dim: Axis of the rows in inputs of three or more dimensions.
        generator: Source of randomness; None for torch's global one.
        held: Values drawn beforehand, by name, one row per member and sample; they win over ``noise``.
        drawn: Values drawn in this pass with noise per example, by name: a layer that is called twice, or step by
            step, keeps its draw.
        called: Collects the names of the layers that ran, while the model wants to know.
        in_model: The layers belong to a model, and run only inside its forward pass.
    """

    samples: int = 1
    noise: str = "example"
    rows: int | None = None
    batch_dim: int = 0
    generator: Generator | None = None
    held: dict[str, Tensor] | None = None
    drawn: dict[str, Any] | None = None
    called: set[str] | None = None
    in_model: bool = False


def check_sampling(samples: int, noise: str) -> None:
    """Raise unless ``samples`` and ``noise`` are what a forward pass takes."""
    check_count("samples", samples, 0, "Use 0 for each member at its location.")
    check_choice("noise", noise, NOISES)
