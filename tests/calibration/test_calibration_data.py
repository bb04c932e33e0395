"""Calibration data are apart from test data, and what was fitted on them can be stored."""

import copy
import json
import pickle
import warnings

import numpy as np
import pytest
import torch

import slimbayes as sb

P = sb.Prediction(torch.randn(3, 40, 4, generator=torch.Generator().manual_seed(0)), sb.Categorical(), 3)
Y = torch.arange(40) % 4
R = sb.Prediction(torch.randn(3, 40, generator=torch.Generator().manual_seed(0)), sb.Gaussian(0.5), 3)

CASES = [
    (sb.TemperatureScaling(bounds=(0.001, 1e4)), P, Y, "apply"),
    (sb.TemperatureScaling("mixture", bounds=(0.001, 1e4)), P, Y, "apply"),
    (sb.TemperatureScaling(), R, Y.float(), "apply"),
    (sb.ConformalClassifier(level=0.7), P, Y, "sets"),
    (sb.ConformalClassifier(0.7, "aps", randomised=False, per_class=True), P, Y, "sets"),
    (sb.ConformalRegressor(), R, Y.float(), "interval"),
]
cases = pytest.mark.parametrize(("calibrator", "prediction", "targets", "use"), CASES)


@pytest.fixture(autouse=True)
def _useless_models_need_no_telling():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The temperature ended at its bound")
        yield


def numbers(result):
    if isinstance(result, sb.Prediction):
        return [result.outputs, *(result.moments if isinstance(result.likelihood, sb.Gaussian) else ())]
    return [result] if isinstance(result, torch.Tensor) else list(result)


@pytest.mark.parametrize("members", [1, 3])
def test_split_parts_are_disjoint_and_whole(members):
    numbered = sb.Prediction(torch.arange(50.0).expand(3, 50).clone(), sb.Gaussian(0.5), members)
    calibration, test = sb.calibration_split(numbered, torch.arange(50), fraction=0.3, seed=1)
    for part, size in ((calibration, 15), (test, 35)):
        assert part[0].draws.shape == (3, size)
        assert torch.equal(part[0].draws[2].long(), part[1])
        assert (part[0].members, part[0].likelihood) == (members, numbered.likelihood)
    assert sorted([*calibration[1].tolist(), *test[1].tolist()]) == list(range(50))
    again, other = (sb.calibration_split(numbered, torch.arange(50), 0.3, seed)[0][1] for seed in (1, 2))
    assert torch.equal(again, calibration[1])
    assert not torch.equal(other, calibration[1])


def test_split_of_time_first_outputs():
    outputs = torch.arange(30.0).expand(2, 7, 30).clone()[..., None].expand(-1, -1, -1, 4)
    p = sb.Prediction(outputs, sb.Categorical(), 2, batch_dim=1)
    (part, targets), _ = sb.calibration_split(p, torch.arange(30).expand(7, 30), fraction=0.2)
    assert part.draws.shape == (2, 7, 6, 4)
    assert torch.equal(part.draws[0, 0, :, 0].long(), targets[0])
    assert part.log_likelihood(torch.zeros_like(targets)).shape == (6,)
    labels = sb.Prediction(torch.randn(2, 30, 4), sb.Categorical(), 2, batch_dim=1)  # one of each whole sequence
    assert sb.calibration_split(labels, torch.arange(30), fraction=0.2)[0][0].draws.shape == (2, 6, 4)


@cases
def test_nothing_without_calibration_data(calibrator, prediction, targets, use):
    for call in (lambda: getattr(calibrator, use)(prediction), calibrator.state_dict):
        with pytest.raises(RuntimeError, match=r"seen no calibration data\. Call fit"):
            call()


@cases
def test_not_on_the_calibration_data(calibrator, prediction, targets, use):
    fitted = copy.deepcopy(calibrator).fit(prediction, targets)
    alias = sb.Prediction(prediction.draws[:], prediction.likelihood, prediction.members)
    for same in (prediction, alias):
        with pytest.raises(ValueError, match="fitted on this very prediction.*calibration_split"):
            getattr(fitted, use)(same)


def test_two_halves_of_one_tensor_are_not_the_same():
    regressor = sb.ConformalRegressor(0.8).fit(sb.Prediction(R.draws[:, :20], R.likelihood), Y[:20])
    assert regressor.interval(sb.Prediction(R.draws[:, 20:], R.likelihood))[0].shape == (20,)


@cases
def test_stored_and_loaded(calibrator, prediction, targets, use, tmp_path):
    calibration, test = sb.calibration_split(prediction, targets, fraction=0.8)
    fitted = copy.deepcopy(calibrator).fit(*calibration)
    fitted.save(tmp_path / "calibration.json")
    loaded = sb.load_calibration(str(tmp_path / "calibration.json"))
    for again in (loaded, pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert again == fitted
        for one, other in zip(
            numbers(getattr(again, use)(test[0])), numbers(getattr(fitted, use)(test[0])), strict=True
        ):
            assert torch.equal(one, other)
    assert loaded.examples == 32
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 2.*Update"),
        ({"calibrator": "os.system"}, "os.system"),
        ({"fitted": {"x": 1}}, "'x'"),
        ({"fitted": {"examples": 40}}, "other fields than ConformalRegressor: .'quantile'."),
        ({"options": {"levels": 0.9}}, "'levels'"),
    ],
)
def test_files_of_others_are_refused(change, words, tmp_path):
    state = sb.ConformalRegressor().fit(R, Y).state_dict()
    (tmp_path / "a.json").write_text(json.dumps({**state, **change}))
    with pytest.raises(ValueError, match=words):
        sb.load_calibration(tmp_path / "a.json")
    with pytest.raises(FileNotFoundError, match=r"b\.json.*save"):
        sb.load_calibration(tmp_path / "b.json")


@pytest.mark.parametrize(("text", "words"), [("level: 0.9", "no JSON file"), ("[1]", "format None")])
def test_files_of_another_kind_are_refused(text, words, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=rf"a\.json.*{words}.*save\(path\)"):
        sb.load_calibration(tmp_path / "a.json")


def test_numbers_of_numpy_can_be_stored(tmp_path):
    for number, calibrator in enumerate(
        [
            sb.ConformalRegressor(level=np.float32(0.75)).fit(R, Y),
            sb.ConformalClassifier(level=np.float32(0.75)).fit(P, Y),
            sb.TemperatureScaling(bounds=np.array([0.5, 2.0], dtype=np.float32)).fit(R, Y),
        ]
    ):
        calibrator.save(tmp_path / f"{number}.json")
        assert sb.load_calibration(tmp_path / f"{number}.json") == calibrator


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fraction": 1.0}, "`fraction`"),
        ({"fraction": 0.001}, "0.001 of 40 is 0"),
        ({"seed": -1}, "`seed`"),
        ({"targets": Y[:7]}, r"each of the 40 examples.*\(7,\)"),
    ],
)
def test_misuse_of_the_split(arguments, words):
    with pytest.raises(ValueError, match=words):
        sb.calibration_split(P, **{"targets": Y, **arguments})
