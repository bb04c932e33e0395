"""Commands, one function each; torch is imported only where a command needs it."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

__all__ = ["app"]

app = typer.Typer(
    name="slimbayes",
    help="Bayesian neural nets at the price of one network.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """Bayesian neural nets at the price of one network.

    Start with: slimbayes demo
    """


@app.command()
def demo(
    methods: Annotated[
        str, typer.Option(help="Methods to compare: plain, batch_ensemble, rank1, rank1_cauchy; separated by commas.")
    ] = "plain,batch_ensemble,rank1,rank1_cauchy",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training digits.")] = 40,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes side by side, one thread each; all cores if not given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the results, with settings and hardware, as JSON.")] = Path(
        "runs/demo.json"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")] = False,
) -> None:
    """Compare a plain network with Bayesian ones on handwritten digits, clean and corrupted.

    Needs no files: the digits ship inside scikit-learn. Takes about a minute.

    Example: slimbayes demo --methods plain,rank1 --seeds 5
    """
    from slimbayes.demo import run
    from slimbayes.demo.table import table

    try:
        if out.is_dir():
            raise IsADirectoryError(f"--out {out} is a folder; give a file, such as {out / 'demo.json'}")
        out.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(out.parent, os.W_OK):
            raise PermissionError(f"{out.parent} is not writable")
        results = run(methods.split(","), seeds, epochs, workers=workers or os.cpu_count() or 1, progress=_progress())
        out.write_text(json.dumps(results, indent=2) + "\n")
    except (ValueError, ImportError, OSError) as error:
        typer.secho(f"slimbayes demo: {error}", fg="red", err=True)
        raise typer.Exit(2) from error
    print(json.dumps(results, indent=2) if as_json else table(results))
    typer.echo(f"Settings, seeds and hardware: {out}", err=True)


def _progress() -> Any:
    """Return a progress callback: a bar on a terminal, silence elsewhere."""
    bar = tqdm(file=sys.stderr, disable=not sys.stderr.isatty(), desc="training", unit="run", leave=False)

    def report(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)
        bar.refresh()

    return report
