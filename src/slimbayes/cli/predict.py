"""``slimbayes predict``."""

import csv
import io
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slimbayes._checks import check_choice
from slimbayes._files import csv_cell, replacing
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import Trust, check_out, of_draws, progress_bar

if TYPE_CHECKING:
    from slimbayes.training.predicting import Columns

__all__ = ["predict"]


#: Of the files that predictions can be written to.
SUFFIXES = (".csv", ".parquet", ".json", ".npz")


class Which(StrEnum):
    """Checkpoints of a run."""

    best = "best"
    last = "last"


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of the run, as slimbayes train wrote it.")],
    inputs: Annotated[Path, typer.Argument(help="What to predict for: a file or folder such as the run's data.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write: .csv, .parquet, .json or .npz; by default CSV is printed.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=0, help="Draws of each member, 0 for its mean weights; by default 8 draws in all.", show_default=False
        ),
    ] = None,
    which: Annotated[
        Which, typer.Option(help="Checkpoint to use; the best has the lowest validation NLL.")
    ] = Which.best,
    level: Annotated[float, typer.Option(help="Probability from low to high, for a regression.")] = 0.9,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws; the same seed gives the same predictions.")] = 0,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Examples at once; by default as many as a bounded memory allows.")
    ] = None,
    trust: Trust = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object for each example.")] = False,
) -> None:
    """Predict for new inputs with a trained model, and say how sure it is.

    Inputs are given as they were for training, before any scaling: a CSV or
    Parquet table with the same columns, an .npz or .npy file with one row for
    each example, a folder of images, of texts or of patients' records.

    For classes there is a row for each example with its label, confidence,
    the probability p_CLASS of each class, entropy (all uncertainty),
    expected_entropy (noise in the data), mutual_information (what the model
    does not know) and disagreement (share of pairs of members that differ).
    For a regression there are mean, std, aleatoric_std (noise in the data),
    epistemic_std (what the model does not know), low and high, all in the
    target's own units.

    In CSV, a name or class that begins as a formula does (= + - @) gets a '
    before it, so that no spreadsheet runs it.

    A few examples:

      slimbayes predict runs/wine new.npz

      slimbayes predict runs/houses new.csv --out prices.csv --level 0.95

      slimbayes predict runs/cifar photos/ --out labels.parquet --samples 5

      slimbayes predict runs/wine new.npz --json | jq '.[].label'
    """
    with errors_of("predict"):
        if out is not None:
            check_choice("suffix of --out", out.suffix, SUFFIXES)
            check_out(out, "predictions.csv")
        from slimbayes.training.predicting import predict_file
        from slimbayes.training.run import Run

        opened = Run.open(run, trust or ())
        draws: list[int] = []
        columns = predict_file(
            opened,
            inputs,
            samples=samples,
            batch_size=batch_size,
            seed=seed,
            which=which.value,
            level=level,
            progress=progress_bar("predicting", "example"),
            drawn=draws.append,
        )
        if out is not None:
            _write(out, columns)
    if as_json or out is None:
        sys.stdout.write(_as_json(columns) if as_json else _as_csv(columns))
    if opened.result is None:
        typer.secho(f"slimbayes predict: the run in {run} is not finished.", fg="yellow", err=True)
    if out is not None:
        typer.echo(f"Predictions of {len(columns['name'])} examples, each of {of_draws(draws[0])}: {out}", err=True)


def _write(path: Path, columns: "Columns") -> None:
    """Write the columns in the format of the file's name, whole or not at all."""
    with replacing(path) as (temporary,), temporary.open("wb") as file:
        if path.suffix == ".parquet":
            from slimbayes.data._table_file import pyarrow

            pa = pyarrow()
            pa.parquet.write_table(pa.table(columns), file)
        elif path.suffix == ".npz":
            import numpy as np

            np.savez(file, **columns)  # type: ignore[arg-type]
        else:
            file.write((_as_csv if path.suffix == ".csv" else _as_json)(columns).encode())


def _as_csv(columns: "Columns") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(csv_cell, columns))
    writer.writerows(zip(*(_texts(values) for values in columns.values()), strict=True))
    return text.getvalue()


def _texts(values: Any) -> list[Any]:
    # More digits than single precision holds, even of a small deviation from a large mean.
    return [f"{value:.12g}" for value in values] if values.dtype.kind == "f" else [*map(csv_cell, values.tolist())]


def _as_json(columns: "Columns") -> str:
    """Return a list with an object for each example."""
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return "[\n" + ",\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows) + "\n]\n"
