"""``slimbayes init``."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slimbayes.cli import tables
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import check_out

if TYPE_CHECKING:
    from slimbayes.training.config import TrainConfig

__all__ = ["init"]

#: What is written if there is no table: it needs no files.
START: dict[str, Any] = {
    "data": {"name": "digits"},
    "net": {"name": "mlp", "hidden": [100, 100]},
    "method": {"name": "rank1", "members": 4},
    "optimiser": {"name": "adam", "lr": 0.003},
    "epochs": 20,
}


def init(
    table: Annotated[
        Path | None, typer.Argument(help="A table to train on: CSV or Parquet.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]", help="Keys to set, such as optimiser.lr=0.01.", show_default=False),
    ] = None,
    target: tables.Target = None,
    task: tables.TaskOption = None,
    ignore: tables.Ignore = None,
    categorical: tables.Categorical = None,
    numeric: tables.Numeric = None,
    method: tables.Method = None,
    members: tables.Members = None,
    epochs: tables.Epochs = None,
    max_seconds: tables.MaxSeconds = None,
    lr: tables.LearningRate = None,
    seed: tables.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write, with the schema beside it; otherwise it is printed."),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="The JSON schema, for editors, instead of a configuration.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what columns are taken for.")] = False,
) -> None:
    """Write a configuration with comments: every key, what it is, its default.

    Of a table it is the one that slimbayes train TABLE trains, with the same
    result. Without a table it is a starting point that needs no files. Keys
    that begin with # are not set; remove the # to set them.

    Editors that know the YAML language server complete and check the file if
    slimbayes.schema.json is beside it, which --out writes as well.

    A few examples:

      slimbayes init houses.csv --target price > config.yaml

      slimbayes init houses.csv --target price --method k_tied -o config.yaml

      slimbayes init method=mean_field net=lenet data=mnist -o config.yaml

      slimbayes init --schema -o slimbayes.schema.json

      slimbayes train config.yaml
    """
    with errors_of("init"):
        words = tables.TableWords(target, task, ignore, categorical, numeric)
        if schema:
            from slimbayes.training.schema import json_schema

            if table is not None or words.given:
                raise ValueError("Expected no table with --schema, which is the same for all. Leave one of them out.")
            _write(json.dumps(json_schema(), indent=2) + "\n", out)
            return
        changes = [*(overrides or ())]
        if table is not None and "=" in str(table) and not table.exists():  # the first of the words
            changes, table = [str(table), *changes], None
        if out is not None and out.exists():
            raise FileExistsError(f"{out} is there already. Give another --out, or remove it.")
        from slimbayes.training.commented import commented_yaml
        from slimbayes.training.models import check_method
        from slimbayes.training.networks import check_network
        from slimbayes.training.parsing import parse_config, with_overrides

        about = "A starting point, by slimbayes init."
        if table is not None:
            if not tables.is_table(table, words):
                raise ValueError(
                    f"Expected a table, CSV or Parquet, but got {table}. A table of other ending: --target."
                )
            content = tables.content_of(table, words, quiet)
            about = f"For {table.name}, by slimbayes init."
        elif words.given:
            raise ValueError(
                f"{' and '.join(words.given)} are for tables. Give one: slimbayes init TABLE --target COLUMN"
            )
        else:
            content = START
        content = with_overrides(content, tables.all_words(changes, method, members, epochs, max_seconds, lr, seed))
        parsed: TrainConfig = parse_config(content)
        check_network(parsed.net)
        check_method(parsed.method)
        _write(commented_yaml(content, about), out)
        if out is not None:
            from slimbayes.training.schema import SCHEMA_FILE, json_schema

            (out.parent / SCHEMA_FILE).write_text(json.dumps(json_schema(), indent=2) + "\n")
            typer.echo(f"Train it: slimbayes train {out}", err=True)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    check_out(out, "config.yaml")
    out.write_text(text)
