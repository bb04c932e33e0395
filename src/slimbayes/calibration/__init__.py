"""Post-processing of any prediction: temperature scaling and conformal prediction sets."""

from slimbayes.calibration._measures import coverage as coverage
from slimbayes.calibration._measures import set_size as set_size
from slimbayes.calibration._quantile import conformal_quantile as conformal_quantile
from slimbayes.calibration._stored import load_calibration as load_calibration
from slimbayes.calibration.conformal_classifier import ConformalClassifier as ConformalClassifier
from slimbayes.calibration.conformal_regressor import ConformalRegressor as ConformalRegressor
from slimbayes.calibration.split import calibration_split as calibration_split
from slimbayes.calibration.temperature import TemperatureScaling as TemperatureScaling
