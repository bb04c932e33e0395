"""``slimbayes tune``."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tqdm import tqdm

from slimbayes.cli import tables
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import Trust

if TYPE_CHECKING:
    from slimbayes.training.config import TrainConfig

__all__ = ["tune"]


def tune(
    config: Annotated[
        Path, typer.Argument(help="A table, CSV or Parquet, or a configuration, in YAML.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]", help="Changes, such as batch_size=64 or tune.pruner=hyperband."),
    ] = None,
    target: tables.Target = None,
    task: tables.TaskOption = None,
    ignore: tables.Ignore = None,
    categorical: tables.Categorical = None,
    numeric: tables.Numeric = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Configurations to try; 20 if tune.trials is not given.")
    ] = None,
    pruner: Annotated[
        str | None, typer.Option(help="What ends a trial early: median, hyperband or none.", show_default=False)
    ] = None,
    method: tables.Method = None,
    members: tables.Members = None,
    epochs: tables.Epochs = None,
    max_seconds: tables.MaxSeconds = None,
    seed: tables.Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write to; by default runs/tune- and the run's name.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data sets are; $SLIMBAYES_DATA if not given.")
    ] = None,
    trust: Trust = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the trials as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Try configurations, and keep the one with the best validation NLL.

    Optuna suggests values, from the second trial on, and ends trials early
    that are worse than the others were at that epoch. Only validation
    examples are looked at, never test examples; the validation score of the
    best of many is better than what it will have on others, so train best.yaml
    for its test score.

    Each trial is a run, in FOLDER/trials, that predict, evaluate and report
    take. The same command goes on after any interruption, with nothing lost
    but the epoch under way, and with more --trials adds some. FOLDER also
    gets trials.csv, best.yaml and study.db, Optuna's storage.

    By default the learning rate, widths of layers and the method's scales are
    tried, around what the configuration has. Others go into the YAML:

        tune:
          space:
            optimiser.lr: {low: 1e-4, high: 1e-2, log: true}
            net.hidden: {width: [32, 256], depth: [1, 4]}
            batch_size: [32, 64, 128]

    A few examples:

      slimbayes tune houses.csv --target price --trials 30

      slimbayes tune config.yaml --trials 50 --pruner hyperband -o runs/tuned

      slimbayes train runs/tuned/best.yaml
    """
    words = tables.TableWords(target, task, ignore, categorical, numeric)
    with errors_of("tune"), tables.told_once(config, words):
        from slimbayes.training.grid import is_grid
        from slimbayes.training.networks import check_given
        from slimbayes.training.parsing import parse_config, with_overrides

        content = tables.content_of(config, words, quiet)
        if is_grid(content):
            raise ValueError(f"Expected one configuration to tune, but {config} is a grid: it has a key `base`.")
        own = {"trials": trials, "pruner": pruner}
        changes = [
            *tables.all_words(overrides, method, members, epochs, max_seconds, None, seed, data_dir),
            *(f"tune.{key}={json.dumps(value)}" for key, value in own.items() if value is not None),
        ]
        parsed: TrainConfig = parse_config(with_overrides(content, changes))
        check_given(parsed.net, trust or (), config)
        from slimbayes._allocator import keep_freed_memory
        from slimbayes.training.tuning import tune as tune_config

        keep_freed_memory()
        teller = _Teller(quiet)
        try:
            tuning = tune_config(parsed, out, told=teller)
        except KeyboardInterrupt:
            typer.secho("slimbayes tune: interrupted. The same command goes on from the last epoch.", err=True)
            raise
        finally:
            teller.close()
    best = tuning.best
    if as_json:
        print(json.dumps({"folder": str(tuning.folder), "best": best, "trials": tuning.rows}, indent=2))
    else:
        print(tuning)
        if best is not None:
            print(f"Best: trial {best['number']}, chosen on validation examples alone; the test examples are unseen.")
            print(f"slimbayes train {tuning.folder / 'best.yaml'}")
    if best is None:
        typer.secho("slimbayes tune: no trial was finished; trials.csv says how each ended.", fg="red", err=True)
        raise typer.Exit(1)


class _Teller:
    """A bar on a terminal, a line for each trial elsewhere."""

    def __init__(self, quiet: bool) -> None:
        terminal = sys.stderr.isatty()
        self.lines = not quiet and not terminal
        self.bar = tqdm(file=sys.stderr, disable=quiet or not terminal, desc="tune", unit="trial", leave=False)

    def __call__(self, rows: list[dict[str, Any]], trials: int) -> None:
        finished = [row["nll"] for row in rows if row["state"] == "finished"]
        best = f"best validation NLL {min(finished):.4f}" if finished else "none finished"
        self.bar.total = trials
        self.bar.set_postfix_str(best, refresh=False)
        self.bar.update(len(rows) - self.bar.n)
        if self.lines:
            row = max(rows, key=lambda one: one["number"])
            nll = "" if row["nll"] is None else f", validation NLL {row['nll']:.4f}"
            how = row["error"] or f"{row['state']} after epoch {row['epochs']}{nll}; {best}"
            print(f"trial {len(rows)}/{trials} {how}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        self.bar.close()
