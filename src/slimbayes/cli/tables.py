"""What `slimbayes train`, `init` and `tune` share: a table, or a YAML file, and simple options."""

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from slimbayes._text_table import aligned

if TYPE_CHECKING:
    from slimbayes.data.guess import TableGuess

__all__ = [
    "Categorical",
    "Epochs",
    "Ignore",
    "LearningRate",
    "MaxSeconds",
    "Members",
    "Method",
    "Numeric",
    "Seed",
    "TableWords",
    "Target",
    "TaskOption",
    "TaskWord",
    "all_words",
    "content_of",
    "is_table",
    "told_once",
]

#: Endings of tables, also before .gz and so on.
_TABLES = {".csv", ".tsv", ".tab", ".parquet", ".pq"}


class TaskWord(StrEnum):
    """What is predicted; see ``slimbayes.data.guess.TASK_WORDS``."""

    regression = "regression"
    classes = "classes"
    counts = "counts"


Target = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Of a table: the column to predict.", show_default=False)
]
TaskOption = Annotated[
    TaskWord | None, typer.Option("--task", help="Of a table: what the target is; guessed if not given.")
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Of a table: a column to leave out; several times for several."),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Of a table: a column whose values are names, such as codes."),
]
Numeric = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Of a table: a column whose values are numbers or dates, to be used as such."),
]
Method = Annotated[str | None, typer.Option(help="The same as method=..., such as k_tied.", show_default=False)]
Members = Annotated[int | None, typer.Option(min=1, help="The same as method.members=...", show_default=False)]
Epochs = Annotated[int | None, typer.Option(min=1, help="The same as epochs=...", show_default=False)]
MaxSeconds = Annotated[
    float | None, typer.Option(help="End each run after the epoch in which so many seconds have passed.")
]
LearningRate = Annotated[float | None, typer.Option("--lr", help="The same as optimiser.lr=...", show_default=False)]
Seed = Annotated[int | None, typer.Option(min=0, help="The same as seed=...", show_default=False)]


class TableWords(NamedTuple):
    """The options that are about a table alone."""

    target: str | None
    task: TaskWord | None
    ignore: list[str] | None
    categorical: list[str] | None
    numeric: list[str] | None

    @property
    def given(self) -> list[str]:
        """Names of the options that were given."""
        return [f"--{name}" for name, value in self._asdict().items() if value]


def all_words(
    overrides: Sequence[str] | None,
    method: str | None = None,
    members: int | None = None,
    epochs: int | None = None,
    max_seconds: float | None = None,
    lr: float | None = None,
    seed: int | None = None,
    data_dir: Path | None = None,
) -> list[str]:
    """Return simple options and words such as ``epochs=5`` in one list, in which parts go before what is in them.

    Example:
        >>> all_words(["data=digits"], method="k_tied", epochs=5, data_dir=Path("data"))
        ['method="k_tied"', 'data=digits', 'epochs=5', 'data.folder="data"']
    """
    values = {
        "method.members": members,
        "epochs": epochs,
        "max_seconds": max_seconds,
        "optimiser.lr": lr,
        "seed": seed,
        "data.folder": None if data_dir is None else str(data_dir),
    }
    first = [] if method is None else [f"method={json.dumps(method)}"]
    rest = [f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None]
    return [*first, *(overrides or ()), *rest]


def is_table(path: Path, words: TableWords) -> bool:
    """Tell whether a file is a table rather than YAML: by its ending, or because of ``--target``.

    Example:
        >>> is_table(Path("a.csv.gz"), TableWords(None, None, None, None, None))
        True
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        return False
    return bool(_TABLES & {suffix.lower() for suffix in path.suffixes[-2:]}) or words.target is not None


def content_of(path: Path, words: TableWords, quiet: bool = False) -> dict[str, Any]:
    """Return the keys and values of a YAML file, or those for a table, and tell what its columns are taken for."""
    if not is_table(path, words):
        if words.given:
            raise ValueError(
                f"{' and '.join(words.given)} are for tables, but {path} is a configuration. Write data.target=... and "
                "so on, or give the table itself."
            )
        from slimbayes.training.parsing import read_yaml

        return read_yaml(path)
    from slimbayes.data.guess import guess_table

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. Give a table, CSV or Parquet, or a configuration in YAML.")
    if words.target is None:
        from slimbayes.data._table_file import open_table_file

        with told_once(path, words):
            names = open_table_file(path).names
        raise ValueError(
            f"{path} is a table: say which of its columns to predict, such as --target {_quoted(names[-1])}. It has "
            f"{', '.join(names)}."
        )
    guess = guess_table(
        path,
        words.target,
        task=None if words.task is None else words.task.value,
        ignore=words.ignore or (),
        categorical=words.categorical or (),
        numeric=words.numeric or (),
    )
    from slimbayes.training.tables import table_content

    if not quiet:
        print(_told(guess, words), file=sys.stderr, flush=True)
    return table_content(guess, words.target)


@contextmanager
def told_once(path: Path, words: TableWords) -> Iterator[None]:
    """Within, nobody is warned of a table's decimal commas, of which its list of columns tells."""
    with warnings.catch_warnings():
        if is_table(path, words):
            from slimbayes.data._table_file import COMMAS

            warnings.filterwarnings("ignore", f".*{COMMAS}")
        yield


def _told(guess: "TableGuess", words: TableWords) -> str:
    table = [["column", "taken for", "missing", ""]]
    for column in guess.columns:
        used = {
            "target": f"target, {column.kind}",
            "input": column.kind,
            "ignored": f"left out: {column.kind}".rstrip(": "),
        }
        table.append([column.name, used[column.role], str(column.missing or ""), column.remark])
    what = "given" if words.task is not None else "guessed"
    return "\n".join(
        [
            f"{guess.path}: {guess.rows:,} rows, {guess.task} of {words.target} ({what})",
            aligned(table),
            "Otherwise: --task regression|classes|counts, --ignore, --categorical or --numeric COLUMN",
        ]
    )


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"'{name}'"
