"""The command line of the benchmarks: ``python -m benchmarks [SUITE]`` in a clone."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.growth import AXES, SPLITTING_NETWORKS, growth_figure, growth_table, run_growth
from benchmarks.lstm import LSTM, LSTM_ROWS
from benchmarks.machine import accelerator
from benchmarks.networks import NETWORKS
from benchmarks.price import run_price
from benchmarks.price_rows import ROWS
from benchmarks.price_table import peers, price_table, profile_table
from benchmarks.service import SERVED_NETWORKS, run_service, service_table
from benchmarks.service_forms import FORMS
from benchmarks.suite_run import run, table
from benchmarks.suites import SUITES
from slimbayes._checks import check_choice
from slimbayes._files import write_json
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import check_out, progress_bar
from slimbayes.report._svg import save

__all__ = ["app"]

app = typer.Typer(name="python -m benchmarks", pretty_exceptions_enable=False, add_completion=False)

#: Timings of each case of a suite.
ROUNDS = 50

#: Takes cases, networks, rounds, threads and the file to write; returns the results and what is shown of them.
Other = Callable[[list[str] | None, list[str] | None, int | None, int, Path], tuple[dict[str, Any], str]]


def _growth(
    cases: list[str] | None, networks: list[str] | None, rounds: int | None, threads: int, out: Path
) -> tuple[dict[str, Any], str]:
    """Measure how a train step grows; cases are axes, networks those on which splitting is measured."""
    check_out(out, "bench-growth.json")
    results = run_growth(
        cases,
        rounds=rounds,
        splitting=SPLITTING_NETWORKS if networks is None else networks,
        threads=threads,
        progress=progress_bar("measuring", "round"),
        save=partial(write_json, out),
    )
    return results, growth_table(results)


def _service(
    cases: list[str] | None, networks: list[str] | None, rounds: int | None, threads: int, out: Path
) -> tuple[dict[str, Any], str]:
    """Measure single requests; cases are forms, rounds are requests."""
    check_out(out, "bench-service.json")
    results = run_service(
        SERVED_NETWORKS if networks is None else networks,
        forms=cases,
        requests=rounds,
        threads=threads,
        progress=progress_bar("measuring", "batch"),
        save=partial(write_json, out),
    )
    return results, service_table(results)


#: By name.
OTHERS: dict[str, Other] = {"growth": _growth, "service": _service}


@app.command()
def bench(
    suite: Annotated[
        str, typer.Argument(help="A suite to measure instead of the table; --list shows them.", show_default=False)
    ] = "",
    networks: Annotated[
        str | None, typer.Option(help="Only these networks of the table, separated by commas, such as conv_16,mlp_512.")
    ] = None,
    cases: Annotated[
        str | None, typer.Option(help="Only these cases, separated by commas; the plain network is always measured.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Timings of each case: by default what fits into ten minutes, {ROUNDS} in a suite.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    gpu: Annotated[bool, typer.Option("--gpu", help="Measure the table on the GPU or another accelerator.")] = False,
    profile: Annotated[
        str, typer.Option(help="Say where the time goes in the table's misses, in all of its cases, or in none.")
    ] = "misses",
    out: Annotated[
        Path | None, typer.Option(help="JSON to write, by default runs/bench.json or runs/bench-SUITE.json.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Folder for a drawing of growth, as SVG and PDF.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")] = False,
    list_suites: Annotated[
        bool, typer.Option("--list", help="Show the table's networks, the suites and their cases, and stop.")
    ] = False,
) -> None:
    """Measure what a Bayesian network costs, as a ratio to the plain network.

    Without a suite: the price of every method on every network, in less than
    ten minutes. A train step is zero_grad, forward, cross entropy (with the
    KL), backward and Adam; all cases of a network run on as many rows. The
    table has each ratio with the expected one, marks what exceeds it, and says
    where the time goes there. Other libraries' stored ratios follow.

    Each round times every case once, in shuffled order. Ratios are taken
    within a round, so that slow drifts of the machine cancel. The JSON has
    their median, their quartiles, and a 95% interval of the median.

    Let nothing else run meanwhile: it would not slow all cases alike. A
    warning is printed and stored if the machine was busy before the start.

    Example: python -m benchmarks

    Example: python -m benchmarks --networks mlp_512 --cases "rank1 split" --rounds 20

    Example: python -m benchmarks dense --cases rank1,batch_ensemble --rounds 100

    Example: python -m benchmarks growth --figure figures

    Example: python -m benchmarks service --networks mlp_512
    """
    if list_suites:
        _list()
        return
    with errors_of("benchmarks", "python -m"):
        out = out or Path("runs") / (f"bench-{suite}.json" if suite else "bench.json")
        names = cases.split(",") if cases is not None else None
        which = networks.split(",") if networks is not None else None
        if figure is not None and suite != "growth":
            raise ValueError("--figure draws growth: give it to `python -m benchmarks growth`.")
        if suite in OTHERS:
            if gpu or profile != "misses":
                raise ValueError(f"--gpu and --profile belong to the table: leave out {suite!r}.")
            results, shown = OTHERS[suite](names, which, rounds, threads, out)
            if figure is not None:
                save(growth_figure(results), figure)
        elif suite:
            if networks is not None or gpu or profile != "misses":
                raise ValueError(f"--networks, --gpu and --profile belong to the table: leave out {suite!r}.")
            results, shown = _suite(suite, names, ROUNDS if rounds is None else rounds, threads, out)
        else:
            results, shown = _price(which, names, rounds, threads, gpu, profile, out)
    print(json.dumps(results, indent=2) if as_json else shown)
    if results["warning"]:
        typer.secho(f"python -m benchmarks: {results['warning']}", fg="yellow", err=True)
    typer.echo(f"Settings and hardware: {out}", err=True)


def _list() -> None:

    print(f"The table's networks: {', '.join(NETWORKS)}\n  cases: {', '.join(ROWS)}")
    print(f"and {LSTM.name}\n  cases: {', '.join(LSTM_ROWS)}\n\nSuites:")
    for one in SUITES.values():
        print(f"{one.name}: {one.description}\n  cases: {', '.join(case.name for case in one.cases)}")
    print(f"growth: time and memory of a train step along axes\n  cases: {', '.join(AXES)}")
    print(f"service: latency and rows per second of predictions\n  cases: {', '.join(FORMS)}")


def _suite(suite: str, cases: list[str] | None, rounds: int, threads: int, out: Path) -> tuple[dict[str, Any], str]:

    check_choice("suite", suite, [*SUITES, *OTHERS])
    check_out(out, f"bench-{suite}.json")
    results = run(suite, cases, rounds, threads, progress=progress_bar("measuring", "round"))
    write_json(out, results)
    return results, table(results)


def _price(
    networks: list[str] | None,
    cases: list[str] | None,
    rounds: int | None,
    threads: int,
    gpu: bool,
    profile: str,
    out: Path,
) -> tuple[dict[str, Any], str]:

    device = accelerator() if gpu else "cpu"
    check_out(out, "bench.json")
    results = run_price(
        networks,
        rounds,
        threads,
        progress=progress_bar("measuring", "%"),
        save=partial(write_json, out),
        device=device,
        cases=cases,
        profile=profile,
    )
    parts = [price_table(results, stored_peers=peers()), profile_table(results)]
    return results, "\n\n".join(part for part in parts if part)


if __name__ == "__main__":
    app()
