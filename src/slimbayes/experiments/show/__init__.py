"""How results are shown: one small file for each kind, one table of them all."""

from collections.abc import Mapping
from typing import Any

from slimbayes._checks import check_choice
from slimbayes.experiments.show.against_k import AgainstK
from slimbayes.experiments.show.at_steps import AtSteps
from slimbayes.experiments.show.base import Kind as Kind
from slimbayes.experiments.show.base import Shown as Shown
from slimbayes.experiments.show.curves import Curves
from slimbayes.experiments.show.families import Families
from slimbayes.experiments.show.heat_maps import HeatMaps
from slimbayes.experiments.show.illustration import Illustration
from slimbayes.experiments.show.low_rank_table import LowRankTable
from slimbayes.experiments.show.metrics_plot import MetricsPlot
from slimbayes.experiments.show.networks import NetworkCounts
from slimbayes.experiments.show.parameter_counts import ParameterCounts
from slimbayes.experiments.show.scales import Scales
from slimbayes.experiments.show.spectra import Spectra
from slimbayes.experiments.show.table import MetricsTable, Table
from slimbayes.experiments.show.timing import Timing
from slimbayes.training.parsing import parse_config

__all__ = ["KINDS", "parse_show"]

#: By the name that an item's YAML gives under ``kind``.
KINDS: dict[str, type[Kind]] = {
    "table": Table,
    "metrics_table": MetricsTable,
    "metrics_plot": MetricsPlot,
    "low_rank_table": LowRankTable,
    "at_steps": AtSteps,
    "curves": Curves,
    "against_k": AgainstK,
    "spectra": Spectra,
    "heat_maps": HeatMaps,
    "scales": Scales,
    "timing": Timing,
    "parameter_counts": ParameterCounts,
    "network_counts": NetworkCounts,
    "families": Families,
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
