"""``slimbayes train``."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slimbayes._text_table import of_draws
from slimbayes.cli import tables
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import Trust, progress_bar

if TYPE_CHECKING:
    from slimbayes.training.config import TrainConfig
    from slimbayes.training.run import Run

__all__ = ["show_result", "train"]


def train(
    config: Annotated[
        Path,
        typer.Argument(help="A table, CSV or Parquet, or a configuration or a grid, in YAML.", show_default=False),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]", help="Changes to it, such as optimiser.lr=0.01 or method=k_tied."),
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
    with_report: Annotated[
        bool | None,
        typer.Option("--report/--no-report", help="Write RUN/report.html; by default for tables.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write to; by default runs/DATA-NET-METHOD-seedSEED, or runs/GRID for GRID.yaml."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last complete epoch.")] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show the effective configuration, and stop.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data sets are; $SLIMBAYES_DATA if not given.")
    ] = None,
    on: Annotated[str, typer.Option(help="Where a grid runs: local, or ray for a Ray cluster.")] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs of a grid side by side, one thread each; all cores if not given.")
    ] = None,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Begin though more memory is expected to be needed than is free.")
    ] = False,
    trust: Trust = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Train a model from a table, or a model or a grid of models from YAML.

    Of a table, CSV or Parquet, say which column to predict. What each column
    is taken for is printed, and can be put right by options. The folder gets
    report.html. slimbayes init TABLE writes the same as YAML, to go on from.

        slimbayes train houses.csv --target price

        slimbayes train houses.csv --target price --ignore id --max-seconds 60

        slimbayes train visits.parquet --target visits --task counts

    A first configuration, which needs no files:

        data: digits
        net: {name: mlp, hidden: [100, 100]}
        method: {name: rank1, members: 4}
        epochs: 20

    The folder gets config.yaml, run.json (commit, versions, hardware,
    seed), metrics.jsonl, checkpoints/ and result.json. A run that was
    interrupted in any way goes on with --resume.

    A grid has the keys base, methods, seeds and overrides; its cells run
    side by side, finished ones are not run again, others go on.

    On several processes or machines: torchrun --nproc-per-node 4 -m
    slimbayes train config.yaml

    Example: slimbayes train config.yaml method=k_tied epochs=5 --out runs/a
    """
    words = tables.TableWords(target, task, ignore, categorical, numeric)
    with errors_of("train"), tables.told_once(config, words):
        from slimbayes.training.networks import check_given
        from slimbayes.training.parsing import parse_config, with_overrides

        if ignore_memory:
            os.environ["SLIMBAYES_IGNORE_MEMORY"] = "1"  # for the processes of a grid as well
        content = tables.content_of(config, words, quiet)
        overrides = tables.all_words(overrides, method, members, epochs, max_seconds, lr, seed, data_dir)
        from slimbayes.training.grid import is_grid

        if is_grid(content):
            if with_report is not None:
                raise ValueError(f"--report is for one run, but {config} is a grid. Use slimbayes evaluate and report.")
            _grid(config, overrides, out, on, workers, print_config, trust or [], as_json, quiet)
            return
        if on != "local" or workers is not None:
            raise ValueError(f"--on and --workers are for grids, but {config} is one run: it has no key `base`.")
        content = with_overrides(content, overrides)
        if with_report is None:
            with_report = tables.is_table(config, words)
        parsed: TrainConfig = parse_config(content)
        if not print_config:
            check_given(parsed.net, trust or (), config)
        _single(parsed, out, resume, print_config, with_report, as_json, quiet)


def _single(
    parsed: "TrainConfig",
    out: Path | None,
    resume: bool,
    print_config: bool,
    with_report: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    from slimbayes.training.parsing import as_yaml

    if print_config:
        print(json.dumps(parsed.as_json(), indent=2) if as_json else as_yaml(parsed.as_json()), end="")
        return
    from slimbayes._allocator import keep_freed_memory
    from slimbayes.training import fit
    from slimbayes.training.meter import NonFiniteLoss

    keep_freed_memory()
    try:
        run = fit(parsed, out, resume=resume, quiet=quiet)
    except NonFiniteLoss as error:
        typer.secho(f"slimbayes train: {error}", fg="red", err=True)
        raise typer.Exit(3) from error
    except KeyboardInterrupt:
        typer.secho("slimbayes train: interrupted. --resume continues from the last complete epoch.", err=True)
        raise
    if os.environ.get("RANK", "0") != "0":  # under torchrun, the first process speaks for all
        return
    show_result(run, as_json)
    if with_report:
        _report(run, as_json, quiet)


def _report(run: "Run", as_json: bool, quiet: bool) -> None:
    """Evaluate a run and write its page, or say what is missing for that."""
    try:
        from slimbayes.evaluation.evaluating import evaluate
        from slimbayes.evaluation.loading import load_subject
        from slimbayes.report import write_report
    except ImportError as error:
        typer.secho(f"slimbayes train: no report was written. {error}", fg="yellow", err=True)
        return
    progress = (lambda done, total: None) if quiet else progress_bar("evaluating", "prediction")
    try:
        found = evaluate([load_subject(run.folder, trust=run.trust)], progress=progress)
        path = write_report(found, run.folder / "report.html")
    except ValueError as error:  # such as a likelihood without evaluation, or no test examples
        typer.secho(f"slimbayes train: no report was written. {error}", fg="yellow", err=True)
        return
    typer.echo(f"Report: {path}", err=as_json)


def show_result(run: "Run", as_json: bool) -> None:
    """Print the scores of a finished run."""
    result = run.result or {}
    if as_json:
        print(json.dumps({"folder": str(run.folder), **result}, indent=2))
        return
    # Runs of before do not say how many draws their scores are of.
    of = f" ({of_draws(result['draws'])})" if "draws" in result else ""
    for part in ("validation", "test"):
        if result.get(part):
            print(f"{part}: " + ", ".join(f"{name} {value:.4f}" for name, value in result[part].items()) + of)
    print(f"{run.folder}: best {result['best']}, {result['parameters']:,} parameters, {result['seconds']:.0f} s")


def _grid(
    config: Path,
    overrides: list[str],
    out: Path | None,
    on: str,
    workers: int | None,
    print_config: bool,
    trust: list[str],
    as_json: bool,
    quiet: bool,
) -> None:
    from slimbayes.training._cells import cells_of
    from slimbayes.training._grid_file import read_grid
    from slimbayes.training.grid import run_grid
    from slimbayes.training.networks import check_given
    from slimbayes.training.parsing import as_yaml

    wanted = cells_of(read_grid(config, overrides))
    if print_config:
        cells = {cell.name: cell.config.as_json() for cell in wanted}
        print(json.dumps(cells, indent=2) if as_json else as_yaml(cells), end="")
        return
    for cell in wanted:
        check_given(cell.config.net, trust, config)
    folder = Path("runs") / config.stem if out is None else out
    progress = None if quiet else progress_bar("grid", "run")
    table = run_grid(config, folder, overrides=overrides, on=on, workers=workers, progress=progress, quiet=quiet)
    print(json.dumps(table.as_json(), indent=2) if as_json else table)
    if not quiet:
        print(f"All cells: {folder}/results.csv", file=sys.stderr)
    if table.failed:
        raise typer.Exit(1)
