"""Scores of predictions, as functions and as torchmetrics classes that stream to the same values."""

from typing import TYPE_CHECKING

from slimbayes._lazy import lazily

if TYPE_CHECKING:
    from slimbayes.metrics.binary import from_confidence as from_confidence
    from slimbayes.metrics.binary import two_class as two_class
    from slimbayes.metrics.bootstrap import bootstrap_interval as bootstrap_interval
    from slimbayes.metrics.calibration_error import Reliability as Reliability
    from slimbayes.metrics.calibration_error import adaptive_calibration_error as adaptive_calibration_error
    from slimbayes.metrics.calibration_error import classwise_calibration_error as classwise_calibration_error
    from slimbayes.metrics.calibration_error import expected_calibration_error as expected_calibration_error
    from slimbayes.metrics.calibration_error import reliability_curve as reliability_curve
    from slimbayes.metrics.calibration_error import signed_calibration_error as signed_calibration_error
    from slimbayes.metrics.classification import accuracy as accuracy
    from slimbayes.metrics.classification import brier_score as brier_score
    from slimbayes.metrics.classification import negative_log_likelihood as negative_log_likelihood
    from slimbayes.metrics.classification import top_k_accuracy as top_k_accuracy
    from slimbayes.metrics.corruption import ALEXNET_ERRORS as ALEXNET_ERRORS
    from slimbayes.metrics.corruption import SeveritySpread as SeveritySpread
    from slimbayes.metrics.corruption import by_severity as by_severity
    from slimbayes.metrics.corruption import corruption_mean as corruption_mean
    from slimbayes.metrics.corruption import corruption_median as corruption_median
    from slimbayes.metrics.corruption import mean_corruption_error as mean_corruption_error
    from slimbayes.metrics.diversity import cosine_similarity as cosine_similarity
    from slimbayes.metrics.diversity import disagreement as disagreement
    from slimbayes.metrics.diversity import normalised_disagreement as normalised_disagreement
    from slimbayes.metrics.diversity import pairwise_disagreement as pairwise_disagreement
    from slimbayes.metrics.diversity import pairwise_kl as pairwise_kl
    from slimbayes.metrics.example_metrics import AdaptiveCalibrationError as AdaptiveCalibrationError
    from slimbayes.metrics.example_metrics import AucPr as AucPr
    from slimbayes.metrics.example_metrics import AucRoc as AucRoc
    from slimbayes.metrics.example_metrics import Aurc as Aurc
    from slimbayes.metrics.example_metrics import OodScores as OodScores
    from slimbayes.metrics.example_metrics import RiskCoverageCurve as RiskCoverageCurve
    from slimbayes.metrics.mean_metrics import Accuracy as Accuracy
    from slimbayes.metrics.mean_metrics import BrierScore as BrierScore
    from slimbayes.metrics.mean_metrics import CosineSimilarity as CosineSimilarity
    from slimbayes.metrics.mean_metrics import Crps as Crps
    from slimbayes.metrics.mean_metrics import Disagreement as Disagreement
    from slimbayes.metrics.mean_metrics import GaussianNegativeLogLikelihood as GaussianNegativeLogLikelihood
    from slimbayes.metrics.mean_metrics import IntervalCoverage as IntervalCoverage
    from slimbayes.metrics.mean_metrics import IntervalWidth as IntervalWidth
    from slimbayes.metrics.mean_metrics import NegativeLogLikelihood as NegativeLogLikelihood
    from slimbayes.metrics.mean_metrics import PairwiseKl as PairwiseKl
    from slimbayes.metrics.mean_metrics import RootMeanSquaredError as RootMeanSquaredError
    from slimbayes.metrics.mean_metrics import SignedCalibrationError as SignedCalibrationError
    from slimbayes.metrics.mean_metrics import TopKAccuracy as TopKAccuracy
    from slimbayes.metrics.members import per_member as per_member
    from slimbayes.metrics.ood import OOD_MEASURES as OOD_MEASURES
    from slimbayes.metrics.ood import Detection as Detection
    from slimbayes.metrics.ood import energy_score as energy_score
    from slimbayes.metrics.ood import entropy_score as entropy_score
    from slimbayes.metrics.ood import max_probability_score as max_probability_score
    from slimbayes.metrics.ood import mutual_information_score as mutual_information_score
    from slimbayes.metrics.ood import ood_scores as ood_scores
    from slimbayes.metrics.ranked_probability import crps as crps
    from slimbayes.metrics.ranking import auc_pr as auc_pr
    from slimbayes.metrics.ranking import auc_roc as auc_roc
    from slimbayes.metrics.regression import gaussian_negative_log_likelihood as gaussian_negative_log_likelihood
    from slimbayes.metrics.regression import interval_coverage as interval_coverage
    from slimbayes.metrics.regression import interval_width as interval_width
    from slimbayes.metrics.regression import root_mean_squared_error as root_mean_squared_error
    from slimbayes.metrics.selective import RiskCoverage as RiskCoverage
    from slimbayes.metrics.selective import aurc as aurc
    from slimbayes.metrics.selective import risk_coverage_curve as risk_coverage_curve
    from slimbayes.metrics.spread import standard_error as standard_error
    from slimbayes.metrics.sum_metrics import ClasswiseCalibrationError as ClasswiseCalibrationError
    from slimbayes.metrics.sum_metrics import ExpectedCalibrationError as ExpectedCalibrationError
    from slimbayes.metrics.sum_metrics import NormalisedDisagreement as NormalisedDisagreement
    from slimbayes.metrics.sum_metrics import PairwiseDisagreement as PairwiseDisagreement
    from slimbayes.metrics.sum_metrics import ReliabilityCurve as ReliabilityCurve

#: Where each public name is: the functions need no torchmetrics. A test holds this against the list above.
_PLACES = {
    **dict.fromkeys(("from_confidence", "two_class"), "binary"),
    **dict.fromkeys(("bootstrap_interval",), "bootstrap"),
    **dict.fromkeys(
        (
            "Reliability",
            "adaptive_calibration_error",
            "classwise_calibration_error",
            "expected_calibration_error",
            "reliability_curve",
            "signed_calibration_error",
        ),
        "calibration_error",
    ),
    **dict.fromkeys(("accuracy", "brier_score", "negative_log_likelihood", "top_k_accuracy"), "classification"),
    **dict.fromkeys(
        (
            "ALEXNET_ERRORS",
            "SeveritySpread",
            "by_severity",
            "corruption_mean",
            "corruption_median",
            "mean_corruption_error",
        ),
        "corruption",
    ),
    **dict.fromkeys(
        ("cosine_similarity", "disagreement", "normalised_disagreement", "pairwise_disagreement", "pairwise_kl"),
        "diversity",
    ),
    **dict.fromkeys(("per_member",), "members"),
    **dict.fromkeys(
        (
            "Accuracy",
            "BrierScore",
            "CosineSimilarity",
            "Crps",
            "Disagreement",
            "GaussianNegativeLogLikelihood",
            "IntervalCoverage",
            "IntervalWidth",
            "NegativeLogLikelihood",
            "PairwiseKl",
            "RootMeanSquaredError",
            "SignedCalibrationError",
            "TopKAccuracy",
        ),
        "mean_metrics",
    ),
    **dict.fromkeys(
        (
            "ClasswiseCalibrationError",
            "ExpectedCalibrationError",
            "NormalisedDisagreement",
            "PairwiseDisagreement",
            "ReliabilityCurve",
        ),
        "sum_metrics",
    ),
    **dict.fromkeys(
        ("AdaptiveCalibrationError", "AucPr", "AucRoc", "Aurc", "OodScores", "RiskCoverageCurve"), "example_metrics"
    ),
    **dict.fromkeys(
        (
            "Detection",
            "OOD_MEASURES",
            "energy_score",
            "entropy_score",
            "max_probability_score",
            "mutual_information_score",
            "ood_scores",
        ),
        "ood",
    ),
    **dict.fromkeys(("crps",), "ranked_probability"),
    **dict.fromkeys(("auc_pr", "auc_roc"), "ranking"),
    **dict.fromkeys(
        ("gaussian_negative_log_likelihood", "interval_coverage", "interval_width", "root_mean_squared_error"),
        "regression",
    ),
    **dict.fromkeys(("RiskCoverage", "aurc", "risk_coverage_curve"), "selective"),
    **dict.fromkeys(("standard_error",), "spread"),
}

__getattr__ = lazily("slimbayes.metrics", _PLACES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
