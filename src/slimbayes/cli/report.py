"""``slimbayes report``."""

from pathlib import Path
from typing import Annotated

import typer

from slimbayes._checks import check_choice
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import Trust, check_out, progress_bar

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of evaluated runs, or folders of such folders.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write: by default report.html, or prediction.html.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder for the figures as SVG and PDF and the tables as CSV, LaTeX and Markdown."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    inputs: Annotated[
        Path | None,
        typer.Option("--input", help="File or folder as for slimbayes predict: a page for one prediction of one run."),
    ] = None,
    row: Annotated[
        str | None, typer.Option(help="Which example of --input: its number from 0, or its name; the first by default.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=0, help="Draws of each member, for --input; by default 8 in all.")
    ] = None,
    trust: Trust = None,
) -> None:
    """Write one page that shows how good one run is, or compares many.

    The page is a single file that needs no network: tables with the best in
    bold and standard errors over seeds, reliability, corruption and other
    figures, and the inputs that the model is least sure of. Runs are compared
    by their titles; runs of the same title are the seeds of one method.
    Evaluate them first: slimbayes evaluate RUN...

    With --input the page is about one prediction of one run, which need not
    be evaluated: the input, what each member says, how much of the uncertainty
    is the data's and how much the model's, and the nearest training classes.

    A few examples:

      slimbayes report runs/wine

      slimbayes report runs/grid -o comparison.html

      slimbayes report runs/rank1-* runs/plain-* --figures paper/figures

      slimbayes report runs/wine --input new.npz --row 3 -o prediction.html
    """
    with errors_of("report"):
        out = Path("report.html" if inputs is None else "prediction.html") if out is None else out
        check_choice("suffix of --out", out.suffix, (".html", ".htm"))
        check_out(out, "report.html")
        if inputs is not None:
            _refuse("with --input, as they belong to reports of evaluations", figures=figures, title=title)
            _one_prediction(runs, inputs, out, "0" if row is None else row, samples, trust)
            return
        _refuse("without --input, as they belong to the page of one prediction", row=row, samples=samples)
        _refuse("without --input, as a report calls no network", trust=trust or None)
        from slimbayes.evaluation.record import find_evaluations
        from slimbayes.report import write_report

        evaluations, missing = find_evaluations(runs)
        write_report(evaluations, out, figures, title)
    for run in missing:
        typer.secho(
            f"slimbayes report: left out {run}, which is not evaluated: slimbayes evaluate {run}", fg="yellow", err=True
        )
    typer.echo(f"Report of {len(evaluations)} run{'s' * (len(evaluations) != 1)}: {out}")
    if figures is not None:
        typer.echo(f"Figures and tables: {figures}")


def _refuse(when: str, **options: object) -> None:
    """Raise an error for options that would have no effect."""
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given:
        every = " and ".join(f"--{name}" for name in options)
        raise ValueError(f"Expected no {every} {when}, but got {' and '.join(given)}. Leave them out.")


def _one_prediction(
    runs: list[Path], inputs: Path, out: Path, row: str, samples: int | None, trust: list[str] | None
) -> None:
    if len(runs) != 1:
        raise ValueError(f"Expected one RUN with --input, but got {len(runs)}. Make a page for each.")
    from slimbayes.report.prediction_page import write_prediction_page
    from slimbayes.training.run import Run

    bar = progress_bar("looking at training data", "example")
    write_prediction_page(Run.open(runs[0], trust or ()), inputs, out, row=row, samples=samples, progress=bar)
    typer.echo(f"Page of one prediction: {out}")
