"""Calibrators from disk; numbers and names only, so loading runs no code."""

import json
from dataclasses import fields
from pathlib import Path

from slimbayes.calibration._calibrator import FORMAT, Calibrator
from slimbayes.calibration.conformal_classifier import ConformalClassifier
from slimbayes.calibration.conformal_regressor import ConformalRegressor
from slimbayes.calibration.temperature import TemperatureScaling

CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.__name__: kind for kind in (TemperatureScaling, ConformalClassifier, ConformalRegressor)
}


def load_calibration(path: str | Path) -> Calibrator:
    """Return the calibrator that ``save`` wrote.

    Example:
        >>> import tempfile, torch, slimbayes as sb
        >>> p = sb.Prediction(torch.randn(1, 50, 1), sb.Gaussian(noise=1.0))
        >>> regressor = sb.ConformalRegressor(level=0.8).fit(p, torch.randn(50))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     regressor.save(f"{folder}/interval.json")
        ...     load_calibration(f"{folder}/interval.json") == regressor
        True
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"No file {str(path)!r}. Give one that a calibrator's save(path) wrote.")
    try:
        state = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no JSON file. Give one that a calibrator's save(path) wrote.") from error
    state = state if isinstance(state, dict) else {}
    name = state.get("calibrator")
    if state.get("format") != FORMAT or name not in CALIBRATORS:
        raise ValueError(
            f"{str(path)!r} has format {state.get('format')!r} and calibrator {name!r}; this version reads format "
            f"{FORMAT} and {sorted(CALIBRATORS)}. Update slimbayes, or give a file that save(path) wrote."
        )
    options, fitted = state.get("options", {}), state.get("fitted", {})
    known = {one.name: one.init for one in fields(CALIBRATORS[name]) if not one.name.startswith("_")}
    wrong = {field for field, init in known.items() if not init} ^ set(fitted) | set(options) - set(known)
    if wrong:
        raise ValueError(
            f"{str(path)!r} has other fields than {name}: {sorted(wrong)}. Update slimbayes, or give a file that "
            "save(path) wrote."
        )
    calibrator = CALIBRATORS[name](**options)
    for field, value in fitted.items():
        setattr(calibrator, field, value)
    calibrator._check_fitted()
    return calibrator
