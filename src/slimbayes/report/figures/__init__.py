"""The figures of a report; each function draws one idea from a comparison, or returns None if records lack it."""

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures._style import Drawing
from slimbayes.report.figures.member_figures import diversity, diversity_paths, member_pairs, samples_per_member
from slimbayes.report.figures.posterior import sigma_maps, spectra
from slimbayes.report.figures.predictions import interval_calibration, mean_against_target, reliability, risk_coverage
from slimbayes.report.figures.training_curves import training_curves
from slimbayes.report.figures.uncertainty import entropy_of_errors, ood_measures, out_of_distribution
from slimbayes.report.figures.under_shift import severity_curves, type_boxes

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
