"""Evaluation of odd models, odd data and odd folders: right numbers, or an error that says what to do."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import slimbayes as sb
from slimbayes._seeds import Purpose, mix
from slimbayes.data import load_data
from slimbayes.evaluation.evaluating import evaluate
from slimbayes.evaluation.loading import load_subject
from slimbayes.evaluation.record import Evaluation
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.subject import Subject
from slimbayes.likelihoods import get_likelihood
from slimbayes.training import fit

SEED = mix(0, Purpose.EVALUATION, 0)


def point(data, outputs, seed=0, bias=None):
    torch.manual_seed(seed)
    linear = torch.nn.Linear(int(np.prod(data.task.input_shape)), outputs)
    if bias is not None:
        torch.nn.init.constant_(linear.bias, bias)
    model = sb.deterministic(torch.nn.Sequential(torch.nn.Flatten(), linear))
    model.likelihood = get_likelihood(data.task.likelihood)
    return Subject(model.eval(), data, f"point{seed}", "point")


def test_members_nll_of_several_labels_sums_over_them_as_the_mixtures_does(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype("f4")
    y = (x[:, :3] > 0).astype("f4")
    np.savez(tmp_path / "labels.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    data = {"name": "arrays", "path": str(tmp_path / "labels.npz"), "task": "bernoulli"}
    config = {"data": data, "net": "mlp", "epochs": 1, "method": {"name": "batch_ensemble", "members": 2}}
    subject = load_subject(fit(config, tmp_path / "run", quiet=True).folder)
    (result,) = evaluate([subject], Settings(resamples=0, corruptions="none", ood="none"))
    logits = subject.model.predict(torch.from_numpy(x[40:]), seed=SEED).draws.double().numpy()  # (2, 50, 3)
    by_label = stats.bernoulli.logpmf(y[40:], 1 / (1 + np.exp(-logits)))
    assert [one["nll"] for one in result.result()["clean"]["members"]] == pytest.approx(-by_label.sum(2).mean(1))
    mixture = np.log(np.exp(by_label.sum(2)).mean(0))
    assert result.clean()["nll"] == pytest.approx(-mixture.mean())
    assert result.clean()["accuracy"] == pytest.approx(
        np.mean(((1 / (1 + np.exp(-logits))).mean(0) > 0.5) == (y[40:] > 0))
    )


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["diabetes", "iris"])
def test_a_model_that_predicts_nonsense_is_named(name, wrong):
    data = load_data(name)
    good, bad = (point(data, data.task.outputs, seed, bias) for seed, bias in enumerate((None, wrong)))
    with pytest.raises(ValueError, match=r"point1 predicts (nan|-?inf) for .*\(clean"):
        evaluate([good, bad], Settings(resamples=0, ood="none", severities=(1,)))


def test_a_class_that_is_ruled_out_is_no_nonsense():
    data = load_data("iris")
    one = point(data, 3)
    with torch.no_grad():
        one.model.net[1].bias[2] = -torch.inf
    (found,) = evaluate([one], Settings(resamples=0, corruptions="none", ood="none"))
    assert found.clean()["nll"] is None  # infinite, as some examples are of that class
    (x,), y = data.test.fetch(torch.arange(30))
    logits = one.model.net(data.preparation(x)[0]).detach()
    assert found.clean()["accuracy"] == pytest.approx((logits[:, :2].argmax(1) == y).double().mean().item())


def test_models_of_several_data_sets_are_not_mixed_up():
    iris, wine = load_data("iris"), load_data("wine")
    with pytest.raises(ValueError, match=r"point0 \(iris\) and point1 \(wine\).*one by one"):
        evaluate([point(iris, 3), point(wine, 3, 1)])
    with pytest.raises(ValueError, match="at least one subject"):
        evaluate([])


def test_regressions_have_no_out_of_distribution_sets():
    diabetes = point(load_data("diabetes"), 1)
    (found,) = evaluate([diabetes], Settings(resamples=0, severities=(1,)))
    assert found.result()["ood"] == {}
    with pytest.raises(ValueError, match="`ood`.*regression such as diabetes, but got noise"):
        evaluate([diabetes], Settings(ood=("noise",)))


@pytest.mark.parametrize(("text", "message"), [('{"a"', "is not JSON"), ("[]", "not hold"), ("{}", "not hold")])
def test_a_file_that_is_no_evaluation_is_said_to_be_none(tmp_path, text, message):
    (tmp_path / "evaluation.json").write_text(text)
    subject = replace(point(load_data("iris"), 3), folder=tmp_path)
    with pytest.raises(ValueError, match=rf"evaluation.json .*{message}.*--fresh"):
        evaluate([subject])
    assert (tmp_path / "evaluation.json").read_text() == text
    assert evaluate([subject], Settings(resamples=0, corruptions="none"), fresh=True)[0].content["complete"]


def test_sets_that_were_not_come_to_are_not_said_to_be_there(tmp_path):
    subject = replace(point(load_data("iris"), 3), folder=tmp_path)
    settings = Settings(resamples=0, corruptions="none", ood=("noise",))

    def stop(done, total):
        if done > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate([subject], settings, progress=stop)
    assert Evaluation.read(tmp_path).content["settings"]["ood"] == ["noise"]
    (found,) = evaluate([subject], replace(settings, ood="none"))
    assert (found.content["settings"]["ood"], found.content["complete"]) == ([], True)


def test_a_full_disk_leaves_the_file_whole_and_is_named(tmp_path, monkeypatch):
    subject = replace(point(load_data("iris"), 3), folder=tmp_path)
    evaluate([subject], Settings(resamples=0, corruptions="none"))
    before = (tmp_path / "evaluation.json").read_text()

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("slimbayes._files.to_disk", full)
    with pytest.raises(OSError, match=r"Cannot write .*evaluation.json: No space left on device"):
        evaluate([subject], Settings(resamples=0, corruptions="none"), fresh=True)
    assert (tmp_path / "evaluation.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation.json"]


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *args: False)
    subject = replace(point(load_data("iris"), 3), folder=tmp_path)
    with pytest.raises(PermissionError, match="is not writable"):
        evaluate([subject], progress=lambda done, total: pytest.fail("it has begun"))


def test_other_sets_are_looked_for_where_the_run_found_its_data(tmp_path, monkeypatch):
    pillow = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("SLIMBAYES_DATA", str(tmp_path / "elsewhere"))
    (tmp_path / "data" / "mine").mkdir(parents=True)
    for number in range(3):
        pillow.new("L", (9, 9), 80 * number).save(tmp_path / "data" / "mine" / f"{number}.png")
    data = {"name": "digits", "folder": str(tmp_path / "data")}
    config = {"data": data, "net": "mlp", "epochs": 1, "method": "deterministic"}
    subject = load_subject(fit(config, tmp_path / "run", quiet=True).folder)
    (found,) = evaluate([subject], Settings(resamples=0, corruptions="none", ood=("mine",)))
    assert found.result()["ood"]["mine"]["examples"] == 3
