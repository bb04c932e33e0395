"""``slimbayes predict``."""

import codecs
import csv
import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from slimbayes._checks import check_choice
from slimbayes._files import csv_cell, replacing
from slimbayes._text_table import of_draws
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import Trust, check_out, progress_bar

if TYPE_CHECKING:
    from slimbayes.training.predicting import Columns

__all__ = ["predict"]


#: Takes a block of predictions.
Writer = Callable[["Columns"], None]

#: Of the files that predictions can be written to.
SUFFIXES = (".csv", ".parquet", ".json", ".npz")
#: Rows of a Parquet file that are written at once.
ROW_GROUP = 2**15


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
    each example, a folder of images, of texts or of patients' records. A table
    may be larger than the memory: it is read, and written, in blocks of rows.

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
    draws: list[int] = []
    examples, prints = 0, as_json or out is None
    with TemporaryFile() as printed:  # nothing is printed if a later block is an error
        with errors_of("predict"), ExitStack() as stack:
            if out is not None:
                check_choice("suffix of --out", out.suffix, SUFFIXES)
                check_out(out, "predictions.csv")
            from slimbayes.training import predicting
            from slimbayes.training.run import Run

            opened = Run.open(run, trust or ())
            finished = opened.result is not None
            writers: list[Writer] = []
            if out is not None:
                (temporary,) = stack.enter_context(replacing(out))
                file = stack.enter_context(temporary.open("wb"))
                writers.append(stack.enter_context(_WRITERS[out.suffix](file)))
            if prints:
                writers.append(stack.enter_context(_WRITERS[".json" if as_json else ".csv"](printed)))
            for columns in predicting.predict_blocks(
                opened,
                inputs,
                samples=samples,
                batch_size=batch_size,
                seed=seed,
                which=which.value,
                level=level,
                progress=progress_bar("predicting", "example"),
                drawn=draws.append,
            ):
                examples += len(columns["name"])
                for write in writers:
                    write(columns)
        if prints:
            printed.seek(0)
            shutil.copyfileobj(codecs.getreader("utf-8")(printed), sys.stdout)
    if not finished:
        typer.secho(f"slimbayes predict: the run in {run} is not finished.", fg="yellow", err=True)
    if out is not None:
        typer.echo(f"Predictions of {examples} examples, each of {of_draws(draws[0])}: {out}", err=True)


# ---------------------------------------------------------------------- formats: each takes columns block by block


@contextmanager
def _csv_writer(file: IO[bytes]) -> Iterator[Writer]:
    begun = False

    def write(columns: "Columns") -> None:
        nonlocal begun
        file.write(_as_csv(columns, header=not begun).encode())
        begun = True

    yield write


def _as_csv(columns: "Columns", header: bool = True) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(map(csv_cell, columns))
    writer.writerows(zip(*(_texts(values) for values in columns.values()), strict=True))
    return text.getvalue()


def _texts(values: Any) -> list[Any]:
    # More digits than single precision holds, even of a small deviation from a large mean.
    return [f"{value:.12g}" for value in values] if values.dtype.kind == "f" else [*map(csv_cell, values.tolist())]


@contextmanager
def _json_writer(file: IO[bytes]) -> Iterator[Writer]:
    """Write a list with an object for each example."""
    before = "[\n"

    def write(columns: "Columns") -> None:
        nonlocal before
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        text = ",\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
        file.write(f"{before}{text}".encode())
        before = ",\n"

    yield write
    file.write(b"\n]\n")


@contextmanager
def _parquet_writer(file: IO[bytes]) -> Iterator[Writer]:
    """Write groups of rows, which are in memory until they are full."""
    from slimbayes.data._table_file import pyarrow

    pa, group = pyarrow(), _Collected()
    writer: Any = None

    def flush() -> None:
        nonlocal writer
        table = pa.table(group.columns())
        writer = writer or pa.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
        group.clear()

    def write(columns: "Columns") -> None:
        group.append(columns)
        if sum(len(block["name"]) for block in group) >= ROW_GROUP:
            flush()

    try:
        yield write
        if group:
            flush()
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _npz_writer(file: IO[bytes]) -> Iterator[Writer]:
    """Write arrays, which are in memory until the end."""
    import numpy as np

    blocks = _Collected()
    yield blocks.append
    np.savez(file, **blocks.columns())  # type: ignore[arg-type]


class _Collected(list["Columns"]):
    """Blocks of columns."""

    def columns(self) -> "Columns":
        """Return the columns of all blocks."""
        import numpy as np

        return {name: np.concatenate([block[name] for block in self]) for name in self[0]}


_WRITERS = {".csv": _csv_writer, ".parquet": _parquet_writer, ".json": _json_writer, ".npz": _npz_writer}
