"""A study: runs that belong together, from which several tables and figures are made.

.. code-block:: yaml

    title: MNIST MLP
    base: {data: mnist, net: mlp}            # as in a grid of `slimbayes train`, with methods, overrides and seeds
    methods: {mean_field: {prior_std: 0.3}, 2-tied: {name: k_tied, k: 2, prior_std: 0.3}}
    seeds: 3
    layers: {"1": dense 1, "3": dense 2}     # what the network's layers are called in tables and figures
    look: {samples: 100, spectra: 20}        # after training, at the last weights
    scales:
      paper: {minutes: 10}                   # of one run, on one core
      smoke: {minutes: 0.05, change: {data: digits, epochs: 1}, seeds: 1, look: {samples: 2}}
"""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from slimbayes._checks import check_choice
from slimbayes.training._cells import Cell, cells_of
from slimbayes.training._grid_file import Grid, read_grid
from slimbayes.training.config import Method, Section
from slimbayes.training.parsing import parse_config, read_yaml, with_overrides

__all__ = ["SCALES", "Look", "Scale", "Study", "read_studies", "read_study"]

ScaleName = Literal["paper", "small", "smoke"]
SCALES: tuple[ScaleName, ...] = ("paper", "small", "smoke")


class Look(Section):
    """What is measured after training, at the last weights."""

    samples: int = Field(100, ge=1)
    """Draws of each member for the scores."""
    parts: list[Literal["validation", "test"]] = Field(default=["validation", "test"])
    """Examples that are scored; choices are made on the validation examples alone."""
    low_rank: list[int] = Field(default_factory=list)
    """Ranks by which standard deviations are replaced; of mean-field runs."""
    tie: list[int] = Field(default_factory=list)
    """Values of k for k-tied models made out of mean-field ones."""
    approximated: list[str] | None = None
    """Layers for which this and `low_rank` are done; by default all."""
    spectra: int = Field(0, ge=0)
    """Singular values whose share of variance is stored, for each layer."""
    heat_maps: list[str] = Field(default_factory=list)
    """Layers whose standard deviations are stored, thinned out, beside their approximations; of the first seed."""
    evaluate: dict[str, Any] | None = None
    """Settings of `slimbayes evaluate`: corrupted and foreign examples as well."""


class Scale(Section):
    """How much of a study is run."""

    minutes: float = Field(gt=0)
    """Of one run: decides which goes first, and adds up to the hours that `--list` shows."""
    minutes_of: dict[str, float] = Field(default_factory=dict)
    """Titles of methods that take another time."""
    hardware: str = "one CPU core"
    """What it takes them on."""
    change: dict[str, Any] = Field(default_factory=dict)
    """Keys of the base, such as `epochs` or `optimiser.lr`, with other values."""
    methods: list[str] | None = None
    """Titles of the methods that are run; by default all."""
    seeds: int | list[int] | None = None
    """By default the study's."""
    look: dict[str, Any] = Field(default_factory=dict)
    """Keys of `look` with other values."""
    cut: str = ""
    """What is less than in the paper, in words."""


class Study(Section):
    """What a study's file holds."""

    title: str
    base: dict[str, Any]
    """As in a grid: keys and values of a configuration, or a file."""
    methods: Any = None
    """As in a grid."""
    overrides: dict[str, dict[str, Any]] | None = None
    """As in a grid."""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Titles of methods, with keys of the base, such as `optimiser.lr`, that have other values for them."""
    seeds: int | list[int] = 3
    seeds_of: dict[str, int | list[int]] = Field(default_factory=dict)
    """Titles of methods that have other seeds."""
    ensembles: dict[str, str] = Field(default_factory=dict)
    """Titles of deep ensembles that are not trained, each with the title of the method whose seeds are its members."""
    layers: dict[str, str] = Field(default_factory=dict)
    """Titles of the network's layers."""
    look: Look = Look()
    scales: dict[ScaleName, Scale] = Field(min_length=1)

    def scale(self, name: str) -> Scale:
        """Return one of the scales, or raise."""
        check_choice("scale", name, self.scales)
        return next(scale for known, scale in self.scales.items() if known == name)

    def minutes(self, cell: Cell, scale: str) -> float:
        """Return how long a run of a scale is thought to take, on one core."""
        known = self.scale(scale)
        return known.minutes_of.get(cell.method, known.minutes)

    def nearest(self, scale: str) -> str:
        """Return a scale that the study has: where `small` is missing, the paper's own is small enough.

        What goes beyond the papers has no scale of theirs, and `small` is all there is.
        """
        check_choice("scale", scale, SCALES)
        others = {"small": "paper", "paper": "small"}
        return scale if scale in self.scales else others.get(scale, scale)

    def look_at(self, scale: str) -> Look:
        """Return what is measured at a scale."""
        return parse_config({**self.look.model_dump(), **self.scale(scale).look}, Look)

    def grid(self, scale: str) -> Grid:
        """Return the runs of a scale as a grid."""
        changes = self.scale(scale)
        words = [f"{key}={json.dumps(value)}" for key, value in changes.change.items()]
        content: dict[str, Any] = {
            "base": with_overrides(self.base, words),
            "seeds": self.seeds if changes.seeds is None else changes.seeds,
        }
        if self.methods is not None:
            content["methods"] = self.methods
        if self.overrides is not None:
            content["overrides"] = self.overrides
        grid = read_grid(content)
        if changes.methods is not None:
            for title in changes.methods:
                check_choice("methods", title, grid.methods or {})
            grid.methods = {
                title: section for title, section in (grid.methods or {}).items() if title in changes.methods
            }
        return grid

    def cells(self, scale: str) -> list[Cell]:
        """Return the runs of a scale, each with a configuration that has been checked.

        Example:
            >>> base, scales = {"data": "digits", "net": "mlp"}, {"smoke": {"minutes": 1}}
            >>> study = Study(title="Digits", base=base, seeds=2, scales=scales)
            >>> [cell.name for cell in study.cells("smoke")]
            ['rank1-seed0', 'rank1-seed1']
        """
        cells = self._trained(scale)
        return [*cells, *(_ensemble(title, members) for title, members in self._ensembles(cells).items())]

    def members_of(self, scale: str) -> dict[str, list[str]]:
        """Return the names of the runs that are an ensemble's members, by the name of the ensemble's run."""
        found = self._ensembles(self._trained(scale))
        return {_ensemble(title, members).name: [cell.name for cell in members] for title, members in found.items()}

    def _ensembles(self, cells: list[Cell]) -> dict[str, list[Cell]]:
        """Return the members of each ensemble; a scale with one seed has none."""
        found = {title: [cell for cell in cells if cell.method == of] for title, of in self.ensembles.items()}
        return {title: members for title, members in found.items() if len(members) > 1}

    def _trained(self, scale: str) -> list[Cell]:
        grid = self.grid(scale)
        own = {**self.settings, **self.seeds_of}
        if not own:
            return cells_of(grid)
        for title in own:
            known = read_grid({"base": self.base, "methods": self.methods}).methods or {}
            check_choice("settings" if title in self.settings else "seeds_of", title, known)
        cells = []
        for title, section in (grid.methods or {}).items():
            words = [f"{key}={json.dumps(value)}" for key, value in self._settings_of(title, scale).items()]
            changes: dict[str, Any] = {"base": with_overrides(grid.base, words), "methods": {title: section}}
            changes["seeds"] = grid.seeds
            if title in self.seeds_of and self.scale(scale).seeds is None:
                changes["seeds"] = self.seeds_of[title]
            if self.overrides is not None:
                changes["overrides"] = self.overrides
            cells += cells_of(read_grid(changes))
        return cells

    def _settings_of(self, title: str, scale: str) -> dict[str, Any]:
        """Return a method's own keys, but for those that the scale changes for all."""
        changed = self.scale(scale).change
        own = self.settings.get(title, {})
        return {key: value for key, value in own.items() if not any(_overlap(key, other) for other in changed)}

    def hours(self, scale: str) -> float:
        """Return how long all runs of a scale take, one after another."""
        return sum(self.minutes(cell, scale) for cell in self.cells(scale)) / 60


def _ensemble(title: str, members: list[Cell]) -> Cell:
    method = Method(name="deep_ensemble", members=len(members))
    return Cell(title, None, members[0].seed, members[0].config.model_copy(update={"method": method}))


def _overlap(key: str, other: str) -> bool:
    """Tell whether one of two keys such as ``optimiser`` and ``optimiser.lr`` changes what the other does."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def read_study(path: Path) -> Study:
    """Return the study in a file; `base` may name another file, as seen from this one, and `like` another study."""
    content = _like_another(path)
    # Epochs are scored by one draw of each member unless a study says otherwise, whatever the default of training is.
    if isinstance(base := content.get("base"), dict):
        base["evaluation"] = {"samples": 1, **base.get("evaluation", {})}
    try:
        return parse_config(content, Study)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _like_another(path: Path) -> dict[str, Any]:
    """Return a file's keys; with `like: NAME`, those that it lacks are NAME's, and `base` has changes of NAME's."""
    content = read_yaml(path)
    if isinstance(content.get("base"), str):
        content["base"] = read_yaml(path.parent / content["base"])
    if "like" not in content:
        return content
    other = _like_another(path.parent / f"{content.pop('like')}.yaml")
    words = [f"{key}={json.dumps(value)}" for key, value in content.get("base", {}).items()]
    return {**other, **content, "base": with_overrides(other["base"], words)}


def read_studies(folder: Path) -> dict[str, Study]:
    """Return all studies of ``FOLDER/studies``, by name."""
    return {path.stem: read_study(path) for path in sorted((folder / "studies").glob("*.yaml"))}
