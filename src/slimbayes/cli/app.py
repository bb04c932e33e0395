"""Commands, one function each; torch is imported only where a command needs it."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from slimbayes.files import write_json

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

    with _errors_of("demo"):
        _check_out(out, "demo.json")
        progress = _progress("training", "run")
        results = run(methods.split(","), seeds, epochs, workers=workers or os.cpu_count() or 1, progress=progress)
        write_json(out, results)
    print(json.dumps(results, indent=2) if as_json else table(results))
    typer.echo(f"Settings, seeds and hardware: {out}", err=True)


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(help="What to measure; --list shows it.", show_default=False)] = "",
    cases: Annotated[
        str | None, typer.Option(help="Only these cases, separated by commas; the plain network is always measured.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timings of each case.")] = 50,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    out: Annotated[Path | None, typer.Option(help="JSON to write, by default runs/bench-SUITE.json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")] = False,
    list_suites: Annotated[bool, typer.Option("--list", help="Show the suites and their cases, and stop.")] = False,
) -> None:
    """Measure the time of a training step as a ratio to the plain network's.

    Each round times every case once, in shuffled order: zero_grad, forward,
    loss, backward, Adam, all on the same rows. Ratios are taken within a
    round, so that slow drifts of the machine cancel. The table has their
    median, their quartiles, and a 95% interval of the median.

    Let nothing else run meanwhile: it would not slow all cases alike. A
    warning is printed and stored if the machine was busy before the start.

    Example: slimbayes bench dense --cases rank1,batch_ensemble --rounds 100
    """
    from slimbayes._checks import check_choice
    from slimbayes.bench import SUITES, run
    from slimbayes.bench.table import table

    if list_suites:
        for one in SUITES.values():
            print(f"{one.name}: {one.description}\n  cases: {', '.join(case.name for case in one.cases)}")
        return
    with _errors_of("bench"):
        check_choice("suite", suite, SUITES)
        out = out or Path("runs") / f"bench-{suite}.json"
        _check_out(out, f"bench-{suite}.json")
        names = cases.split(",") if cases is not None else None
        results = run(suite, names, rounds, threads, progress=_progress("measuring", "round"))
        write_json(out, results)
    print(json.dumps(results, indent=2) if as_json else table(results))
    if results["warning"]:
        typer.secho(f"slimbayes bench: {results['warning']}", fg="yellow", err=True)
    typer.echo(f"Settings and hardware: {out}", err=True)


@contextmanager
def _errors_of(command: str) -> Iterator[None]:
    """Say what a user can put right in one line, without a traceback."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        typer.secho(f"slimbayes {command}: {error}", fg="red", err=True)
        raise typer.Exit(2) from error


def _check_out(out: Path, example: str) -> None:
    """Raise if results cannot be written there, before any time is spent on them."""
    if out.is_dir():
        raise IsADirectoryError(f"--out {out} is a folder; give a file, such as {out / example}")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(f"{out.parent} is not writable")


def _progress(doing: str, unit: str) -> Any:
    """Return a progress callback: a bar on a terminal, silence elsewhere."""
    bar = tqdm(file=sys.stderr, disable=not sys.stderr.isatty(), desc=doing, unit=unit, leave=False)

    def report(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)
        bar.refresh()

    return report
