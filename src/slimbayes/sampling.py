"""What a forward pass draws, told to every Bayesian layer, and where its random numbers come from.

Inside the network the draws are folded into the batch, member-major:
row = ((member * samples) + sample) * batch + example. A layer therefore needs only the number of
members to find each member's rows, whatever later code merges into the batch on the right.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from traceback import walk_stack
from typing import Any
from weakref import ref

import torch
from torch import Generator, Tensor
from torch.utils import checkpoint

from slimbayes._checks import check_choice, check_count

__all__ = ["BLOCK", "NOISES", "Blocks", "Draw", "Part", "Passes", "Sampling", "Tape", "check_sampling"]

NOISES = ("example", "shared", "independent")

#: Examples whose noise a prediction draws together. More would be drawn in vain for one example alone, fewer take more
#: calls.
BLOCK = 32

#: Makes random numbers ``(members, n, *)`` from the two numbers and a generator.
Draw = Callable[[tuple[int, int], Generator | None], Tensor]


@dataclass
class Tape:
    """Where each noise of a pass began, so that activation checkpointing can draw it again.

    Attributes:
        states: By name, the state of the source of randomness before what was drawn last.
        calls: By name of a layer, how often it ran.
        again: Whether the pass is being run again.
    """

    states: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    again: bool = False

    def source(self, name: str, generator: Generator | None, now: Tensor, device: torch.device) -> Generator | None:
        """Return what to draw a noise from once more, from where it was drawn first.

        Args:
            name: Of the noise.
            generator: Source of the pass; None for torch's global one.
            now: The state that it is in.
            device: Of the source.
        """
        if name not in self.states:
            raise RuntimeError(
                f"Activation checkpointing runs a part of the network again, and {name} was not drawn in it before. "
                "Let the part do the same both times, or switch checkpointing off."
            )
        # With the global source where it was, as torch.utils.checkpoint puts it, the network's own dropout finds it
        # where it was, too.
        if generator is None and torch.equal(now, self.states[name]):
            return None
        own = Generator(device)
        own.set_state(self.states[name])
        return own


@dataclass
class Sampling:
    """The state of one forward pass; at rest, what a layer used on its own does.

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
        seen: While the model wants to know: by the name of each layer that ran, the lengths that it saw in each call.
        in_model: The layers belong to a model, and run only inside its forward pass.
        tape: Of a pass that autograd records, where each noise began; None for any other.
    """

    samples: int = 1
    noise: str = "example"
    rows: int | None = None
    batch_dim: int = 0
    generator: Generator | None = None
    held: dict[str, Tensor] | None = None
    drawn: dict[str, Any] | None = None
    seen: dict[str, list[Any]] | None = None
    in_model: bool = False
    tape: Tape | None = None

    def weights(self, sample_per: str, members: int = 1) -> int:
        """Return how many weights this pass draws: one in all for a ``"batch"`` of training, else one for each draw."""
        batch = sample_per == "batch" and not isinstance(self.generator, Blocks)
        return 1 if batch else members * self.samples


class Passes(threading.local):
    """The forward pass that is under way, for each thread its own: what all layers of a model share.

    A pass is a ``Sampling`` that lives as long as the pass does. A thread finds the one it has begun last, or
    ``at_rest`` if it has begun none: so threads, and calls of a model within a call of it, cannot get into each other's
    way.

    Attributes:
        now: The state of the pass under way.
        axes: Asks the next pass for the batch axis of each of the network's outputs.
        looking: Collects ``Sampling.seen`` of passes that this thread makes to try the network; None in all others.
        reached: The pass that a backward pass in this thread has reached, as long as its graph is there: for
            activation checkpointing, which runs parts of it again.
    """

    def __init__(self, at_rest: Sampling | None = None) -> None:
        self.at_rest = Sampling() if at_rest is None else at_rest  # runs once in each thread
        self.now = self.at_rest
        self.axes: list[int | None] | None = None
        self.looking: dict[str, list[Any]] | None = None
        self.reached: ref[Sampling] | None = None

    def run_again(self, layer: str) -> bool:
        """Tell whether a layer that is called outside a pass is called by ``torch.utils.checkpoint``, in backward.

        From then on, the pass to which this part belongs is the current one.
        """
        before = None if self.reached is None else self.reached()
        if before is None or before.tape is None or not _in_checkpoint():
            return False
        if before.tape.calls.get(layer, 0) > 1:
            raise RuntimeError(
                f"Layer {layer} runs several times in one forward pass, and which of them activation checkpointing "
                "runs again cannot be told. Switch checkpointing off for the parts of the network that have this "
                "layer, or exclude it."
            )
        before.drawn = {}  # what was drawn before belongs to another graph
        return True

    def __reduce__(self) -> Any:
        """Copy what is at rest: a pass belongs to its thread."""
        return Passes, (self.at_rest,)


def _in_checkpoint() -> bool:
    """Tell whether ``torch.utils.checkpoint`` is among the callers."""
    return any(frame.f_code.co_filename == checkpoint.__file__ for frame, _ in walk_stack(None))


@dataclass(frozen=True)
class Part:
    """The samples and examples of a prediction that one pass computes."""

    sample: int
    samples: int
    example: int
    examples: int


class Blocks(Generator):
    """Random numbers of a prediction that do not depend on how it is cut into passes.

    The numbers of a layer for one sample and a block of ``BLOCK`` examples are drawn together, whole, from a seed made
    of the prediction's seed, the layer's name, the sample and the block; a pass takes those of its own examples. (Code
    that knows nothing of blocks may use it as any other generator. What it gets then does depend on the passes.)

    Args:
        seed: Of the prediction.
        part: What this pass computes.
        device: Where to draw.

    Example:
        >>> draw = lambda shape, generator: torch.randn(*shape, generator=generator)
        >>> whole = Blocks(3, Part(0, 2, 0, 50), "cpu").for_rows("factor", 100, draw, 1).view(2, 50)
        >>> part = Blocks(3, Part(1, 1, 20, 15), "cpu").for_rows("factor", 15, draw, 1)
        >>> torch.equal(part, whole[1, 20:35])
        True
    """

    def __new__(cls, seed: int, part: Part, device: Any) -> "Blocks":
        """Make a generator on the device."""
        return super().__new__(cls, device)  # type: ignore[call-arg]

    def __init__(self, seed: int, part: Part, device: Any) -> None:
        self.seed_of_all, self.part = seed, part
        self.source = Generator(device)
        self.calls: dict[str, int] = {}
        self.manual_seed(self._mixed("others", part.sample, part.example))

    def _mixed(self, *parts: Any) -> int:
        text = "/".join(map(str, (self.seed_of_all, *parts)))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1

    def _seeded(self, *parts: Any) -> Generator:
        """Return a generator whose numbers belong to the prediction's seed and these parts."""
        return self.source.manual_seed(self._mixed(*parts))

    def _by_sample(self, name: str) -> tuple[str, range]:
        """Return a name for this call of a layer, which may come again in a pass, and the pass's samples."""
        self.calls[name] = self.calls.get(name, -1) + 1
        return f"{name}/{self.calls[name]}", range(self.part.sample, self.part.sample + self.part.samples)

    def in_blocks(self, name: str, draw: Callable[[Generator], Any]) -> list[list[Any]]:
        """Return ``draw(generator)`` for each sample and each block that the pass has examples of."""
        name, samples = self._by_sample(name)
        first, end = self.part.example, self.part.example + self.part.examples
        blocks = range(first // BLOCK, -(-end // BLOCK))
        return [[draw(self._seeded(name, sample, block)) for block in blocks] for sample in samples]

    def rows_of(self, blocks: list[list[Tensor]], each: int = 1) -> Tensor:
        """Return the pass's rows of blocks ``(members, BLOCK * each, *)``: ``(rows, *)``, member-major."""
        begin, length = self.part.example % BLOCK * each, self.part.examples * each
        by_sample = [(own[0] if len(own) == 1 else torch.cat(own, 1)).narrow(1, begin, length) for own in blocks]
        return torch.stack(by_sample, 1).flatten(0, 2)

    def for_rows(self, name: str, rows: int, draw: Draw, members: int) -> Tensor:
        """Return random numbers for each row; see ``layers.base.InPass.for_rows``."""
        own = members * self.part.samples * self.part.examples
        if rows % own:  # something without a batch, common to all rows
            return draw((members, rows // members), self._seeded(self._by_sample(name)[0])).flatten(0, 1)
        each = rows // own
        return self.rows_of(self.in_blocks(name, lambda source: draw((members, BLOCK * each), source)), each)

    def for_draws(self, name: str, count: int, draw: Callable[[int, Generator | None], Tensor]) -> Tensor:
        """Return values of draws; see ``layers.base.InPass.for_draws``."""
        name, samples = self._by_sample(name)
        values = [draw(count // len(samples), self._seeded(name, sample)) for sample in samples]
        return torch.stack(values, 1).flatten(0, 1)


def check_sampling(samples: int, noise: str) -> None:
    """Raise unless ``samples`` and ``noise`` are what a forward pass takes."""
    check_count("samples", samples, 0, "Use 0 for each member at its location.")
    check_choice("noise", noise, NOISES)
