"""Classification and regression of tables as scikit-learn has it, with honest error bars.

>>> import numpy as np
>>> X = np.random.default_rng(0).normal(size=(200, 3)); y = X[:, 0] + 0.1 * X[:, 1]
>>> model = BayesRegressor(max_epochs=20, random_state=0).fit(X, y)
>>> mean, std = model.predict(X[:5], return_std=True)
>>> mean.shape, bool((std > 0).all())
((5,), True)
"""

try:
    import sklearn as _needed  # noqa: F401
except ImportError as error:
    raise ImportError('slimbayes.sklearn needs scikit-learn: pip install "slimbayes[sklearn]"') from error

from slimbayes.sklearn._classifier import BayesClassifier
from slimbayes.sklearn._distribution import PredictiveDistribution
from slimbayes.sklearn._estimator import Uncertainty
from slimbayes.sklearn._regressor import BayesRegressor

__all__ = ["BayesClassifier", "BayesRegressor", "PredictiveDistribution", "Uncertainty"]
