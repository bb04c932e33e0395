"""The figures of a report; each module draws one idea from a comparison, or nothing where the records lack it."""

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.diversity import diversity, diversity_paths
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.histograms import entropy_of_errors, out_of_distribution
from slimbayes.report.figures.ood_measures import ood_measures
from slimbayes.report.figures.pairs import member_pairs
from slimbayes.report.figures.posterior import sigma_maps, spectra
from slimbayes.report.figures.regression import interval_calibration, mean_against_target
from slimbayes.report.figures.reliability import reliability
from slimbayes.report.figures.risk_coverage import risk_coverage
from slimbayes.report.figures.samples import samples_per_member
from slimbayes.report.figures.severity import severity_curves
from slimbayes.report.figures.training import training_curves
from slimbayes.report.figures.type_boxes import type_boxes

__all__ = ["FIGURES", "Drawing", "drawings"]

#: In the order of the page: predictions, shift, strangers, members, training, posterior.
FIGURES = (
    reliability,
    interval_calibration,
    mean_against_target,
    risk_coverage,
    entropy_of_errors,
    severity_curves,
    type_boxes,
    out_of_distribution,
    ood_measures,
    diversity,
    diversity_paths,
    member_pairs,
    samples_per_member,
    training_curves,
    spectra,
    sigma_maps,
)


def drawings(comparison: Comparison) -> list[Drawing]:
    """Return the figures that the records have data for, in the order of the page."""
    return [drawing for draw in FIGURES if (drawing := draw(comparison)) is not None]
