"""``slimbayes bench``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import check_out, progress_bar
from slimbayes.files import write_json

__all__ = ["bench"]


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
    with errors_of("bench"):
        check_choice("suite", suite, SUITES)
        out = out or Path("runs") / f"bench-{suite}.json"
        check_out(out, f"bench-{suite}.json")
        names = cases.split(",") if cases is not None else None
        results = run(suite, names, rounds, threads, progress=progress_bar("measuring", "round"))
        write_json(out, results)
    print(json.dumps(results, indent=2) if as_json else table(results))
    if results["warning"]:
        typer.secho(f"slimbayes bench: {results['warning']}", fg="yellow", err=True)
    typer.echo(f"Settings and hardware: {out}", err=True)
