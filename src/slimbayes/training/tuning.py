"""Tuning with Optuna: many short runs, the hopeless ones ended early, chosen by the validation NLL alone."""

import csv
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimbayes._files import csv_cell, read_json, replacing, with_checksum, write_json
from slimbayes._seeds import Purpose, mix
from slimbayes._text_table import aligned
from slimbayes.data.dataset import DataSet
from slimbayes.training._search_space import Space, default_space, extremes, parameters_of, suggest
from slimbayes.training.commented import commented_yaml
from slimbayes.training.config import TrainConfig, Tune
from slimbayes.training.engine import default_folder, fit
from slimbayes.training.lock import alone_in
from slimbayes.training.meter import NonFiniteLoss
from slimbayes.training.models import check_method, configured_data
from slimbayes.training.networks import check_network
from slimbayes.training.parsing import as_config, parse_config, with_overrides
from slimbayes.training.run import Run

__all__ = ["Tuning", "tune"]

STUDY = "study.db"
#: Trials that are trained to their end before any is ended early.
STARTING = 5
STATES = {"COMPLETE": "finished", "PRUNED": "ended early", "FAIL": "failed"}


@dataclass(frozen=True)
class Tuning:
    """What tuning has found; ``print(tuning)`` shows the trials.

    Attributes:
        folder: Where everything is: the runs in ``trials``, ``trials.csv``, ``best.yaml``, Optuna's ``study.db``.
        rows: A row for each trial: number, state, validation NLL, epochs, values of the keys, folder.
    """

    folder: Path
    rows: list[dict[str, Any]]

    @property
    def best(self) -> dict[str, Any] | None:
        """The finished trial with the lowest validation NLL; None if none is finished."""
        finished = [row for row in self.rows if row["state"] == "finished"]
        return min(finished, key=lambda row: (row["nll"], row["number"]), default=None)

    def __str__(self) -> str:
        keys = list(self.rows[0]["values"]) if self.rows else []
        states = list(STATES.values())
        order = sorted(
            self.rows, key=lambda row: (states.index(row["state"]), math.inf if row["nll"] is None else row["nll"])
        )
        table = [["trial", "state", "validation NLL", "epochs", *keys]]
        for row in order:
            nll = "" if row["nll"] is None else f"{row['nll']:.4f}"
            values = [_brief(row["values"][key]) for key in keys]
            table.append([str(row["number"]), row["state"], nll, str(row["epochs"]), *values])
        return aligned(table)


def tune(
    config: TrainConfig | Mapping[str, Any] | str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    told: Callable[[list[dict[str, Any]], int], None] = lambda rows, trials: None,
) -> Tuning:
    """Try configurations and keep the one with the lowest validation NLL; test examples are never looked at.

    Trial 0 is the configuration as it is, the others are what Optuna's TPE sampler suggests. Each is a run in
    ``FOLDER/trials``. Called again, it continues the trial that was interrupted, as if nothing had happened, and adds
    more if there are to be more.

    Args:
        config: A configuration; its key ``tune`` says what is tried, how often, and what ends a trial early.
        folder: Where to write; by default ``runs/tune-`` and the name that the run would have.
        told: Called after each trial with the rows so far and the number of trials that there will be.

    Raises:
        ValueError: There are no validation examples, a value is impossible, or the folder holds other trials.
        FolderInUse: Another process tunes in the folder.

    Example:
        >>> import tempfile
        >>> content = {"data": "iris", "net": {"name": "mlp", "hidden": [8]}, "epochs": 1}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tuning = tune({**content, "tune": {"trials": 2, "space": {"optimiser.lr": [0.001, 0.01]}}}, folder)
        >>> [row["state"] for row in tuning.rows]
        ['finished', 'finished']
    """
    _import_optuna()
    config = as_config(config)
    settings = config.tune or Tune()
    space = settings.space or default_space(config)
    _check_space(config, space)
    folder = Path("runs") / f"tune-{default_folder(config).name}" if folder is None else Path(folder)
    with alone_in(folder):
        _check_same(folder, config, settings, space)
        data = configured_data(config)
        if data.validation is None:
            raise ValueError(
                f"Expected `data` with validation examples to tune on, but {config.data.name} has none. Set "
                "some aside, such as data.validation=0.2."
            )
        return _Search(folder, config, settings, space, data, told).run()


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError('Tuning needs Optuna: pip install "slimbayes[tune]"') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _changed(content: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return with_overrides(content, [f"{key}={json.dumps(value)}" for key, value in values.items()])


def _check_space(config: TrainConfig, space: Space) -> None:
    for key, tried in space.items():
        for value in extremes(tried):
            try:
                changed: TrainConfig = parse_config(_changed(_given(config), {key: value}))
                check_network(changed.net)
                check_method(changed.method)
            except ValueError as error:
                raise ValueError(f"tune.space.{key}: {value!r} is not possible. {error}") from error


def _given(config: TrainConfig) -> dict[str, Any]:
    """Return the keys that were given, without what concerns tuning."""
    content = config.model_dump(mode="json", exclude_unset=True)
    content.pop("tune", None)
    return content


def _check_same(folder: Path, config: TrainConfig, settings: Tune, space: Space) -> None:
    tried = {key: one if isinstance(one, list) else one.model_dump(mode="json") for key, one in space.items()}
    now = json.loads(json.dumps({**config.as_json(), "tune.pruner": settings.pruner, "tune.space": tried}))
    path = folder / "tune.json"
    if path.is_file():
        before = read_json(path, "Tune in another folder.")
        keys = [key for key in before | now if before.get(key) != now.get(key)]
        if keys:
            raise ValueError(
                f"The trials in {folder} are of another configuration: {', '.join(map(repr, keys))} differ. Go on with "
                "the same, or give another folder."
            )
        return
    if (folder / STUDY).exists():
        raise FileExistsError(f"{folder} holds {STUDY}, but no tune.json that says of what. Give another folder.")
    write_json(path, with_checksum(now))


class _Search:
    """One call of ``tune``."""

    def __init__(
        self,
        folder: Path,
        config: TrainConfig,
        settings: Tune,
        space: Space,
        data: DataSet,
        told: Callable[[list[dict[str, Any]], int], None],
    ) -> None:
        self.folder, self.config, self.settings, self.space = folder, config, settings, space
        self.data, self.told, self.optuna = data, told, _import_optuna()
        steps = math.ceil(len(data.train) / config.batch_size)
        self.epochs = config.epochs or math.ceil((config.steps or 1) / steps)
        self.study = self.optuna.create_study(
            storage=f"sqlite:///{(folder / STUDY).resolve()}",
            study_name="slimbayes",
            load_if_exists=True,
            pruner=self._pruner(),
        )

    def _pruner(self) -> Any:
        pruners = self.optuna.pruners
        if self.settings.pruner == "median":
            return pruners.MedianPruner(n_startup_trials=STARTING, n_warmup_steps=self.epochs // 4)
        if self.settings.pruner == "hyperband":
            return pruners.HyperbandPruner(min_resource=1, max_resource=self.epochs)
        return pruners.NopPruner()

    def run(self) -> Tuning:
        """Finish what was interrupted, then do what is left."""
        running, waiting = self.optuna.trial.TrialState.RUNNING, self.optuna.trial.TrialState.WAITING
        self._check_data()
        for stored in self.study.get_trials(states=[running]):
            self._seed(stored.number, 0)
            self._do(self.optuna.trial.Trial(self.study, stored._trial_id))
        while (done := len(self._done())) < self.settings.trials:
            if done == 0 and not self.study.get_trials(states=[waiting]):
                self.study.enqueue_trial(parameters_of(self.config, self.space))
            self._seed(done, 0)
            self._do(self.study.ask())
        return self._write()

    def _done(self) -> list[Any]:
        states = self.optuna.trial.TrialState
        return list(self.study.get_trials(deepcopy=False, states=[states.COMPLETE, states.PRUNED, states.FAIL]))

    def _check_data(self) -> None:
        """Raise if trials that are done were trained on other data."""
        for trial in self._done()[-1:]:
            run = Run(self._place(trial.number))
            if run.exists():
                run.check_data(self.data)

    def _place(self, number: int) -> Path:
        return self.folder / "trials" / f"{number:04d}"

    def _seed(self, number: int, suggestion: int) -> None:
        """Let a suggestion depend on the trials before alone, not on when this process was started."""
        seed = mix(self.config.seed, Purpose.TUNING, number, suggestion) % 2**32
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)

    def _do(self, trial: Any) -> None:
        """Train a trial, or what is left of it, and let Optuna know how it ended."""
        values = suggest(trial, self.space, lambda suggestion: self._seed(trial.number, suggestion + 1))
        config: TrainConfig = parse_config(_changed(_given(self.config), {**values, "evaluation.test": False}))
        run = Run(self._place(trial.number), trust=config.net.name)
        reported = set(self.study.trials[trial.number].intermediate_values)

        def report(epoch: int, validation: dict[str, float] | None) -> None:
            if validation is not None and epoch not in reported:
                trial.report(validation["nll"], epoch)
                reported.add(epoch)
                if trial.should_prune():
                    raise self.optuna.TrialPruned

        states = self.optuna.trial.TrialState
        try:
            for line in run.metrics:  # of epochs that were stored, but not reported, before an interruption
                if "validation" in line:
                    report(line["epoch"], line["validation"])
            if reported and trial.should_prune():
                raise self.optuna.TrialPruned
            done = fit(config, run.folder, resume=True, quiet=True, after_epoch=report)
            assert done.result is not None
            self.study.tell(trial, done.result["validation"]["nll"])
        except self.optuna.TrialPruned:
            self.study.tell(trial, state=states.PRUNED)
        except NonFiniteLoss as error:
            trial.set_user_attr("error", str(error))
            self.study.tell(trial, state=states.FAIL)
        self.told(self._write().rows, self.settings.trials)

    def _write(self) -> Tuning:
        """Bring the table of trials and the best configuration up to date."""
        tuning = Tuning(self.folder, [self._row(trial) for trial in self._done()])
        with replacing(self.folder / "trials.csv") as (path,), path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["trial", "state", "validation_nll", "epochs", *self.space, "folder"])
            for row in tuning.rows:
                values = [csv_cell(_exact(value)) for value in row["values"].values()]
                writer.writerow([row["number"], row["state"], row["nll"], row["epochs"], *values, row["folder"]])
        if tuning.best is not None:
            about = (
                f"The best of {len(tuning.rows)} trials of slimbayes tune, by the validation NLL alone: trial "
                f"{tuning.best['number']}, {tuning.best['nll']:.4f}. Training it scores the test examples, once."
            )
            with replacing(self.folder / "best.yaml") as (path,):
                path.write_text(commented_yaml(_changed(_given(self.config), tuning.best["values"]), about))
        return tuning

    def _row(self, trial: Any) -> dict[str, Any]:
        values = suggest(_Remembered(trial.params), self.space, lambda suggestion: None)
        last = max(trial.intermediate_values, default=0)
        return {
            "number": trial.number,
            "state": STATES[trial.state.name],
            "nll": trial.value,
            "epochs": last,
            "values": values,
            "error": trial.user_attrs.get("error"),
            "folder": str(self._place(trial.number).relative_to(self.folder)),
        }


class _Remembered:
    """Suggests what a trial has had."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda name, *bounds, **options: self.parameters[name]


def _brief(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _exact(value)


def _exact(value: Any) -> str:
    return json.dumps(value).strip('"')
