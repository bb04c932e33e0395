"""``slimbayes demo``."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from slimbayes._files import write_json
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import check_out, numbers, progress_bar

__all__ = ["demo"]


def demo(
    methods: Annotated[
        str,
        typer.Option(
            help="Methods to compare, separated by commas: plain, temperature, mc_dropout, deep_ensemble, "
            "batch_ensemble, rank1, rank1_cauchy, mean_field, k_tied, swag, subspace, sgmcmc, sgmcmc_factors, laplace; "
            "all that can run if not given."
        ),
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 2,
    epochs: Annotated[
        int, typer.Option(min=1, help="Passes over the training digits, after the network has been trained.")
    ] = 10,
    severities: Annotated[str, typer.Option(help="Of the corruptions, 1 to 5, separated by commas.")] = "1,3,5",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes side by side, one thread each; all cores if not given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the results, with settings and hardware, as JSON.")] = Path(
        "runs/demo.json"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")] = False,
) -> None:
    """Make a trained network Bayesian, with every method, and see what it says of clean, corrupted and foreign images.

    Needs no files: the digits ship inside scikit-learn. All methods take about a minute and a half on two cores.
    In the end there is a report with all figures, a page that any browser opens.

    Example: slimbayes demo --methods plain,rank1 --seeds 5
    """
    from slimbayes.demo import run, table
    from slimbayes.evaluation.record import Evaluation
    from slimbayes.report import write_report

    with errors_of("demo"):
        check_out(out, "demo.json")
        progress = progress_bar("training", "run")
        chosen = methods.split(",") if methods else None
        folder = out.with_suffix("")
        results = run(
            chosen,
            seeds,
            epochs,
            workers=workers or os.cpu_count() or 1,
            progress=progress,
            folder=folder,
            severities=numbers("--severities", severities),
        )
        write_json(out, results)
        evaluations = [Evaluation.read(folder / f"{one['method']}-seed{one['seed']}") for one in results["results"]]
        report = write_report(
            evaluations, folder / "report.html", title="A trained network, and what every method makes of it"
        )
    print(json.dumps(results, indent=2) if as_json else table(results))
    typer.echo(f"Settings, seeds and hardware: {out}", err=True)
    typer.echo(f"Report: {report}", err=True)
