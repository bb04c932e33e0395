import numpy as np
import pytest
import torch

from slimbayes.metrics import ALEXNET_ERRORS, by_severity, corruption_mean, corruption_median, mean_corruption_error

TABLE = {name: {s: 0.1 * s + 0.01 * t for s in range(1, 6)} for t, name in enumerate(ALEXNET_ERRORS)}


def test_summaries_agree_with_numpy():
    cells = np.array([list(row.values()) for row in TABLE.values()])
    assert corruption_mean(TABLE) == pytest.approx(cells.mean(), abs=1e-12)
    assert corruption_median(TABLE) == pytest.approx(np.median(cells), abs=1e-12)
    for severity, spread in by_severity(TABLE).items():
        column = cells[:, severity - 1]
        assert spread == pytest.approx((column.mean(), np.median(column), column.std(ddof=1)), abs=1e-12)


def test_one_type_has_no_spread():
    assert by_severity({"fog": {"3": 0.5}}) == {"3": (0.5, 0.5, None)}


def test_alexnet_itself_has_the_error_one():
    same = {name: dict.fromkeys(range(1, 6), error) for name, error in ALEXNET_ERRORS.items()}
    assert mean_corruption_error(same) == pytest.approx(1, abs=1e-12)
    assert len(ALEXNET_ERRORS) == 15


def test_resnet_50_from_its_published_corruption_errors():
    # Top-1 errors of torchvision's ResNet-50, mean over severities, and its corruption error in per cent.
    published = {"brightness": (0.3198, 56.64), "gaussian_noise": (0.7071, 79.77), "glass_blur": (0.7321, 88.61)}
    for name, (error, expected) in published.items():
        table = {name: dict.fromkeys("12345", error)}
        assert 100 * mean_corruption_error(table, {name: ALEXNET_ERRORS[name]}) == pytest.approx(expected, abs=0.01)


def test_mce_by_hand_and_extra_types_left_out():
    errors = {"fog": dict.fromkeys(range(1, 6), 0.5), "snow": {s: s / 10 for s in range(1, 6)}, "spatter": {1: 1.0}}
    assert mean_corruption_error(errors, {"fog": 0.25, "snow": 0.6}) == pytest.approx((2 + 0.5) / 2)


def test_wrong_tables():
    with pytest.raises(ValueError, match="15 types, but got not all of snow"):
        mean_corruption_error({name: row for name, row in TABLE.items() if name != "snow"})
    with pytest.raises(ValueError, match="not all of fog"):
        mean_corruption_error({**TABLE, "fog": {1: 0.1}})
    for summary in (corruption_mean, corruption_median, by_severity, mean_corruption_error):
        with pytest.raises(ValueError, match="at least one"):
            summary({})
        with pytest.raises(ValueError, match="NaN.*fog, 1"):
            summary({"fog": {1: float("nan")}})


def test_errors_in_per_cent_are_refused():
    percent = {name: dict.fromkeys(range(1, 6), 70.0) for name in ALEXNET_ERRORS}
    with pytest.raises(ValueError, match="`errors`.*fractions from 0 to 1, but got 70.*100"):
        mean_corruption_error(percent)


def test_infinite_scores_and_tensors():
    spread = by_severity({"fog": {1: np.inf}, "snow": {1: 1.0}, "frost": {1: 2.0}})[1]
    assert spread == (np.inf, 2.0, np.inf)
    tensors = {name: {s: torch.tensor(value) for s, value in row.items()} for name, row in TABLE.items()}
    assert by_severity(tensors)[3] == pytest.approx(by_severity(TABLE)[3], abs=1e-6)
    assert corruption_median(tensors) == pytest.approx(corruption_median(TABLE), abs=1e-6)
