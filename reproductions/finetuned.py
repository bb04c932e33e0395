"""Fine-tuned transformers: which runs of the two examples there are, and how those that are not stored are made.

``python -m reproductions.finetuned reaction_yields`` makes them, two at a time; ``--list`` shows them all. The scripts
that people read and copy are ``examples/reaction_yields.py`` and ``examples/imdb_minilm.py``.
"""

import json
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from reproductions.stored import readable
from slimbayes._checks import check_choice
from slimbayes._files import replacing, write_json
from slimbayes._text_table import aligned
from slimbayes.cli.errors import errors_of
from slimbayes.training._local_processes import run_locally

__all__ = ["STUDIES", "Finetuned", "app", "planned", "run_job", "stored", "stored_runs"]

#: Members of an ensemble: as many networks of ``plain``, by their seeds.
MEMBERS = 4
#: Splits of the yields, and minutes of one core that ten epochs of the plain network take.
SPLITS = {
    "FullCV_01": ("buchwald_hartwig", 50),
    "Test1": ("buchwald_hartwig", 55),
    "Test2": ("buchwald_hartwig", 55),
    "FullCV_02": ("buchwald_hartwig", 50),
    "FullCV_03": ("buchwald_hartwig", 50),
    "random_0": ("suzuki_miyaura", 65),
}
YIELDS = {"epochs": 10, "draws": 20}
REVIEWS = {"epochs": 3, "draws": 8, "count": 5000, "length": 256, "cut": 32}
REVIEW_SEEDS = 3
STUDIES = ("reaction_yields", "imdb_minilm")


@dataclass(frozen=True)
class Finetuned:
    """A run: a process, and a file of its own.

    Attributes:
        study: The example that it is of.
        method: One of the example's ``METHODS``; of ``ensemble`` and ``mc_dropout``, made of trained networks.
        seed: Of the new head, the factors and the order of the examples.
        minutes: How long it is thought to take on one core.
        settings: What decides its numbers, beside the example.
        override: What tells it from others of its method, such as the split.
        of: Names of the runs whose networks it is made of, without training.
    """

    study: str
    method: str
    seed: int
    minutes: float
    settings: dict[str, Any] = field(hash=False)
    override: str | None = None
    of: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file's name."""
        return "-".join(filter(None, [self.method, self.override, f"seed{self.seed}"]))


def planned(study: str) -> list[Finetuned]:
    """Return all runs of a study, those to be made first at the beginning; what is made of others comes after them.

    Example:
        >>> [(run.name, len(run.of)) for run in planned("reaction_yields")][:2]
        [('plain-FullCV_01-seed0', 0), ('rank1-FullCV_01-seed0', 0)]
        >>> [run.of for run in planned("imdb_minilm") if run.method == "ensemble"][1]
        ('plain-seed4', 'plain-seed5', 'plain-seed6', 'plain-seed7')
    """
    check_choice("study", study, STUDIES)
    runs = list(_yields() if study == "reaction_yields" else _reviews())
    return sorted(runs, key=lambda run: bool(run.of))


def _yields() -> Iterator[Finetuned]:
    for split, (name, minutes) in SPLITS.items():
        new = partial(Finetuned, "reaction_yields", settings={**YIELDS, "set": name, "split": split}, override=split)
        plain = [new("plain", seed, minutes) for seed in range(MEMBERS)]
        yield plain[0]
        yield from (new(method, 0, 1.4 * minutes) for method in ("rank1", "batch_ensemble", "rank1_lora"))
        if split in ("FullCV_01", "Test1"):  # tells what LoRA does from what the factors around it do
            yield new("lora", 0, minutes)
        yield from plain[1:]
        yield new("mc_dropout", 0, 0.3 * minutes, of=(plain[0].name,))
        yield new("ensemble", 0, 0.1 * minutes, of=tuple(run.name for run in plain))


def _reviews() -> Iterator[Finetuned]:
    new = partial(Finetuned, "imdb_minilm", settings=REVIEWS)
    for seed in range(REVIEW_SEEDS):
        plain = [new("plain", MEMBERS * seed + member, 50) for member in range(MEMBERS)]
        yield plain[0]
        yield new("lora", seed, 50)
        yield from (new(method, seed, 70) for method in ("rank1_frozen", "rank1_lora", "mean_field_lora"))
        yield from plain[1:]
        yield new("mc_dropout", seed, 22, of=(plain[0].name,))
        yield new("ensemble", seed, 12, of=tuple(run.name for run in plain))


# ---------------------------------------------------------------------- stored runs


def stored(results: Path, run: Finetuned) -> dict[str, Any] | None:
    """Return a stored run, None if there is none; raise if it is one of other settings."""
    path = results / run.study / f"{run.name}.json"
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    if content["settings"] != run.settings or tuple(content["of"]) != run.of:
        now = f"{run.settings}, made of {list(run.of)}"
        raise ValueError(f"{path} is of other settings than {now}. Remove it to make the run again.")
    return content


def stored_runs(results: Path, study: str) -> list[dict[str, Any]]:
    """Return the stored runs of a study, in the order of its plan."""
    return [content for run in planned(study) if (content := stored(results, run)) is not None]


# ---------------------------------------------------------------------- making them


def run_job(folder: Path) -> str | None:
    """Make the run that the folder's ``job.json`` names, from its last checkpoint on, and store it.

    Returns:
        None, or what went wrong in one line; the whole story goes to the standard error.
    """
    from reproductions.finetuning import measure
    from slimbayes._provenance import provenance

    try:
        job = json.loads((folder / "job.json").read_text())
        run = Finetuned(**{**job["run"], "of": tuple(job["run"]["of"])})
        content = {**asdict(run), **measure(run, folder), **provenance()}
        del content["minutes"]
        path = Path(job["result"])
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as (temporary,):
            temporary.write_text(readable(content) + "\n")
        shutil.rmtree(folder / "trainer", ignore_errors=True)
    except Exception as failure:
        traceback.print_exc(file=sys.stderr)
        return " ".join(f"{type(failure).__name__}: {failure}".split())
    return None


def prepare(run: Finetuned, folder: Path, results: Path) -> Path:
    """Write down what ``run_job`` needs; return the run's folder.

    Raises:
        ValueError: The folder has checkpoints of other settings.
    """
    folder = folder / run.study / run.name
    file, now = folder / "job.json", {**asdict(run), "minutes": None, "of": list(run.of)}
    if file.exists() and (folder / "trainer").exists() and (before := json.loads(file.read_text())["run"]) != now:
        raise ValueError(f"{folder} has checkpoints of other settings: {before}. Remove that folder to run it anew.")
    folder.mkdir(parents=True, exist_ok=True)
    path = results / run.study / f"{run.name}.json"
    write_json(file, {"run": now, "result": str(path.resolve())})
    return folder


app = typer.Typer(name="python -m reproductions.finetuned", pretty_exceptions_enable=False, add_completion=False)


@app.command()
def make(
    study: Annotated[str, typer.Argument(help="reaction_yields or imdb_minilm.")],
    show_list: Annotated[bool, typer.Option("--list", help="Show the runs and their hours, and stop.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Make only runs of such names, as 'rank1-*'.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs side by side, one thread each.")] = 2,
    results: Annotated[Path, typer.Option("--results-dir", help="Where finished runs are stored.")] = Path(
        "reproductions/results"
    ),
    folder: Annotated[Path, typer.Option("--runs-dir", help="Where checkpoints, networks and logs go.")] = Path(
        "runs/finetuned"
    ),
) -> None:
    """Make the runs of a study that are not stored yet; what was interrupted goes on from its last checkpoint.

    Ensembles and MC dropout are made of the networks of ``plain``, which stay in the folder of runs, after all others.
    """
    with errors_of("reproductions.finetuned", "python -m"):
        runs = [run for run in planned(study) if not only or any(fnmatch(run.name, pattern) for pattern in only)]
        if not runs:
            raise ValueError(f"Expected `--only` to fit a run of {study}, but got {only}. --list shows them.")
        missing = [run for run in runs if stored(results, run) is None]
        hours = f"about {sum(run.minutes for run in missing) / 60:.1f} hours of one core"
        if show_list:
            rows = [[run.name, f"{run.minutes / 60:.1f}", "" if run in missing else "stored"] for run in runs]
            print(f"{aligned([['run', 'hours', ''], *rows])}\n{len(missing)} of {len(runs)} to make, {hours}")
            return
        typer.secho(f"{len(missing)} runs to make, {hours}; {workers} at a time", err=True)
        places = {run: prepare(run, folder.resolve(), results) for run in missing}
        trained, made = ([place for run, place in places.items() if bool(run.of) == of] for of in (False, True))
        if _run(trained, made, workers):
            raise typer.Exit(1)


def _run(trained: list[Path], made: list[Path], workers: int) -> list[Path]:
    """Make runs in processes of their own; return the folders of those that failed."""
    task, failed = "reproductions.finetuned:run_job", []
    with closing(run_locally(trained, workers, task)) as first, closing(run_locally(made, workers, task)) as second:
        for done, (folder, error) in enumerate(chain(first, second), 1):
            print(f"{done}/{len(trained) + len(made)} {folder.name}: {error or 'stored'}", file=sys.stderr, flush=True)
            if error is not None:
                failed.append(folder)
    return failed


if __name__ == "__main__":
    app()
