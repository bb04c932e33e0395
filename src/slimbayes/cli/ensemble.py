"""``slimbayes ensemble``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import progress_bar
from slimbayes.cli.train import show_result

__all__ = ["ensemble"]


def ensemble(
    config: Annotated[Path, typer.Argument(help="A configuration of one run, in YAML.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]", help="Changes to it, such as optimiser.lr=0.01 or method=deep_ensemble."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write to; by default runs/DATA-NET-deep_ensemble-seedSEED."),
    ] = None,
    members: Annotated[
        int | None, typer.Option(min=1, help="Number of networks; by default method.members, or 4.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Members side by side, one thread each; if not given, one after another with all threads.",
            show_default=False,
        ),
    ] = None,
    on: Annotated[str, typer.Option(help="Where members are trained: local, or ray for a Ray cluster.")] = "local",
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data sets are; $SLIMBAYES_DATA if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Train the members of a deep ensemble apart, and put them together.

    A deep ensemble is a few networks that differ in their initial weights
    and the order of the examples; it predicts with all of them. Here each
    one is a run of its own, in FOLDER/members/0 and so on. FOLDER becomes
    the run of the ensemble, which slimbayes predict takes like any other.

    The configuration is that of slimbayes train, with the method
    deep_ensemble, deterministic or none:

        data: digits
        net: {name: mlp, hidden: [100, 100]}
        epochs: 20

    Call it again to go on after an interruption, or with more members to add
    some to a trained ensemble: what is finished is not trained again.

    To compare with one network of the same size, let the members share its
    parameters: net.share=4 makes each as narrow as one of four.

    To train all members at once on the same batches, use slimbayes train
    with method=deep_ensemble instead.

    A few examples:

      slimbayes ensemble config.yaml -o runs/four --workers 2

      slimbayes ensemble config.yaml -o runs/four --members 6

      slimbayes ensemble config.yaml -o /shared/four --on ray

      slimbayes predict runs/four new.npz
    """
    with errors_of("ensemble"):
        from slimbayes.training.ensemble import MembersFailed, fit_ensemble
        from slimbayes.training.meter import NonFiniteLoss
        from slimbayes.training.parsing import read_yaml, with_overrides

        if data_dir is not None:
            overrides = [*(overrides or ()), f"data.folder={json.dumps(str(data_dir))}"]
        content = with_overrides(read_yaml(config), overrides or ())
        progress = None if quiet else progress_bar("ensemble", "member")
        try:
            run = fit_ensemble(content, out, members, on=on, workers=workers, progress=progress, quiet=quiet)
        except (MembersFailed, NonFiniteLoss) as error:
            typer.secho(f"slimbayes ensemble: {error}", fg="red", err=True)
            raise typer.Exit(1 if isinstance(error, MembersFailed) else 3) from error
        except KeyboardInterrupt:
            typer.secho("slimbayes ensemble: interrupted. The same command goes on from the last epochs.", err=True)
            raise
    show_result(run, as_json)
