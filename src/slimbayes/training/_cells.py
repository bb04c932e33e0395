"""The cells of a grid: a complete configuration each."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slimbayes.training._grid_file import Grid
from slimbayes.training.config import Method, TrainConfig
from slimbayes.training.models import check_method
from slimbayes.training.networks import check_network
from slimbayes.training.parsing import parse_config, with_overrides


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Attributes:
        method: Title of its method.
        override: Title of its override; None if the grid has none.
        seed: Its seed.
        config: The complete configuration.
    """

    method: str
    override: str | None
    seed: int
    config: TrainConfig

    @property
    def name(self) -> str:
        """Its folder in the grid's."""
        return _name(self.method, self.override, self.seed)


def cells_of(grid: Grid) -> list[Cell]:
    """Return the cells, every one with a configuration that has been checked; the faults of all are told at once.

    Example:
        >>> from slimbayes.training._grid_file import read_grid
        >>> grid = read_grid({"base": {"data": "digits", "net": "mlp"}, "methods": ["rank1", "k_tied"], "seeds": 2})
        >>> [cell.name for cell in cells_of(grid)]
        ['rank1-seed0', 'rank1-seed1', 'k_tied-seed0', 'k_tied-seed1']
    """
    methods = grid.methods or _method_of(grid.base)
    overrides: list[tuple[str | None, dict[str, Any]]] = [*(grid.overrides or {}).items()] or [(None, {})]
    seeds = [grid.base.get("seed", 0)] if grid.seeds is None else grid.seeds
    cells: dict[str, Cell] = {}
    faults: dict[str, list[str]] = {}
    for (method, section), (override, keys), seed in itertools.product(methods.items(), overrides, seeds):
        name = _name(method, override, seed)
        try:
            if name in cells:
                raise ValueError("two cells have this folder. Choose other titles.")
            # JSON is YAML, which is what words have on their right.
            words = [f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in keys.items()]
            config: TrainConfig = parse_config(with_overrides({**grid.base, "method": section, "seed": seed}, words))
            check_network(config.net)
            check_method(config.method)
            cells[name] = Cell(method, override, seed, config)
        except ValueError as error:
            faults.setdefault(str(error), []).append(name)
    if faults:
        told = [f"{_some(names)}: {fault}".replace("\n", "\n  ") for fault, names in faults.items()]
        raise ValueError("\n  ".join(["Nothing was run, since the grid has faults:", *told]))
    return list(cells.values())


def _name(method: str, override: str | None, seed: int) -> str:
    return "-".join([method, *([] if override is None else [override]), f"seed{seed}"])


def _method_of(base: Mapping[str, Any]) -> dict[str, Any]:
    section = base.get("method", {})
    name = section.get("name", Method().name) if isinstance(section, Mapping) else section
    return {str(name): section}


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
