"""What to evaluate on, and how."""

from dataclasses import dataclass

from slimbayes._checks import check_choice, check_count, check_number

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What to evaluate on, and how.

    Attributes:
        samples: Numbers of draws of each member; all are read off the draws of the largest. None: each model's
            ``default_samples``.
        corruptions: ``"auto"``, ``"own"``, ``"official"``, ``"none"``, or names.
        extra: Add the four further corruptions of images.
        severities: Of the corruptions.
        ood: ``"auto"``, ``"none"``, or names of sets.
        limit: Use the first so many test examples only.
        shifted_limit: The same of corrupted and of foreign examples alone; None for ``limit``.
        seed: Of draws, corruptions and the bootstrap.
        resamples: Of the bootstrap; 0 for no intervals.
        batch_size: Examples that go through a network at once; None for what a bounded memory allows.
        which: The checkpoint that the subjects were loaded from.
        temperature: Score class probabilities that are as confident as under this temperature, besides those that are
            predicted; None for no such scores.
        each: Keep the NLL of each example and whether it is right, so that two evaluations can be compared in pairs;
            and its entropy and mutual information.
        pairs: Score draws alone and in pairs, of one member and of two, which tells what noise adds from what members
            add; and single members on corrupted examples too. For one class an example.
        precision: Of the networks' passes: ``"fp32"``, or ``"bf16"``, under autocast. Scores are computed in double
            precision in either case.
    """

    samples: tuple[int, ...] | None = None
    corruptions: str | tuple[str, ...] = "auto"
    extra: bool = False
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    ood: str | tuple[str, ...] = "auto"
    limit: int | None = None
    shifted_limit: int | None = None
    seed: int = 0
    resamples: int = 1000
    batch_size: int | None = None
    which: str = "best"
    temperature: float | None = None
    each: bool = False
    pairs: bool = False
    precision: str = "fp32"

    def __post_init__(self) -> None:
        for samples in (1,) if self.samples is None else self.samples or (0,):
            check_count("samples", samples, 1, "Give the draws of each member, such as 1,4,25.")
        if self.temperature is not None:
            check_number("temperature", self.temperature, 0.0)
        check_choice("precision", self.precision, ("fp32", "bf16"))
