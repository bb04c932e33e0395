"""Evaluation of runs: against scikit-learn and plain loops, in one go and after an interruption."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import sklearn.metrics
import torch
from PIL import Image
from scipy import stats

import slimbayes as sb
from slimbayes._seeds import Purpose, mix
from slimbayes.data import load_data
from slimbayes.evaluation import evaluating
from slimbayes.evaluation.evaluating import evaluate
from slimbayes.evaluation.loading import find_runs, load_subject
from slimbayes.evaluation.record import Evaluation
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.subject import Subject
from slimbayes.likelihoods import get_likelihood
from slimbayes.training import TrainConfig, fit

QUICK = Settings(samples=(1, 3), corruptions=("noise", "blur"), severities=(1, 5), ood=("photos",), resamples=50)
DIGITS = {"data": "digits", "net": {"name": "mlp", "hidden": [20]}, "epochs": 3, "seed": 4}
SEED = mix(0, Purpose.EVALUATION, 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "rank1"
    return fit({**DIGITS, "method": {"name": "rank1", "members": 3}}, folder, quiet=True)


@pytest.fixture(scope="module")
def subject(run):
    return load_subject(run.folder)


@pytest.fixture(scope="module")
def found(subject):
    return evaluate([replace(subject, folder=None)], QUICK)[0]


@pytest.fixture(scope="module")
def prediction(subject):
    (images,), targets = subject.data.test.fetch(torch.arange(500))
    return subject.model.predict(images, samples=3, seed=SEED), targets.numpy()


def test_clean_scores_are_those_of_scikit_learn(found, prediction):
    p, targets = prediction
    probs = p.draws.double().softmax(-1).mean(0).numpy()
    scores = found.clean(3)
    assert scores["nll"] == pytest.approx(sklearn.metrics.log_loss(targets, probs), abs=1e-6)
    assert scores["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(targets, probs.argmax(1)), abs=1e-6)
    truth = np.eye(10)[targets]
    assert scores["brier"] == pytest.approx(((probs - truth) ** 2).sum(1).mean(), abs=1e-6)
    top = sklearn.metrics.top_k_accuracy_score(targets, probs, k=5, labels=range(10))
    assert scores["top_5"] == pytest.approx(top, abs=1e-6)
    assert scores["entropy"] == pytest.approx(stats.entropy(probs, axis=1).mean(), abs=1e-6)


def test_bf16_scores_are_those_of_predictions_under_autocast(subject, found, prediction):
    few = Settings(samples=(3,), corruptions="none", ood="none", resamples=0, precision="bf16")
    scores = evaluate([replace(subject, folder=None)], few)[0].clean(3)
    (images,), _ = subject.data.test.fetch(torch.arange(500))
    with torch.autocast("cpu", torch.bfloat16):
        p = subject.model.predict(images, samples=3, seed=SEED)
    probs = p.draws.double().softmax(-1).mean(0).numpy()
    assert scores["nll"] == pytest.approx(sklearn.metrics.log_loss(prediction[1], probs), abs=1e-6)
    assert scores["nll"] != found.clean(3)["nll"]
    assert scores["nll"] == pytest.approx(found.clean(3)["nll"], rel=0.02)


def test_fewer_samples_are_the_first_of_each_member(found, prediction):
    p, targets = prediction
    first = p.draws.double().unflatten(0, (3, 3))[:, 0].softmax(-1).mean(0).numpy()
    assert found.clean(1)["nll"] == pytest.approx(sklearn.metrics.log_loss(targets, first), abs=1e-6)


def test_members_and_their_diversity_are_those_of_a_plain_loop(found, prediction):
    p, targets = prediction
    members = p.draws.double().unflatten(0, (3, 3)).softmax(-1).mean(1).numpy()
    labels = members.argmax(-1)
    clean = found.result(3)["clean"]
    assert [one["nll"] for one in clean["members"]] == pytest.approx(
        [sklearn.metrics.log_loss(targets, one) for one in members], abs=1e-6
    )
    pairs = [[np.mean(labels[i] != labels[j]) for j in range(3)] for i in range(3)]
    assert np.allclose(clean["diversity"]["pairs"], pairs, atol=1e-9)
    raw = np.mean([pairs[i][j] for i in range(3) for j in range(3) if i != j])
    assert clean["diversity"]["disagreement"] == pytest.approx(raw)
    share_right = np.mean(labels == targets)
    assert clean["scores"]["normalised_disagreement"] == pytest.approx(raw / (1 - share_right))
    kl = [stats.entropy(members[i], members[j], axis=1).mean() for i in range(3) for j in range(3) if i != j]
    assert clean["diversity"]["kl"] == pytest.approx(np.mean(kl))


def test_a_corruption_is_that_of_the_demo_and_summed_up_by_hand(found, subject):
    from slimbayes.data.digits import corrupt, load_digits

    images, targets = load_digits().test
    p = subject.model.predict(corrupt(images, "blur", 5), samples=3, seed=SEED)
    expected = sklearn.metrics.log_loss(targets, p.draws.double().softmax(-1).mean(0).numpy())
    corrupted = {(name, severity): scores["nll"] for name, severity, scores in found.corrupted(3)}
    assert corrupted["blur", 5] == pytest.approx(expected, abs=1e-6)
    assert set(corrupted) == {("noise", 1), ("noise", 5), ("blur", 1), ("blur", 5)}
    summary = found.result(3)["summary"]
    assert summary["mean"]["nll"] == pytest.approx(np.mean(list(corrupted.values())))
    assert summary["median"]["nll"] == pytest.approx(np.median(list(corrupted.values())))
    assert summary["by_severity"]["5"]["nll"]["mean"] == pytest.approx(
        (corrupted["noise", 5] + corrupted["blur", 5]) / 2
    )


def test_out_of_distribution_scores_are_those_of_scikit_learn(found, subject, prediction):
    from slimbayes.evaluation.ood_sets import ood_condition

    inputs, _ = ood_condition("photos", subject.data).fetch(torch.arange(500))
    out = subject.model.predict(*inputs, samples=3, seed=SEED)
    scores = [stats.entropy(p.draws.double().softmax(-1).mean(0).numpy(), axis=1) for p in (prediction[0], out)]
    auroc = sklearn.metrics.roc_auc_score([0] * 500 + [1] * 500, np.concatenate(scores))
    stored = found.result(3)["ood"]["photos"]
    assert stored["measures"]["entropy"]["auroc"] == pytest.approx(auroc, abs=1e-6)
    assert sum(stored["histograms"]["entropy"]["in"]) == sum(stored["histograms"]["entropy"]["out"]) == 500


def test_the_gallery_shows_the_most_uncertain_and_the_most_confidently_wrong(found, prediction):
    p, targets = prediction
    probs = p.draws.double().softmax(-1).mean(0).numpy()
    entropy, wrong = stats.entropy(probs, axis=1), np.where(probs.argmax(1) == targets, 0, probs.max(1))
    shown = found.result(3)["clean"]["gallery"]
    assert [one["index"] for one in shown["uncertain"]] == np.argsort(-entropy)[:12].tolist()
    assert [one["index"] for one in shown["wrong"]] == np.argsort(-wrong)[:12].tolist()
    first = shown["wrong"][0]
    assert first["target"] == str(targets[first["index"]])
    assert first["picture"].startswith("data:image/png;base64,")


def test_intervals_hold_the_scores_and_are_as_wide_as_theory_says(found):
    low, high = found.result(3)["clean"]["intervals"]["accuracy"]
    accuracy = found.clean(3)["accuracy"]
    assert low < accuracy < high
    # Of a share of n examples; the bootstrap has 50 resamples only, so its ends are rough.
    error = (accuracy * (1 - accuracy) / 500) ** 0.5
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.4)


def test_regression_in_the_targets_own_units(tmp_path):
    config = {"data": "diabetes", "net": {"name": "mlp", "hidden": [10]}, "epochs": 3, "method": "mean_field"}
    subject = load_subject(fit(config, tmp_path / "run", quiet=True).folder)
    (result,) = evaluate([subject], Settings(samples=(4,), resamples=20, ood="none", severities=(2,)))
    (x,), y = subject.data.test.fetch(torch.arange(len(subject.data.test)))
    p = subject.model.predict(*subject.data.preparation(x), samples=4, seed=SEED)
    task = subject.data.task
    mean, std = (moment.double().squeeze(-1).numpy() * task.target_std for moment in p.moments)
    mean = mean + task.target_mean
    target = y.double().numpy().squeeze() * task.target_std + task.target_mean
    scores = result.clean()
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((mean.mean(0) - target) ** 2)), rel=1e-5)
    density = stats.norm.pdf(target, mean, std).mean(0)
    assert scores["nll"] == pytest.approx(-np.log(density).mean(), rel=1e-5)
    rank = stats.norm.cdf(target, mean, std).mean(0)
    assert scores["coverage"] == pytest.approx(np.mean(np.abs(rank - 0.5) <= 0.45), abs=1e-9)
    curve = result.result()["clean"]["calibration"]
    assert curve["coverage"][9] == pytest.approx(np.mean(np.abs(rank - 0.5) <= 0.25), abs=1e-6)  # of level 0.5


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_yes_or_no_has_areas_under_curves(likelihood):
    data = load_data("breast_cancer")
    outputs = 2 if likelihood == "categorical" else 1
    data = replace(data, task=replace(data.task, likelihood=likelihood, outputs=outputs))
    torch.manual_seed(0)
    model = sb.rank1(torch.nn.Linear(30, outputs), members=2).eval()
    model.likelihood = get_likelihood(likelihood)
    (result,) = evaluate(
        [Subject(model, data, "a", "a")], Settings(samples=(1,), resamples=0, ood="none", corruptions="none")
    )
    (x,), y = data.test.fetch(torch.arange(len(data.test)))
    p = model.predict(*data.preparation(x), seed=SEED).class_log_probs[:, 1].double().exp().numpy()
    assert result.clean()["auc_roc"] == pytest.approx(sklearn.metrics.roc_auc_score(y, p), abs=1e-6)
    assert result.clean()["auc_pr"] == pytest.approx(sklearn.metrics.average_precision_score(y, p), abs=1e-6)
    assert result.clean()["nll"] == pytest.approx(sklearn.metrics.log_loss(y, p), abs=1e-5)
    assert result.result()["summary"] is None


# ---------------------------------------------------------------------- files


def without_time(content):
    return {key: value for key, value in content.items() if key not in ("seconds", "provenance")}


def test_an_interrupted_evaluation_goes_on_where_it_was(run, found):
    calls = []

    def killed(done, total):
        calls.append((done, total))
        if len(calls) == 4:  # clean, and two of four corruptions, are stored
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate([load_subject(run.folder)], QUICK, progress=killed)
    half = Evaluation.read(run.folder)
    assert not half.content["complete"]
    assert len(list(half.corrupted())) == 2
    calls.clear()
    evaluate([load_subject(run.folder)], QUICK, progress=lambda done, total: calls.append((done, total)))
    # Two corruptions, photographs, and the clean digits that these are compared with.
    assert calls[-1] == (4 * 500, 4 * 500)
    whole = Evaluation.read(run.folder).content
    assert whole["complete"]
    assert without_time(whole)["results"] == json.loads(json.dumps(found.content["results"]))
    evaluate([load_subject(run.folder)], QUICK, progress=lambda done, total: pytest.fail("nothing is left to do"))


def test_results_of_other_settings_or_weights_are_not_mixed_in(run, tmp_path):
    stored = load_subject(run.folder)
    evaluate([stored], QUICK)
    with pytest.raises(ValueError, match=r"evaluation.json belongs to another.*limit was None, now 9.*--fresh"):
        evaluate([stored], replace(QUICK, limit=9))
    with pytest.raises(ValueError, match="another evaluation: the weights have changed.*--fresh"):
        evaluate([replace(stored, digest="other")], QUICK)
    (more,) = evaluate([stored], replace(QUICK, ood=("noise",)))
    assert list(more.result()["ood"]) == ["photos", "noise"]
    (anew,) = evaluate([stored], replace(QUICK, limit=9), fresh=True)
    assert anew.result()["clean"]["examples"] == 9


def test_a_folder_of_images_that_has_changed_is_noticed(run, tmp_path):
    """Before, the scores of the old images were given for the new ones."""
    folder = tmp_path / "others"
    folder.mkdir()
    for number in range(4):
        Image.new("L", (8, 8), 60 * number).save(folder / f"{number}.png")
    stored = load_subject(run.folder)
    settings = replace(QUICK, corruptions="none", limit=20, ood=(str(folder),))
    (found,) = evaluate([stored], settings, fresh=True)
    assert evaluate([stored], settings)[0].content["results"] == found.content["results"]
    Image.new("L", (8, 8), 255).save(folder / "2.png")
    with pytest.raises(ValueError, match=r"another evaluation: the images of .*others have changed.*--fresh"):
        evaluate([stored], settings)
    (more,) = evaluate([stored], replace(settings, ood=("noise",)))
    assert list(more.result()["ood"]) == [str(folder), "noise"]
    with pytest.raises(ValueError, match="have changed"):
        evaluate([stored], settings)


def test_draws_alone_and_in_pairs_are_those_of_plain_loops(subject, prediction):
    p, targets = prediction
    settings = Settings(samples=(3,), corruptions=("noise",), severities=(5,), ood=("photos",), resamples=0, pairs=True)
    result = evaluate([replace(subject, folder=None)], settings)[0].result()
    pairs = result["clean"]["pairs"]
    probs, rows = p.draws.double().softmax(-1).numpy(), np.arange(500)
    alone = -np.log(probs[:, rows, targets]).mean(0)
    assert pairs["alone"]["nll"]["value"] == pytest.approx(alone.mean(), rel=1e-5)
    assert pairs["alone"]["accuracy"]["value"] == pytest.approx((probs.argmax(-1) == targets).mean(), rel=1e-5)
    gain = alone + np.log(probs.mean(0)[rows, targets])
    assert pairs["all"]["nll_gain"]["value"] == pytest.approx(gain.mean(), rel=1e-4)
    assert pairs["all"]["nll_gain"]["sem"] == pytest.approx(gain.std(ddof=1) / 500**0.5, rel=1e-4)
    for kind, same in (("within", True), ("between", False)):
        chosen = [(i, j) for i in range(9) for j in range(i) if (i // 3 == j // 3) == same]
        nll = [-np.log((probs[i] + probs[j]) / 2)[rows, targets] for i, j in chosen]
        distance = [np.abs(probs[i] - probs[j]).sum(-1) / 2 for i, j in chosen]
        apart = [(probs[i].argmax(-1) != probs[j].argmax(-1)).mean() for i, j in chosen]
        kl = [stats.entropy(probs[i], probs[j], axis=1) + stats.entropy(probs[j], probs[i], axis=1) for i, j in chosen]
        found = pairs[kind]
        assert found["nll"]["value"] == pytest.approx(np.mean(nll), rel=1e-5)
        assert found["total_variation"]["value"] == pytest.approx(np.mean(distance), rel=1e-5)
        assert found["disagreement"]["value"] == pytest.approx(np.mean(apart), rel=1e-5)
        assert found["kl"]["value"] == pytest.approx(np.mean(kl) / 2, rel=1e-4)
        assert set(result["ood"]["photos"]["pairs"][kind]) == {"disagreement", "total_variation", "kl"}
    corrupted = result["corrupted"]["noise"]["5"]
    assert corrupted["pairs"]["alone"]["nll"]["value"] > pairs["alone"]["nll"]["value"]
    assert len(corrupted["members"]) == 3


def test_one_draw_has_no_pairs(subject):
    plain = replace(subject, model=sb.deterministic(subject.model.member(0)).eval(), folder=None)
    (found,) = evaluate([plain], Settings(corruptions="none", ood="none", resamples=0, pairs=True))
    assert set(found.result()["clean"]["pairs"]) == {"alone", "all"}
    assert found.result()["clean"]["pairs"]["all"]["nll_gain"] == {"value": 0.0, "sem": 0.0}


@pytest.mark.parametrize("change", [{"each": True}, {"shifted_limit": 30}, {"temperature": 2.0}, {"pairs": True}])
def test_settings_that_evaluations_of_before_did_not_have(run, tmp_path, change):
    """An evaluation that was stored without them continues under their defaults, and under nothing else."""
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    few = Settings(corruptions="none", ood="none", resamples=0, limit=50)
    evaluate([load_subject(folder)], few, fresh=True)
    path = folder / "evaluation.json"
    content = json.loads(path.read_text())
    for name in ("each", "shifted_limit", "temperature", "pairs"):
        del content["settings"][name]
    path.write_text(json.dumps(content))
    assert evaluate([load_subject(folder)], few)[0].content["results"] == content["results"]
    with pytest.raises(ValueError, match=next(iter(change))):
        evaluate([load_subject(folder)], replace(few, **change))


def test_several_models_share_their_blocks_and_keep_their_scores(subject, found, monkeypatch):
    plain = Subject(
        sb.deterministic(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))).eval(),
        subject.data,
        "p",
        "p",
    )
    fetched, fetch = [], evaluating.Condition.fetch
    monkeypatch.setattr(
        evaluating.Condition, "fetch", lambda self, rows: fetched.append(self.name) or fetch(self, rows)
    )
    both = evaluate([replace(subject, folder=None), plain], QUICK)
    assert both[0].content["results"] == found.content["results"]
    assert fetched == ["clean", "noise", "noise", "blur", "blur", "photos"]
    assert both[1].clean(1) == both[1].clean(3)  # all draws of a point are the same


def test_a_saved_model_needs_to_be_told_its_data(subject, tmp_path, found):
    subject.model.save_pretrained(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"saved holds a saved model.*--config"):
        load_subject(tmp_path / "saved")
    config = TrainConfig(**DIGITS, method={"name": "rank1", "members": 3})
    saved = load_subject(tmp_path / "saved", config=config)
    (again,) = evaluate([saved], QUICK)
    assert again.clean(3) == pytest.approx(found.clean(3))
    assert (tmp_path / "saved" / "evaluation.json").is_file()


def test_folders_of_grids_stand_for_their_runs(tmp_path):
    for name in ("b", "a", "c/members/0"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
    (tmp_path / "c" / "config.yaml").touch()
    assert find_runs([tmp_path]) == [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    assert find_runs([tmp_path / "c", tmp_path / "a", tmp_path / "a"]) == [tmp_path / "c", tmp_path / "a"]
    with pytest.raises(FileNotFoundError, match="neither a run nor a saved model"):
        load_subject(tmp_path / "nothing")


@pytest.mark.parametrize("samples", [(), (0,), (-1, 3)])
def test_samples_are_at_least_one(samples):
    with pytest.raises(ValueError, match="samples.*1,4,25"):
        Settings(samples=samples)


def test_text_and_tables_are_evaluated_under_their_own_shifts(tmp_path):
    run = fit({"data": "iris", "net": "mlp", "epochs": 1, "method": "deterministic"}, tmp_path / "iris", quiet=True)
    (result,) = evaluate([load_subject(run.folder)], Settings(resamples=0))
    names = {name for name, _, _ in result.corrupted()}
    assert {"missing", "noise"} <= {name.split("_")[0] for name in names} | names
    assert load_data("iris").task.classes == tuple(result.content["task"]["classes"])
    assert result.result()["clean"]["gallery"]["uncertain"][0]["values"]


def test_scores_hang_on_neither_other_models_nor_how_many_examples_fit(subject, monkeypatch):
    """Models of more draws take fewer examples at once; that must not change what the others draw."""
    monkeypatch.setattr(evaluating, "NUMBERS", 3 * 3 * 10 * 200)  # 200 examples of three members, three draws
    small = replace(QUICK, corruptions=("noise",), severities=(3,), resamples=0)
    own = replace(subject, folder=None)
    many = replace(own, model=sb.rank1(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), members=7))
    many.model.likelihood = get_likelihood("categorical")
    (alone,) = evaluate([own], small)
    together = evaluate([replace(many, name="many"), own], small)[1]
    assert together.content["results"] == alone.content["results"]
    # The draws of an example are those of its own part, by hand.
    (images,), targets = subject.data.test.fetch(torch.arange(500))
    parts = [
        subject.model.predict(images[first : first + 200], samples=3, seed=mix(0, Purpose.EVALUATION, first))
        for first in (0, 200, 400)
    ]
    probs = torch.cat([p.draws.double().softmax(-1).mean(0) for p in parts]).numpy()
    assert alone.clean(3)["nll"] == pytest.approx(sklearn.metrics.log_loss(targets, probs), abs=1e-6)
