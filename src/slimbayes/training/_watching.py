"""What the k-tied paper plots of a training run: the bound, the standard deviations, the noise of their gradients."""

import math
import time
from typing import Any

from slimbayes._seeds import Purpose, mix
from slimbayes.analysis.drift import PosteriorDrift
from slimbayes.analysis.gradient_snr import GradientSNR
from slimbayes.data.dataset import DataSet
from slimbayes.model import BayesianModel
from slimbayes.training._variational_scores import variational_scores
from slimbayes.training.config import Watch

#: What is kept of the scores on validation examples.
BOUND = ("negative_elbo", "expected_nll", "kl_per_example", "nll")


class Watcher:
    """Looks at a model while it trains, and leaves its training as it is.

    Args:
        config: What to look at, and when.
        model: The model.
        data: Its validation examples, if there are any, give the bound.
        seed: Of the run.
    """

    def __init__(self, config: Watch, model: BayesianModel, data: DataSet, seed: int) -> None:
        self.config, self.model, self.data, self.seed = config, model, data, seed
        self.snr = GradientSNR(model, config.window) if config.snr else None
        self.seconds = 0.0
        if config.every is not None:
            PosteriorDrift(model)  # raises at once for a model without a spread

    def gradients(self, step: int) -> None:
        """Take in a step's gradients: after the backward pass, before they are used."""
        if self.snr is not None and any(last - self.config.window < step <= last for last in self.config.snr):
            start = time.perf_counter()
            if any(step == last - self.config.window + 1 for last in self.config.snr):
                self.snr.reset()
            self.snr.update()
            self.seconds += time.perf_counter() - start

    def after(self, step: int) -> dict[str, Any] | None:
        """Return what there is to see after a step, as JSON values."""
        start = time.perf_counter()
        seen: dict[str, Any] = {}
        if self.config.every is not None and (step % self.config.every == 0 or step == 1):
            if self.data.validation is not None:
                seed, samples = mix(self.seed, Purpose.EVALUATION, step), self.config.samples
                number = len(self.data.train)
                scores = variational_scores(self.model, self.data.validation, self.data, number, samples, seed)
                seen |= {name: scores[name]["value"] for name in BOUND}
            drift = PosteriorDrift(self.model)
            drift.update(step)
            seen["scales"] = {name: values[0].item() for name, values in drift.scales.items()}
        if self.snr is not None and step in self.config.snr:
            ratios = {name: _finite(ratio._asdict()) for name, ratio in self.snr.compute().items()}
            seen["snr"] = {**_finite({"model": self.snr.of_model()}), "layers": ratios}
        self.seconds += time.perf_counter() - start
        return seen or None

    def state_dict(self) -> dict[str, Any]:
        """Return what a continued run needs: the gradients of a window that is open."""
        return {} if self.snr is None or self.snr.full else self.snr.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if self.snr is not None and state:
            self.snr.load_state_dict(state)


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """JSON has no infinity: null is the mean where some gradient never changed."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
