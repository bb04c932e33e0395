"""A page for one prediction: the input, what each member says, where the uncertainty is from, and what is nearest."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes._chunks import NonFiniteOutput
from slimbayes._files import replacing
from slimbayes.data.preparation import Raw
from slimbayes.evaluation._shown_example import named_values, shown
from slimbayes.model import BayesianModel
from slimbayes.report._density import HEIGHT, WIDTH
from slimbayes.report._near_training import near_training
from slimbayes.report._prediction_parts import Classes, parts_of, probability, share
from slimbayes.report._render import render
from slimbayes.training.predicting import check_finite, misfit, not_finite, read_inputs
from slimbayes.training.run import Run

__all__ = ["write_prediction_page"]

#: Outputs and members that a page shows.
MOST_OUTPUTS, MOST_MEMBERS = 6, 16


def write_prediction_page(
    run: Run,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    row: int | str = 0,
    samples: int | None = None,
    seed: int = 0,
    which: str = "best",
    level: float = 0.9,
    neighbours: int = 2000,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a page about what a run predicts for one example; the figures are those of ``predict_file``.

    Args:
        run: The run, finished or not; an epoch must be complete.
        path: Inputs as the run's data have them; see ``predict_file``.
        out: The page, one HTML file.
        row: Which example of the file: its number, from 0, or its name, such as that of an image file.
        samples: Draws of each member; 0 for each member at its location, None for ``model.default_samples``.
        seed: Of the draws, and of which training examples are looked at.
        which: The ``"best"`` or the ``"last"`` checkpoint.
        level: Probability inside the interval of a real value.
        neighbours: Training examples to compare with, at most; 0 for none. Without the run's data the page says so.
        progress: Called with the training examples done and the number of them.

    Returns:
        Where the page is.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from slimbayes.training import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit({"data": "iris", "net": "mlp", "epochs": 1}, Path(folder) / "run", quiet=True)
        ...     np.save(Path(folder) / "flowers.npy", np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]))
        ...     page = write_prediction_page(run, Path(folder) / "flowers.npy", Path(folder) / "page.html", row=1)
        ...     "Nearest training classes" in page.read_text()
        True
    """
    if samples is not None:
        check_count("samples", samples, 0, "Use 0 for each member at its location.")
    check_count("seed", seed, 0)
    check_count("neighbours", neighbours, 0)
    check_number("level", level, 0.0, 1.0, "Give the probability inside, such as 0.9.")
    check_choice("which", which, ("best", "last"))
    path, out = Path(path), Path(out)
    model, task, preparation = run.model(which), run.task, run.preparation
    if run.config.device == "auto" and torch.cuda.is_available():
        model = model.to("cuda")
    samples = model.default_samples if samples is None else samples
    raw, name = _one(read_inputs(preparation, path), row)
    inputs = tuple(x.to(model.device) for x in preparation(*raw))
    check_finite(path, [name], "inputs", *inputs)
    try:
        prediction = model.predict(*inputs, samples=samples, noise="shared", seed=seed, keep_draws=True)
    except NonFiniteOutput as error:
        raise not_finite(run, path, [name], error) from error
    except (RuntimeError, TypeError, ValueError, IndexError) as error:  # for a wrong shape, type or token
        raise ValueError(f"{path}: {misfit(inputs, task)} {str(error).splitlines()[0]}") from error
    check_finite(path, [name], "predictions", prediction.outputs.movedim(1, 0))
    parts = parts_of(prediction, task, level)
    label = parts[0].label if isinstance(parts[0], Classes) else None
    near = near_training(run, model, inputs, label, neighbours, seed, progress) if neighbours else None
    page = render(
        "prediction.html.j2",
        name=name,
        facts=_facts(run, path, name, model, len(prediction.outputs) // model.members, seed, which),
        input=shown(tuple(x[0] for x in raw), task, preparation),
        values=len(named_values(tuple(x[0] for x in raw), preparation)),
        real=task.likelihood == "gaussian",
        parts=parts[:MOST_OUTPUTS],
        outputs=len(parts),
        most_members=MOST_MEMBERS,
        near=near,
        box=(WIDTH, HEIGHT),
        probability=probability,
        share=share,
    )
    if out.exists() and not out.is_file():  # a device such as /dev/null is not to be replaced by a file
        out.write_text(page, "utf-8")
        return out
    with replacing(out) as (temporary,):
        temporary.write_text(page, "utf-8")
    return out


def _one(raw: Raw, row: int | str) -> tuple[tuple[Tensor, ...], str]:
    """Return the inputs of one example, a batch of one, and its name."""
    if str(row) in raw.names:
        number = raw.names.index(str(row))
    elif str(row).isdecimal():
        number = int(row)
        if number >= len(raw.names):
            raise ValueError(
                f"Expected argument `row` to be from 0 to {len(raw.names) - 1}, the last example, but got {row}."
            )
    else:
        check_choice("row", row, raw.names[:1000])
        raise AssertionError
    return tuple(x[number : number + 1] for x in raw.inputs), raw.names[number]


def _facts(
    run: Run, path: Path, name: str, model: BayesianModel, draws: int, seed: int, which: str
) -> list[tuple[str, str]]:
    return [
        ("Run", run.folder.name or str(run.folder)),
        ("Trained on", run.config.data.name),
        ("Method", model.method),
        ("Members", str(model.members)),
        ("Draws of each", str(draws)),
        ("Input", f"{path.name}, {name}" if name != path.name else name),
        ("Seed", str(seed)),
        ("Checkpoint", which),
    ]
