"""What all calibrators share: they know whether they are fitted, on which outputs, and how to be stored."""

import weakref
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor

import slimbayes
from slimbayes._files import write_json
from slimbayes.batching import tensors
from slimbayes.calibration.split import checked_outputs
from slimbayes.prediction import Prediction

FORMAT = 1


@dataclass
class Calibrator:
    """Base of all calibrators; the fields of a subclass are its options, and with ``init=False`` what it has fitted.

    Attributes:
        examples: How many examples it was fitted on.
    """

    examples: int = field(default=0, init=False)
    _fitted_on: "weakref.ref[Tensor] | None" = field(default=None, init=False, repr=False, compare=False)

    def _fitted(self, prediction: Prediction, examples: int) -> None:
        self.examples, self._fitted_on = examples, weakref.ref(_memory(prediction))

    def _check_ready(self, prediction: Prediction) -> None:
        """Raise unless there was a fit, and on other data than these."""
        self._check_fitted()
        checked_outputs(prediction)
        fitted_on = None if self._fitted_on is None else self._fitted_on()
        if fitted_on is not None and _same(fitted_on, _memory(prediction)):
            raise ValueError(
                f"This {type(self).__name__} was fitted on this very prediction, on which it would look better than "
                "it is. Use it on other data: calibration, test = sb.calibration_split(prediction, targets)."
            )

    def _check_fitted(self) -> None:
        if not self.examples:
            raise RuntimeError(
                f"This {type(self).__name__} has seen no calibration data. Call fit(prediction, targets) first, with "
                "examples that are neither trained nor tested on."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the options and what was fitted, as JSON values."""
        self._check_fitted()
        public = [one for one in fields(self) if not one.name.startswith("_")]
        return {
            "format": FORMAT,
            "slimbayes": slimbayes.__version__,
            "calibrator": type(self).__name__,
            "options": {one.name: getattr(self, one.name) for one in public if one.init},
            "fitted": {one.name: getattr(self, one.name) for one in public if not one.init},
        }

    def save(self, path: str | Path) -> None:
        """Write ``state_dict()`` as JSON, whole or not at all; ``sb.load_calibration`` reads it."""
        write_json(Path(path), self.state_dict())

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_fitted_on": None}  # a weak reference cannot be pickled


def _memory(prediction: Prediction) -> Tensor:
    """Return a tensor that the prediction holds: ``outputs`` may be made anew each time."""
    return next(tensors(prediction.draws))


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are one piece of memory. Equal values are not enough: a constant model gives them too."""
    place = one.data_ptr() == other.data_ptr() and one.device == other.device
    return place and one.shape == other.shape and one.stride() == other.stride()
