"""What a study keeps of an evaluation: against the evaluation's own file, and means made by hand."""

import json
import statistics

import pytest
import sklearn.metrics
import torch

from reproductions.evaluated import evaluated
from reproductions.stored import unpacked
from slimbayes._seeds import Purpose, mix
from slimbayes.evaluation.loading import load_subject
from slimbayes.training import fit

DIGITS = {"data": "digits", "net": {"name": "mlp", "hidden": [16]}, "epochs": 1, "batch_size": 250}
ASKED = {"samples": [3, 1], "corruptions": ["noise", "blur"], "severities": [1, 5], "validation": True, "epochs": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "rank1"
    return fit({**DIGITS, "method": {"name": "rank1", "members": 3}}, folder, quiet=True)


@pytest.fixture(scope="module")
def found(run):
    return evaluated(run.folder, ASKED)


@pytest.fixture(scope="module")
def stored(run, found):
    return json.loads((run.folder / "evaluation.json").read_text())


@pytest.mark.parametrize("samples", ["1", "3"])
def test_scores_of_clean_examples_are_those_of_the_evaluation(found, stored, samples):
    scores = stored["results"][samples]["clean"]["scores"]
    assert {name: found["by_samples"][samples][name] for name in scores} == scores


@pytest.mark.parametrize("samples", ["1", "3"])
@pytest.mark.parametrize("name", ["nll", "accuracy", "ece"])
def test_corrupted_scores_are_means_over_types_and_severities(found, stored, samples, name):
    table = stored["results"][samples]["corrupted"]
    cells = [table[kind][severity]["scores"][name] for kind in ("noise", "blur") for severity in ("1", "5")]
    assert found["by_samples"][samples][f"c{name}"] == pytest.approx(statistics.mean(cells))


def test_tables_show_the_number_of_draws_that_is_named_first(found):
    assert {name: found[name] for name in found["by_samples"]["3"]} == found["by_samples"]["3"]
    assert found["nll"] != found["by_samples"]["1"]["nll"]


def test_spreads_are_over_types_at_each_severity(found):
    for severity in ("1", "5"):
        cells = [found["corrupted"][kind][severity]["nll"] for kind in ("noise", "blur")]
        spread = found["by_severity"][severity]["nll"]
        assert spread["mean"] == pytest.approx(statistics.mean(cells))
        assert spread["median"] == pytest.approx(statistics.median(cells))
        assert spread["std"] == pytest.approx(statistics.stdev(cells))


def test_members_and_their_diversity(found, stored):
    clean = stored["results"]["3"]["clean"]
    assert found["member_nll"] == pytest.approx(statistics.mean(one["nll"] for one in clean["members"]))
    mean_error = 1 - statistics.mean(one["accuracy"] for one in clean["members"])
    assert found["normalised_disagreement"] == pytest.approx(found["disagreement"] / mean_error)
    assert found["kl"] == clean["diversity"]["kl"]


def test_validation_scores_are_of_the_validation_examples(found, run):
    (epoch,) = found["epochs"]
    # Training validates with one draw of each member and other random numbers; 297 images.
    assert found["validation_accuracy"] == pytest.approx(epoch["validation"]["accuracy"], abs=0.1)
    assert found["validation_nll"] != found["nll"]
    assert (found["validation_accuracy"] * 297) == pytest.approx(round(found["validation_accuracy"] * 297), abs=1e-3)


def test_what_cannot_be_computed_is_not_there(found):
    assert "mce" not in found  # AlexNet's errors are of ImageNet-C


def test_the_weights_are_the_last_ones_and_the_result_is_json(found):
    assert found["settings"]["which"] == "last"
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_one_member_has_no_diversity_and_nothing_unasked_is_evaluated(tmp_path):
    run = fit({**DIGITS, "method": "deterministic"}, tmp_path / "run", quiet=True)
    found = evaluated(run.folder, {"corruptions": "none"})
    assert not {"cnll", "mce", "disagreement", "member_nll", "validation_nll", "epochs"} & found.keys()
    assert found["ood"] == found["corrupted"] == found["by_severity"] == {}
    assert found["parameters"] == 64 * 16 + 16 + 16 * 10 + 10


def test_other_settings_begin_anew_and_the_same_do_nothing_twice(tmp_path):
    run = fit({**DIGITS, "method": "deterministic"}, tmp_path / "run", quiet=True)
    noise, blur = ({"corruptions": [kind], "severities": [1]} for kind in ("noise", "blur"))
    first = evaluated(run.folder, noise)
    stored = (run.folder / "evaluation.json").read_bytes()
    assert evaluated(run.folder, noise) == first
    assert (run.folder / "evaluation.json").read_bytes() == stored
    assert list(evaluated(run.folder, blur)["corrupted"]) == ["blur"]


@pytest.mark.parametrize("settings", [{"sample": 3}, {"samples": [0]}, {"corruptions": ["rain"]}])
def test_settings_that_there_are_not_are_errors(run, settings):
    with pytest.raises(ValueError, match="sample|corruptions"):
        evaluated(run.folder, settings)


@pytest.fixture(scope="module")
def compared(run):
    """What studies that compare methods ask for."""
    asked = {"draws": 6, "corruptions": ["noise"], "severities": [1, 5], "shifted_limit": 40, "ood": ["photos"]}
    return evaluated(run.folder, {**asked, "each": True})


def test_scores_of_each_example_average_to_those_of_all(compared):
    each = {name: unpacked(text) for name, text in compared["each"].items()}
    assert compared["settings"]["samples"] == [1, 2]  # three members
    assert compared["draws"] == 6
    assert {name: len(values) for name, values in each.items()} == {"nll": 500, "right": 500, "cnll": 40, "cright": 40}
    for name, score in {"nll": "nll", "right": "accuracy", "cnll": "cnll", "cright": "caccuracy"}.items():
        assert statistics.mean(each[name]) == pytest.approx(compared[score], abs=1e-4)


def test_corrupted_examples_are_told_apart_by_their_uncertainty(compared, run):
    subject = load_subject(run.folder, which="last")
    (images,), _ = subject.data.test.fetch(torch.arange(500))
    clean = subject.model.predict(images, samples=2, seed=mix(0, Purpose.EVALUATION, 0)).entropy
    stored = json.loads((run.folder / "evaluation.json").read_text())["results"]["2"]
    assert stored["clean"]["each"]["entropy"] == pytest.approx(clean.tolist(), rel=1e-3)
    areas = []
    for severity in ("1", "5"):
        shifted = stored["corrupted"]["noise"][severity]["each"]["entropy"]
        scores, truth = [*clean.tolist(), *shifted], [0] * 500 + [1] * 40
        areas.append(sklearn.metrics.roc_auc_score(truth, scores))
    assert compared["cauroc"]["entropy"] == pytest.approx(statistics.mean(areas), abs=1e-3)
    assert 0 < compared["cauroc"]["mutual_information"] < 1


def test_pairs_of_draws_are_kept_for_clean_corrupted_and_foreign_examples(compared, run):
    stored = json.loads((run.folder / "evaluation.json").read_text())["results"]["2"]
    pairs = compared["pairs"]
    assert set(pairs) == {"clean", "corrupted", "photos"}
    between = pairs["clean"]["between"]
    error = 1 - pairs["clean"]["alone"]["accuracy"]["value"]
    assert between.pop("normalised_disagreement")["value"] == pytest.approx(between["disagreement"]["value"] / error)
    assert between == stored["clean"]["pairs"]["between"]
    both = [stored["corrupted"]["noise"][severity]["pairs"]["between"]["kl"]["value"] for severity in ("1", "5")]
    assert pairs["corrupted"]["between"]["kl"]["value"] == pytest.approx(statistics.mean(both), rel=1e-5)
    assert pairs["clean"]["all"]["nll_gain"]["value"] == pytest.approx(
        pairs["clean"]["alone"]["nll"]["value"] - compared["nll"], abs=1e-5
    )
    members = [stored["corrupted"]["noise"][severity]["members"][1]["nll"] for severity in ("1", "5")]
    assert compared["cmembers"][1]["nll"] == pytest.approx(statistics.mean(members))
    gain = compared["cmember_gain"]
    every = [one["nll"] for one in compared["cmembers"]]
    assert gain["nll"]["mean"] == pytest.approx(statistics.mean(every) - compared["cnll"])
    assert gain["nll"]["best"] == pytest.approx(min(every) - compared["cnll"])
    every = [one["accuracy"] for one in compared["members"]]
    assert compared["member_gain"]["accuracy"]["best"] == pytest.approx(compared["accuracy"] - max(every))


def test_a_temperature_is_fitted_on_validation_examples_and_softens_the_mixture(run):
    asked = {"draws": 6, "corruptions": ["noise"], "severities": [3], "temperature": "fit", "each": True}
    found = evaluated(run.folder, asked)
    subject = load_subject(run.folder, which="last")
    found, temperature = found["tempered"], found["tempered"]["temperature"]

    def nll(part, power):
        (images,), targets = part.fetch(torch.arange(len(part)))
        seed = mix(0, Purpose.EVALUATION, 0)
        probs = subject.model.predict(images, samples=2, seed=seed).probs.double() ** power
        return -(probs / probs.sum(1, keepdim=True))[range(len(part)), targets].log()

    around = [nll(subject.data.validation, power / temperature).mean() for power in (1.05, 1.0, 0.95)]
    assert around[1] == min(around)
    by_hand = nll(subject.data.test, 1 / temperature)
    assert found["nll"] == pytest.approx(by_hand.mean().item(), abs=1e-5)
    assert unpacked(found["each"]["nll"]).tolist() == pytest.approx(by_hand.tolist(), abs=2e-4)
    assert statistics.mean(unpacked(found["each"]["cnll"])) == pytest.approx(found["cnll"], abs=1e-4)
    assert found["corrupted"]["noise"]["3"]["nll"] == found["cnll"]


def test_members_and_the_distance_of_their_factors(run, found):
    model = run.model("last")
    assert statistics.mean(one["nll"] for one in found["members"]) == pytest.approx(found["member_nll"])
    locations = [torch.cat([part.loc[k].flatten() for part in model.stochastic()]) for k in range(3)]
    pairs = [(locations[i] - locations[j]).square().mean().sqrt() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert found["factor_distance"] == pytest.approx(sum(pairs).item() / 3, rel=1e-5)
    scales = torch.cat([part.scale.flatten() for part in model.stochastic()])
    assert found["factor_scale"] == pytest.approx(scales.square().mean().sqrt().item(), rel=1e-5)


def test_every_member_has_a_draw(run):
    found = evaluated(run.folder, {"draws": 2, "corruptions": "none"})
    assert (found["draws"], found["settings"]["samples"]) == (3, [1])


def test_draws_must_be_shared_out_among_members(run):
    with pytest.raises(ValueError, match=r"draws.*multiple of the members"):
        evaluated(run.folder, {"draws": 7})
    with pytest.raises(ValueError, match="samples.*draws"):
        evaluated(run.folder, {"draws": 6, "samples": 1})
