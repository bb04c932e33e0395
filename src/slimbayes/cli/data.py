"""``slimbayes data``: which data sets there are, where they are looked for, and their download."""

import json
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from slimbayes.cli.errors import errors_of

__all__ = ["data_app"]

data_app = typer.Typer(no_args_is_help=True, help="Data sets: what there is, where it is, and how to get it.")

_DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="The data folder; by default $SLIMBAYES_DATA, else ~/.cache/slimbayes/data."),
]


@data_app.command("list")
def list_sets(
    data_dir: _DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show every data set, whether it is in the data folder, and how to get it.

    Example: slimbayes data list --data-dir ~/data
    """
    from slimbayes.data.folders import data_folder

    with errors_of("data list"):
        folder = data_folder(data_dir)
        rows = _rows(folder)
    if as_json:
        print(json.dumps({"folder": str(folder), "sets": rows}, indent=2))
        return
    print(f"Data folder: {folder}\n")
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        state = "found" if row["found"] else "-" if row["found"] is None else "missing"
        print(f"{row['name']:{width}}  {state:7}  {row['title']}")
        if row["found"] is False:
            print(textwrap.indent(textwrap.fill(row["how"], 100, break_on_hyphens=False), " " * (width + 11)))


@data_app.command("get")
def get_sets(
    names: Annotated[list[str], typer.Argument(help="Names of sets; slimbayes data list shows them.")],
    data_dir: _DataDir = None,
) -> None:
    """Download data sets from their publishers into the data folder.

    What is already there and right is not downloaded again, and a download
    that was cut goes on where it stopped. Files are compared with their
    known checksums before they are put in place.

    Example: slimbayes data get mnist cifar10
    """
    from slimbayes.data._download import get
    from slimbayes.data.sources import SOURCES

    with errors_of("data get"):
        for name in names:  # before any time is spent on the others
            _check_name(name)
        for name in names:
            typer.echo(f"{name}: {SOURCES[name].terms}; {SOURCES[name].page}", err=True)
            with _Bar() as bar:
                got = get(name, data_dir, bar)
            for path, downloaded, verified in got:
                state = "downloaded" if downloaded else "already there"
                doubt = "not verified: no checksum of it is known" if downloaded else "not verified"
                print(f"{path}: {state}, {'verified' if verified else doubt}")


@data_app.command()
def where(data_dir: _DataDir = None) -> None:
    """Print the data folder, in which data sets are looked for.

    Example: ls $(slimbayes data where)
    """
    from slimbayes.data.folders import data_folder

    print(data_folder(data_dir))


def _check_name(name: str) -> None:
    from slimbayes._checks import check_choice
    from slimbayes.data.sources import SOURCES

    if name not in SOURCES:
        from slimbayes.data.registry import SETS

        if name in SETS:
            raise ValueError(f"{name} needs no download: {SETS[name].title}.")
        check_choice("name", name, SOURCES)


def _rows(folder: Path) -> list[dict[str, Any]]:
    """Return what is known of each set; ``found`` is None for those that have no files to be found."""
    from slimbayes.data.registry import SETS
    from slimbayes.data.sources import SOURCES

    rows: list[dict[str, Any]] = []
    titles = {name: entry.title for name, entry in SETS.items()}
    for name in titles | SOURCES:
        row: dict[str, Any] = {
            "name": name,
            "title": titles.get(name),
            "found": None,
            "path": None,
            "how": None,
            "bytes": None,
        }
        if source := SOURCES.get(name):
            path = source.find(folder)
            size = f" ({source.size / 1e6:.0f} MB)" if source.size else ""
            row |= {
                "title": source.title or row["title"],
                "found": path is not None,
                "path": path and str(path),
                "how": f"slimbayes data get {name}{size}" if source.files else f"{source.steps} ({source.page})",
                "bytes": source.size,
                "page": source.page,
                "terms": source.terms,
            }
        rows.append(row)
    return rows


class _Bar:
    """A progress bar for each file on a terminal, silence elsewhere."""

    def __init__(self) -> None:
        self.name, self.bar = "", tqdm(disable=True)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        if name != self.name:
            self.bar.close()
            self.name, hidden = name, not sys.stderr.isatty()
            self.bar = tqdm(
                desc=name, total=total, initial=done, unit="B", unit_scale=True, file=sys.stderr, disable=hidden
            )
        self.bar.update(done - self.bar.n)
