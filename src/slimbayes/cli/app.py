"""The commands; torch is imported only where a command needs it."""

from typing import Annotated

import typer

from slimbayes import __version__
from slimbayes.cli.data import data_app
from slimbayes.cli.demo import demo
from slimbayes.cli.ensemble import ensemble
from slimbayes.cli.evaluate import evaluate
from slimbayes.cli.init import init
from slimbayes.cli.predict import predict
from slimbayes.cli.report import report
from slimbayes.cli.train import train
from slimbayes.cli.tune import tune

__all__ = ["app"]

app = typer.Typer(name="slimbayes", no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slimbayes {__version__}")
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Bayesian neural nets at the price of one network.

    Start with: slimbayes demo

    Then train a model of your own: slimbayes train table.csv --target COLUMN,
    or slimbayes train config.yaml, which slimbayes init writes; and use it:
    slimbayes predict RUN inputs.csv. See how good it is: slimbayes evaluate
    RUN, then slimbayes report RUN. Each command's --help has an example.
    Shell completion: slimbayes --install-completion

    Exit codes: 0 done; 1 some runs of a grid failed; 2 something that you
    can put right; 3 the loss was not finite.
    """


app.command()(demo)
app.command()(init)
app.command()(train)
app.command()(tune)
app.command()(ensemble)
app.command()(evaluate)
app.command()(report)
app.command()(predict)
app.add_typer(data_app, name="data")
