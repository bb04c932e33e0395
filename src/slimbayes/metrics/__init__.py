"""Scores of predictions, as functions."""

from slimbayes.metrics.classification import accuracy as accuracy
from slimbayes.metrics.classification import brier_score as brier_score
from slimbayes.metrics.classification import expected_calibration_error as expected_calibration_error
from slimbayes.metrics.classification import negative_log_likelihood as negative_log_likelihood
