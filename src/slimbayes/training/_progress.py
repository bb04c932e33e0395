"""What a run tells while it goes: a bar on a terminal, one line an epoch elsewhere, and ``metrics.jsonl``."""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from slimbayes._text_table import of_draws
from slimbayes.training.meter import Means


class Progress:
    """Reports of one process; only the main one says anything.

    Args:
        path: ``metrics.jsonl``; lines are added. None for none.
        steps: Of the whole run.
        done: Steps that are done already.
        quiet: Show nothing; the file is written all the same.
        title: Stands before the bar.
        stream: Where to show it.
    """

    def __init__(
        self,
        path: Path | None,
        steps: int,
        done: int = 0,
        quiet: bool = False,
        title: str = "",
        stream: TextIO | None = None,
    ) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.file = None if path is None else path.open("a")
        self.lines = not quiet and path is not None and not self.stream.isatty()
        hidden = quiet or path is None or not self.stream.isatty()
        self.bar = tqdm(total=steps, initial=done, desc=title, unit="step", file=self.stream, disable=hidden)
        self.clock = time.perf_counter()
        self.examples = 0

    def step(self, examples: int) -> None:
        """Count a step."""
        self.examples += examples
        self.bar.update()

    def throughput(self) -> float:
        """Return the examples a second since the last call."""
        now = time.perf_counter()
        rate, self.clock, self.examples = self.examples / max(now - self.clock, 1e-9), now, 0
        return rate

    def during(self, epoch: int, step: int, means: Means, lr: float, rate: float) -> None:
        """Show and store the means of the last steps."""
        self.bar.set_postfix_str(f"{_words(means)} {rate:.0f}/s", refresh=False)
        self._write({"epoch": epoch, "step": step, "lr": lr, **means._asdict(), "examples_per_second": rate})

    def watched(self, epoch: int, step: int, seconds: float, seen: dict[str, Any]) -> None:
        """Store what was looked at after a step, with the seconds of training until then."""
        self._write({"epoch": epoch, "step": step, "seconds": seconds, "watch": seen})

    def store(self, epoch: int, step: int, train: dict[str, Any], validation: dict[str, float] | None) -> None:
        """Store an epoch's means and its scores on the validation examples."""
        self._write({"epoch": epoch, "step": step, "train": train, "validation": validation})

    def show(
        self, epoch: int, epochs: int, train: dict[str, Any], validation: dict[str, float] | None, draws: int
    ) -> None:
        """Show an epoch's means and its scores on the validation examples, which are of so many draws."""
        if self.lines:
            scores = "" if validation is None else "  validation: " + _scores(validation, draws)
            means = Means(**{key: train[key] for key in Means._fields})
            text = f"epoch {epoch}/{epochs}  {_words(means)}  {train['examples_per_second']:.0f}/s{scores}"
            print(text, file=self.stream, flush=True)
        elif validation is not None and not self.bar.disable:
            self.bar.write(f"epoch {epoch}/{epochs}  validation: {_scores(validation, draws)}", file=self.stream)

    def _write(self, line: dict[str, Any]) -> None:
        if self.file is not None:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()

    def close(self) -> None:
        """Finish the bar and the file."""
        self.bar.close()
        if self.file is not None:
            with suppress(OSError):  # what a full disk refused has been reported already
                self.file.close()


def _words(means: Means) -> str:
    accuracy = "" if means.accuracy is None else f" acc {means.accuracy:.3f}"
    return f"NLL {means.nll:.4f} KL {means.kl:.4g} beta {means.beta:.3g}{accuracy}"


def _scores(scores: dict[str, float], draws: int) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in scores.items()) + f" ({of_draws(draws)})"
