"""How results are shown: one small file for each kind, one table of them all."""

from collections.abc import Mapping
from typing import Any

from reproductions.show.against_option import AgainstOption
from reproductions.show.at_steps import AtSteps
from reproductions.show.base import Kind as Kind
from reproductions.show.base import Shown as Shown
from reproductions.show.curves import Curves
from reproductions.show.families import Families
from reproductions.show.finetuned_table import FinetunedTable
from reproductions.show.heat_maps import HeatMaps
from reproductions.show.illustration import Illustration
from reproductions.show.low_rank_table import LowRankTable
from reproductions.show.metrics_plot import MetricsPlot
from reproductions.show.networks import NetworkCounts
from reproductions.show.pairs import Pairs
from reproductions.show.parameter_counts import ParameterCounts
from reproductions.show.scales import Scales
from reproductions.show.spectra import Spectra
from reproductions.show.table import MetricsTable, Table
from reproductions.show.timing import Timing
from slimbayes._checks import check_choice
from slimbayes.training.parsing import parse_config

__all__ = ["KINDS", "parse_show"]

#: By the name that an item's YAML gives under ``kind``.
KINDS: dict[str, type[Kind]] = {
    "table": Table,
    "metrics_table": MetricsTable,
    "metrics_plot": MetricsPlot,
    "pairs": Pairs,
    "low_rank_table": LowRankTable,
    "at_steps": AtSteps,
    "curves": Curves,
    "against_option": AgainstOption,
    "spectra": Spectra,
    "heat_maps": HeatMaps,
    "scales": Scales,
    "timing": Timing,
    "parameter_counts": ParameterCounts,
    "network_counts": NetworkCounts,
    "families": Families,
    "finetuned_table": FinetunedTable,
    "illustration": Illustration,
}


def parse_show(content: Mapping[str, Any]) -> Kind:
    """Return one entry under ``show``; faults are named with their keys.

    Example:
        >>> parse_show({"kind": "table", "study": "mnist", "colums": ["nll"]})
        Traceback (most recent call last):
            ...
        ValueError: The configuration has 2 faults:
          columns: it is missing.
          colums: there is no such key. Did you mean 'columns'?
    """
    check_choice("kind", content.get("kind"), KINDS)
    return parse_config(content, KINDS[content["kind"]])
