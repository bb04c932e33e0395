"""The command line of the reproductions: ``python -m reproductions NAME`` in a clone."""

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import progress_bar

if TYPE_CHECKING:
    from reproductions.study import Study

__all__ = ["app"]

app = typer.Typer(name="python -m reproductions", pretty_exceptions_enable=False, add_completion=False)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables, figures or studies that --list shows, such as k_tied_table_2.", show_default=False
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="paper: the published configuration. small: cut down for two CPU cores. smoke: does everything run?"
        ),
    ] = "small",
    show_list: Annotated[bool, typer.Option("--list", help="Show what there is, and stop.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--results", help="Make every table, figure and page again from the stored runs, and stop.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Folder with items, studies and results.")] = Path("reproductions"),
    docs: Annotated[Path, typer.Option(help="Folder whose results/ gets the pages.")] = Path("docs"),
    results: Annotated[
        Path | None,
        typer.Option("--results-dir", help="Where finished runs are stored; by default FOLDER/results."),
    ] = None,
    runs: Annotated[Path, typer.Option("--runs-dir", help="Where checkpoints and logs go.")] = Path("runs")
    / "reproduce",
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data sets are; $SLIMBAYES_DATA if not given.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Make only runs of such names, as 'rank1-*-seed0'; may be given several times."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs side by side, one thread each.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Run what a table or figure of the papers needs, and make it.

    Runs that are stored already are not made again, interrupted ones go
    on from their last checkpoint, and runs that several tables share are
    made once. The longest go first.

    Example: python -m reproductions --list
             python -m reproductions k_tied_figure_6 --scale small
             python -m reproductions --results
    """
    with errors_of("reproductions", "python -m"):
        if not folder.is_dir():
            raise FileNotFoundError(
                f"There is no folder {folder}. Call this in a clone of the project, or give --folder."
            )
        if show_list:
            from reproductions.listing import listing, listing_text, runs_text

            rows = listing(folder)
            print(json.dumps(rows, indent=2) if as_json else f"{listing_text(rows)}\n\n{runs_text(folder)}")
            return
        if rebuild:
            from reproductions.pages import rebuild as make

            for path in make(folder, docs, Path("README.md")):
                print(path)
            return
        if not names:
            raise ValueError("give the name of a table or figure, or --list to see them")
        _run(names, scale, folder, results or folder / "results", runs, data_dir, only, workers, quiet)


def _run(
    names: list[str],
    scale: str,
    folder: Path,
    results: Path,
    runs: Path,
    data_dir: Path | None,
    only: list[str] | None,
    workers: int,
    quiet: bool,
) -> None:
    from reproductions.jobs import check_names, missing_jobs, run_jobs
    from reproductions.study import SCALES
    from slimbayes._checks import check_choice

    check_choice("--scale", scale, SCALES)
    studies, others = _wanted(names, folder)
    if data_dir is not None:
        os.environ["SLIMBAYES_DATA"] = str(data_dir.resolve())  # which all runs read, whatever a scale changes
    jobs = missing_jobs(studies, scale, results)
    if only:
        check_names(only, studies, scale)
        jobs = [job for job in jobs if any(fnmatch(job.cell.name, pattern) for pattern in only)]
    for command in others:
        typer.secho(f"No study has all of it; the rest is measured by: {command}", err=True)
    if not quiet:
        hours = sum(job.minutes for job in jobs) / 60
        typer.secho(f"{len(jobs)} runs to make, about {hours:.1f} hours of one core; {workers} at a time", err=True)
    failed = run_jobs(jobs, runs, results, workers, None if quiet else progress_bar("reproduce", "run"), quiet)
    for run, error in failed.items():
        typer.secho(f"{run}: {error} (log: {run}/log.txt)", fg="red", err=True)
    if failed:
        raise typer.Exit(1)
    if not quiet:
        typer.secho(f"All runs are in {results}. python -m reproductions --results makes tables and figures.", err=True)


def _wanted(names: list[str], folder: Path) -> tuple[dict[str, "Study"], list[str]]:
    """Return the studies that some tables, figures or studies need, and commands that measure the rest."""
    from reproductions.item import read_items
    from reproductions.study import read_studies
    from slimbayes._checks import check_choice

    studies, items = read_studies(folder), read_items(folder)
    wanted: dict[str, Study] = {}
    for name in names:
        check_choice("name", name, [*items, *studies])
        for study in items[name].studies if name in items else [name]:
            wanted[study] = studies[study]
    parts = [part for name in names if name in items for part in items[name].parts]
    return wanted, list(dict.fromkeys(command for part in parts for command in part.commands()))


if __name__ == "__main__":
    app()
