"""The summary over corruptions."""

from types import SimpleNamespace

import pytest

from slimbayes import metrics
from slimbayes.evaluation._scoring import summarise


def corrupted(kinds, severities=(1, 2, 3, 4, 5)):
    return {
        kind: {str(one): {"scores": {"accuracy": 0.5 - 0.05 * one, "nll": float(one)}} for one in severities}
        for kind in kinds
    }


def test_only_imagenet_with_all_conditions_has_an_mce():
    imagenet, other = SimpleNamespace(name="imagenet"), SimpleNamespace(name="cifar10")
    every = corrupted(metrics.ALEXNET_ERRORS)
    # Errors of .55, ..., .75 sum up to 3.25; a type's share of AlexNet's is that of the means.
    expected = sum(3.25 / 5 / alexnet for alexnet in metrics.ALEXNET_ERRORS.values()) / len(metrics.ALEXNET_ERRORS)
    assert summarise(every, imagenet)["mce"] == pytest.approx(expected)
    assert summarise(every, other)["mce"] is None
    assert summarise(corrupted(metrics.ALEXNET_ERRORS, (1, 3)), imagenet)["mce"] is None
    assert summarise(corrupted(["fog"]), imagenet)["mce"] is None
    assert summarise({}, imagenet) is None


def test_means_and_medians_are_over_types_and_severities():
    found = summarise(corrupted(["fog", "snow"]), SimpleNamespace(name="cifar10"))
    assert found["mean"]["nll"] == pytest.approx(3.0)
    assert found["by_severity"]["2"]["nll"]["mean"] == pytest.approx(2.0)
