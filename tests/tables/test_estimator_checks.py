"""scikit-learn's own checks of estimators."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from slimbayes.sklearn import BayesClassifier, BayesRegressor

#: Nothing is random but the initial weights, so that two rows are as good as one of weight two.
EXACT = {
    "method": "batch_ensemble",
    "members": 2,
    "width": 32,
    "batch_size": 256,
    "max_epochs": 40,
    "early_stopping": False,
    "dtype": "float64",
    "learning_rate": 0.02,
}
#: The defaults, but small. Rows held out and random draws differ where a row comes twice.
USUAL = {"members": 2, "width": 32, "max_epochs": 40, "learning_rate": 0.02, "refit": False}
RANDOM = "a row that comes twice is not a row of weight two for early stopping and for random draws"


@pytest.mark.slow
@parametrize_with_checks([BayesRegressor(**EXACT), BayesClassifier(**EXACT)])
def test_every_check_passes(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [BayesRegressor(**USUAL), BayesClassifier(**USUAL)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": RANDOM,
        "check_sample_weight_equivalence_on_sparse_data": RANDOM,
    },
    xfail_strict=False,
)
def test_every_check_of_the_defaults_passes(estimator, check):
    check(estimator)


QUICK = ("check_no_attributes_set_in_init", "check_parameters_default_constructible", "check_valid_tag_types")


@pytest.mark.parametrize("kind", [BayesRegressor, BayesClassifier])
def test_quick_checks_pass(kind):
    """A few of them in every run of the tests; all are in the slow ones."""
    found = [check for _, check in estimator_checks_generator(kind()) if check.func.__name__ in QUICK]
    assert len(found) == len(QUICK)
    for check in found:
        check(kind())
