"""Predictions of a run for a user's own inputs: a table with columns of uncertainty."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes._chunks import NonFiniteOutput
from slimbayes.data.dataset import Task
from slimbayes.data.preparation import Preparation, Raw, RawBlocks
from slimbayes.likelihoods import Bernoulli
from slimbayes.model import BayesianModel
from slimbayes.prediction import Prediction
from slimbayes.training.run import Run

__all__ = ["Columns", "check_finite", "misfit", "not_finite", "predict_blocks", "predict_file", "read_inputs"]

#: By name, one value for each example.
Columns = dict[str, NDArray[Any]]

#: Examples, and numbers (of their inputs or of all draws' outputs), that are in memory at once.
BLOCK, NUMBERS = 2048, 2**24


def predict_file(run: Run, path: str | os.PathLike[str], **options: Any) -> Columns:
    """Predict for every example of a file or folder, in its order.

    Args:
        run: The run, finished or not; an epoch must be complete.
        path: Inputs as the run's data have them, before any preparation: a CSV or Parquet file for a table, an .npz or
            .npy file for arrays, a folder of images, records or texts.
        **options: See ``predict_blocks``.

    Returns:
        Columns by name, all of the same length, see ``predict_blocks``.

    Example:
        >>> import tempfile
        >>> from slimbayes.training import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit({"data": "iris", "net": "mlp", "epochs": 1}, Path(folder) / "run", quiet=True)
        ...     np.save(Path(folder) / "flowers.npy", np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]))
        ...     columns = predict_file(run, Path(folder) / "flowers.npy")
        >>> list(columns)[:4], columns["name"].tolist()
        (['name', 'label', 'confidence', 'p_setosa'], ['0', '1'])
    """
    parts = list(predict_blocks(run, path, **options))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def predict_blocks(
    run: Run,
    path: str | os.PathLike[str],
    *,
    samples: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    which: str = "best",
    level: float = 0.9,
    progress: Callable[[int, int], None] | None = None,
    drawn: Callable[[int], None] | None = None,
) -> Iterator[Columns]:
    """Predict for every example of a file or folder, in its order, some at a time.

    Of a CSV or Parquet table no more than some rows are in memory at once, however long it is.

    All examples meet the same draws of the weights. What is predicted for one therefore depends on the seed, but not
    on the other examples, and but for rounding not on how many are handled at once.

    Args:
        run: The run, see ``predict_file``.
        path: The inputs, see ``predict_file``.
        samples: Draws of each member; 0 for each member at its location, None for ``model.default_samples``.
        batch_size: Examples that go through the network at once; None for as many as a bounded memory allows.
        seed: Of the draws.
        which: The ``"best"`` or the ``"last"`` checkpoint.
        level: Probability inside the interval from ``low`` to ``high``.
        progress: Called with the examples done and the number of them.
        drawn: Called with the number of draws that each prediction is of.

    Yields:
        Columns by name, all of the same length. ``name`` is the number of the row, or the file. For classes: ``label``,
        ``confidence``, ``p_CLASS`` for each class (``p`` alone, that of yes, for yes or no), ``entropy``,
        ``expected_entropy``, ``mutual_information``, ``disagreement``; see ``Prediction``. For a regression, in the
        target's own units: ``mean``, ``std``, ``aleatoric_std``, ``epistemic_std``, ``low``, ``high``. If an example
        has several targets, the names end in their numbers: ``mean_0``, ``mean_1``.
    """
    if samples is not None:
        check_count("samples", samples, 0, "Use 0 for each member at its location.")
    check_count("seed", seed, 0)
    check_number("level", level, 0.0, 1.0, "Give the probability inside, such as 0.9.")
    check_choice("which", which, ("best", "last"))
    if batch_size is not None:
        check_count("batch_size", batch_size)
    path, task, model = Path(path), run.task, run.model(which)
    if run.config.device == "auto" and torch.cuda.is_available():
        model = model.to("cuda")
    preparation, samples = run.preparation, model.default_samples if samples is None else samples
    if drawn is not None:
        drawn(model.members * max(1, samples))
    raw, done = _opened(preparation, path), 0
    for some, names in raw.blocks(_block_size(raw, model, samples, task)):
        inputs = preparation(*some)
        check_finite(path, names, "inputs", *inputs)
        try:
            prediction = model.predict(
                *(x.to(model.device) for x in inputs),
                samples=samples,
                batch_size=batch_size,
                noise="shared",
                seed=seed,
                keep_draws=True,
            )
        except NonFiniteOutput as error:
            raise not_finite(run, path, names, error) from error
        except (RuntimeError, TypeError, ValueError, IndexError) as error:  # for a wrong shape, type or token
            raise ValueError(f"{path}: {misfit(inputs, task)} {str(error).splitlines()[0]}") from error
        check_finite(path, names, "predictions", prediction.outputs.movedim(1, 0))
        yield {"name": np.array(names), **_figures(prediction, task, level)}
        done += len(names)
        if progress is not None:
            progress(done, raw.size)


def read_inputs(preparation: Preparation, path: Path) -> Raw:
    """Return the raw inputs of a file or folder, or raise if there are none."""
    _check_exists(path)
    raw = preparation.read(path)
    _check_some(path, len(raw.names))
    return raw


def _opened(preparation: Preparation, path: Path) -> RawBlocks:
    _check_exists(path)
    raw = preparation.open(path)
    _check_some(path, raw.size)
    return raw


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {path} to predict for.")


def _check_some(path: Path, examples: int) -> None:
    if not examples:
        raise ValueError(f"{path} holds no examples.")


def _block_size(raw: RawBlocks, model: BayesianModel, samples: int, task: Task) -> int:
    outputs = model.members * max(samples, 1) * task.outputs
    return max(1, min(BLOCK, NUMBERS // max(raw.numbers, outputs)))


def check_finite(path: Path, names: list[str], what: str, *tensors: Tensor) -> None:
    """Raise if a number is NaN or infinite; examples come first."""
    for x in tensors:
        right = x.isfinite().reshape(len(names), -1).all(1)
        if not right.all():
            name = names[int(right.logical_not().nonzero()[0])]
            raise ValueError(
                f"{path}: the {what} of {name!r} are not finite. Fill missing values and correct extreme ones, as was "
                "done for training."
            )


def not_finite(run: Run, path: Path, names: list[str], error: NonFiniteOutput) -> ValueError:
    """Return the error for outputs that are not finite: because of the weights, or of these inputs."""
    if error.weight is not None:
        return ValueError(f"The model of {run.folder} cannot predict for {path}: {error}")
    return ValueError(
        f"{path}: the predictions of {names[error.example]!r} are not finite, though its inputs are. Correct extreme "
        "values, as was done for training."
    )


def misfit(inputs: tuple[Tensor, ...], task: Task) -> str:
    """Return what to say of inputs that the network failed on."""
    shapes = ", ".join(f"{tuple(x.shape[1:])} of {str(x.dtype).removeprefix('torch.')}" for x in inputs)
    return f"the network cannot take examples of shape {shapes}; it was trained on shape {task.input_shape}."


# ---------------------------------------------------------------------- columns


def _figures(prediction: Prediction, task: Task, level: float) -> Columns:
    """Return the columns of a block, computed in double precision."""
    prediction = replace(prediction, draws=prediction.outputs.double())
    if prediction.likelihood is not None and prediction.likelihood.offers("moments"):
        return _regression(prediction, task, level)
    return _classification(prediction, task)


def _regression(prediction: Prediction, task: Task, level: float) -> Columns:
    columns: Columns = {}
    bounds = dict(zip(("low", "high"), prediction.interval(level), strict=True))
    for name in ("mean", "std", "aleatoric_std", "epistemic_std", "low", "high"):
        values = bounds[name] if name in bounds else getattr(prediction, name)
        shift = 0.0 if name.endswith("std") else task.target_mean
        columns |= _named(name, values * task.target_std + shift)
    return columns


def _classification(prediction: Prediction, task: Task) -> Columns:
    labels = _named("label", prediction.label)
    if task.classes is not None:
        labels = {name: np.array(task.classes)[numbers] for name, numbers in labels.items()}
    columns = labels | _named("confidence", prediction.confidence)
    if isinstance(prediction.likelihood, Bernoulli):
        columns |= _named("p", prediction.probs)
    else:
        for number, values in enumerate(prediction.probs.unbind(-1)):
            columns |= _named(f"p_{number if task.classes is None else task.classes[number]}", values)
    for name in ("entropy", "expected_entropy", "mutual_information", "disagreement"):
        columns |= _named(name, getattr(prediction, name))
    return columns


def _named(name: str, values: Tensor) -> Columns:
    """Return one column, or one for each of an example's several values."""
    table = values.reshape(len(values), -1).cpu().numpy() + 0  # makes 0 of -0
    if table.shape[1] == 1:
        return {name: table[:, 0]}
    return {f"{name}_{number}": table[:, number] for number in range(table.shape[1])}
