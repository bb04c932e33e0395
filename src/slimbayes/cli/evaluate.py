"""``slimbayes evaluate``."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slimbayes._text_table import aligned
from slimbayes.cli.errors import errors_of
from slimbayes.cli.output import Trust, numbers, progress_bar
from slimbayes.cli.predict import Which

if TYPE_CHECKING:
    from slimbayes.evaluation.record import Evaluation
    from slimbayes.evaluation.subject import Subject

__all__ = ["evaluate"]


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, of grids, or of saved models.", show_default=False),
    ],
    samples: Annotated[
        str,
        typer.Option(
            help="Draws of each member: numbers separated by commas, such as 1,4,25, or auto for 8 draws in all."
        ),
    ] = "auto",
    corruptions: Annotated[
        str,
        typer.Option(
            help="auto (the official files if they are there, else our own), own, official, none, or names separated "
            "by commas, such as fog,gaussian_noise."
        ),
    ] = "auto",
    extra: Annotated[bool, typer.Option("--extra", help="Add the four further corruptions of images.")] = False,
    severities: Annotated[str, typer.Option(help="Of the corruptions, separated by commas.")] = "1,2,3,4,5",
    ood: Annotated[
        str,
        typer.Option(help="Out-of-distribution sets: auto (what is there), none, or names separated by commas."),
    ] = "auto",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use the first so many test examples only.", show_default=False)
    ] = None,
    which: Annotated[
        Which, typer.Option(help="Checkpoint to use; the best has the lowest validation NLL.")
    ] = Which.best,
    title: Annotated[
        str | None, typer.Option(help="What tables call it; by default its method.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="For saved models: a configuration with their data and net, in YAML.", show_default=False),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data sets are; $SLIMBAYES_DATA if not given.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of draws, corruptions and the bootstrap.")] = 0,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Examples at once; by default as many as a bounded memory allows.")
    ] = None,
    precision: Annotated[str, typer.Option(help="Of the networks' passes: fp32, or bf16, under autocast.")] = "fp32",
    trust: Trust = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever is stored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evaluations as JSON.")] = False,
) -> None:
    """Score trained models on clean, corrupted and out-of-distribution examples.

    Each run's folder gets an evaluation.json with every score, which
    slimbayes report makes a page of. It is written after each condition: the
    same command goes on after an interruption. Runs on the same data are best
    given together, for then each corrupted image is made only once.

    Images meet the 15 common corruptions at 5 severities: the official files
    (CIFAR-10-C, CIFAR-100-C, ImageNet-C) if the data folder has them, else our
    own. Tables and sequences meet missing values, noise and gaps. All scores
    are of the mixture over all members and draws. By default there are as
    many draws of each member as make 8 in all, and one where all would be
    the same, as with an ensemble.

    A few examples:

      slimbayes evaluate runs/digits-mlp-rank1-seed0

      slimbayes evaluate runs/* --samples 1,4,25 --ood fashion_mnist

      slimbayes evaluate runs/cifar --corruptions none --limit 1000

      slimbayes evaluate saved/ --config config.yaml

      slimbayes report runs/* -o report.html
    """
    with errors_of("evaluate"):
        from slimbayes.evaluation.evaluating import evaluate as run_evaluation
        from slimbayes.evaluation.loading import find_runs, load_subject
        from slimbayes.evaluation.settings import Settings
        from slimbayes.training.networks import check_given
        from slimbayes.training.parsing import parse_config, read_yaml

        settings = Settings(
            samples=None if samples == "auto" else numbers("--samples", samples),
            corruptions=_names(corruptions, ("auto", "own", "official", "none")),
            extra=extra,
            severities=numbers("--severities", severities),
            ood=_names(ood, ("auto", "none")),
            limit=limit,
            seed=seed,
            batch_size=batch_size,
            which=which.value,
            precision=precision,
        )
        saved = None if config is None else parse_config(read_yaml(config))
        if config is not None and saved is not None:
            check_given(saved.net, trust or (), config)
        subjects = [
            load_subject(folder, config=saved, which=which.value, title=title, data_folder=data_dir, trust=trust or ())
            for folder in find_runs(runs)
        ]
        try:
            found = [
                one
                for group in _by_data(subjects)
                for one in run_evaluation(
                    group,
                    settings,
                    data_folder=data_dir,
                    fresh=fresh,
                    progress=progress_bar("evaluating", "prediction"),
                )
            ]
        except KeyboardInterrupt:
            typer.secho("slimbayes evaluate: interrupted. The same command goes on from the last condition.", err=True)
            raise
    typer.echo(json.dumps([one.content for one in found], indent=2) if as_json else _table(found))
    for one in found:
        typer.echo(f"All scores: {one.folder}/evaluation.json", err=True)


def _names(text: str, words: tuple[str, ...]) -> str | tuple[str, ...]:
    return text if text in words else tuple(name.strip() for name in text.split(",") if name.strip())


def _by_data(subjects: "Iterable[Subject]") -> "list[list[Subject]]":
    """Return subjects in groups that see the same examples, prepared alike."""
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        key = json.dumps([subject.config["data"], subject.data.preparation.spec()], sort_keys=True)
        groups.setdefault(key, []).append(subject)
    return list(groups.values())


def _table(found: "list[Evaluation]") -> str:
    from slimbayes.report.comparison import COLUMNS, score

    columns = [column for column in COLUMNS if any(score(one, column.key) is not None for one in found)]
    rows = [["run", "title", "draws", *(column.title for column in columns)]]
    for one in found:
        values = [score(one, column.key) for column in columns]
        first = [one.content["name"], one.title, str(one.draws)]
        rows.append([*first, *("" if value is None else f"{value:.4g}" for value in values)])
    return aligned(rows)
