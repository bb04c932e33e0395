"""Studies: what is run at which scale, what is stored, and that all of them run."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import slimbayes as sb
from reproductions.jobs import Job, missing_jobs, run_job, run_jobs
from reproductions.measurements import look_at, tied_parameters
from reproductions.stored import readable, result_path, stored_runs
from reproductions.study import Look, Study, read_studies, read_study
from slimbayes.data import load_data
from slimbayes.data.dataset import Task
from slimbayes.training import Run, fit
from slimbayes.training.models import build_model
from slimbayes.training.networks import build_network

ROOT = Path(__file__).parents[2] / "reproductions"
NAMES = sorted(path.stem for path in (ROOT / "studies").glob("*.yaml"))
#: Those that run in every test run; the others are slow.
ALWAYS = ("mnist_mean_field", "mnist_free")
TINY = {
    "data": {"name": "digits", "train_limit": 100},
    "net": {"name": "mlp", "hidden": [4]},
    "epochs": 1,
    "annealing": "none",
}


def study(**keys):
    scales = {
        "smoke": {"minutes": 1},
        "small": {"minutes": 9, "change": {"epochs": 2}, "seeds": 1, "methods": ["2-tied"]},
    }
    methods = {"mean_field": {}, "2-tied": {"name": "k_tied", "k": 2}}
    return Study(**{"title": "Tiny", "base": TINY, "methods": methods, "seeds": 2, "scales": scales, **keys})


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_of_every_scale_is_right(name):
    one = read_study(ROOT / "studies" / f"{name}.yaml")
    assert "smoke" in one.scales
    for scale in one.scales:
        assert one.cells(scale)
        assert one.hours(scale) > 0
        one.look_at(scale)


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_smoke_runs_are_stored_with_finite_scores(name, tmp_path):
    one = read_study(ROOT / "studies" / f"{name}.yaml")
    jobs = missing_jobs({name: one}, "smoke", tmp_path / "results")
    for job in jobs:
        assert run_job(job.prepare(tmp_path / "runs", tmp_path / "results")) is None
    runs = stored_runs(tmp_path / "results", name, one, "smoke")
    assert [run["cell"] for run in runs] == [cell.name for cell in one.cells("smoke")]
    assert missing_jobs({name: one}, "smoke", tmp_path / "results") == []
    for run in runs:
        assert run["commit"] is None or len(run["commit"]) >= 7
        for part in one.look_at("smoke").parts:
            assert all(math.isfinite(score["value"]) for score in run.get(part, {}).values())


def test_a_method_may_have_settings_of_its_own():
    settings = {"2-tied": {"optimiser.lr": 0.5, "epochs": None, "steps": 3, "data.train_limit": 50}}
    changed = {"smoke": {"minutes": 1, "change": {"data": {"name": "digits", "train_limit": 70}}}}
    found = {cell.name: cell.config for cell in study(settings=settings, scales=changed).cells("smoke")}
    assert list(found) == ["mean_field-seed0", "mean_field-seed1", "2-tied-seed0", "2-tied-seed1"]
    own, other = found["2-tied-seed1"], found["mean_field-seed1"]
    assert (own.optimiser.lr, own.steps, own.epochs, own.seed) == (0.5, 3, None, 1)
    assert (other.optimiser.lr, other.steps, other.epochs) == (1e-3, None, 1)
    assert own.data.train_limit == other.data.train_limit == 70  # what a scale changes, it changes for all
    with pytest.raises(ValueError, match=r"settings.*2-tied"):
        study(settings={"2tied": {}}).cells("smoke")


def test_a_method_may_have_seeds_of_its_own():
    one = study(
        seeds_of={"mean_field": [0, 5, 7]}, scales={"small": {"minutes": 6}, "smoke": {"minutes": 1, "seeds": 1}}
    )
    assert [cell.name for cell in one.cells("small")][:4] == [
        *(f"mean_field-seed{n}" for n in (0, 5, 7)),
        "2-tied-seed0",
    ]
    assert one.hours("small") == pytest.approx(0.5)
    assert len(one.cells("smoke")) == 2
    with pytest.raises(ValueError, match=r"seeds_of.*2-tied"):
        study(seeds_of={"2tied": 1}).cells("smoke")


def test_a_study_may_be_like_another(tmp_path):
    """It has the other's settings, whatever they are, and changes of its own."""
    first = {"title": "First", "base": {**TINY, "optimiser": {"name": "sgd", "lr": 0.5}}, "seeds": 2}
    first |= {"methods": {"mean_field": {"prior_std": 0.3}}, "settings": {"mean_field": {"epochs": 3}}}
    first |= {"scales": {"small": {"minutes": 9}, "smoke": {"minutes": 1}}}
    second = {"like": "first", "title": "Second", "base": {"optimiser.lr": 0.25, "net": "lenet"}, "seeds": [7]}
    for name, content in (("first", first), ("second", second), ("third", {"like": "second", "title": "Third"})):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(content))
    for name in ("second", "third"):
        one = read_study(tmp_path / f"{name}.yaml")
        (cell,) = one.cells("small")
        assert (one.title, cell.seed, cell.config.epochs) == (name.capitalize(), 7, 3)
        assert (cell.config.net.name, cell.config.optimiser.name, cell.config.optimiser.lr) == ("lenet", "sgd", 0.25)
        assert cell.config.method.options == {"prior_std": 0.3}


def test_methods_may_take_other_times(tmp_path):
    one = study(seeds=1, scales={"smoke": {"minutes": 3, "minutes_of": {"2-tied": 12}}})
    assert one.hours("smoke") == pytest.approx(0.25)
    jobs = missing_jobs({"one": one}, "smoke", tmp_path)
    assert [(job.cell.method, job.minutes) for job in jobs] == [("2-tied", 12), ("mean_field", 3)]


def test_an_ensemble_is_made_of_a_methods_seeds(tmp_path):
    methods = {"plain": {"name": "deterministic"}}
    look = {"parts": [], "evaluate": {"corruptions": "none"}}
    one = study(methods=methods, seeds=2, ensembles={"both": "plain"}, look=look, scales={"smoke": {"minutes": 1}})
    jobs = missing_jobs({"one": one}, "smoke", tmp_path / "results")
    assert [job.cell.name for job in jobs] == ["plain-seed0", "plain-seed1", "both-seed0"]
    runs, results = tmp_path / "runs", tmp_path / "results"
    assert "plain-seed0, plain-seed1" in next(iter(run_jobs(jobs[2:], runs, results, quiet=True).values()))
    assert run_jobs(jobs, runs, results, quiet=True) == {}
    stored = stored_runs(results, "one", one, "smoke")[2]
    assert (stored["method"], stored["config"]["method"]["name"]) == ("both", "deep_ensemble")
    (images,), targets = load_data("digits").test.fetch(torch.arange(500))
    nets = [Run.open(runs / "one" / "smoke" / f"plain-seed{seed}").model().member(0) for seed in (0, 1)]
    probs = sum(net(images).softmax(1) for net in nets) / 2
    assert stored["evaluation"]["nll"] == pytest.approx(-probs[range(500), targets].log().mean().item(), rel=1e-5)


def test_first_seeds_of_all_methods_come_before_second_ones(tmp_path):
    names = [job.cell.name for job in missing_jobs({"one": study()}, "smoke", tmp_path)]
    assert names == ["mean_field-seed0", "2-tied-seed0", "mean_field-seed1", "2-tied-seed1"]


MLP = [956_820, 481_614, 484_008, 486_402]
IMAGES = Task("categorical", 10, (3, 32, 32))


@pytest.mark.parametrize(
    ("name", "task", "counts"),
    [
        ("mnist_annealed", Task("categorical", 10, (1, 28, 28)), MLP),
        ("mnist_free", Task("categorical", 10, (1, 28, 28)), MLP),
        ("cifar100_lenet", replace(IMAGES, outputs=100), [4_405_320, 2_262_188, 2_267_408, 2_272_628]),
        ("imdb_lstm", Task("bernoulli", 1, (80,), vocabulary=20_000), [2_822_785, 2_692_993, 2_694_273, 2_695_553]),
        ("cifar10_resnet4", IMAGES, [9_814_026]),
        ("cifar10_resnet4_he", IMAGES, [9_814_026]),
    ],
)
def test_paper_scale_has_the_paper_s_parameters(name, task, counts):
    """The counts of Figure 6, in thousands (of the LSTM, within one), and of Table 5: the right layers are tied."""
    configs = [cell.config for cell in read_study(ROOT / "studies" / f"{name}.yaml").cells("paper") if cell.seed == 0]
    models = [build_model(one.method, partial(build_network, one.net, task)) for one in configs]
    assert [sb.count_parameters(model, running_statistics=True) for model in models] == counts


@pytest.mark.parametrize(("name", "examples"), [("cifar100_lenet", 40_000), ("imdb_lstm", 20_000)])
def test_annealing_is_cut_down_with_the_rest(name, examples):
    """At its end the KL has the weight that it has at the paper's, and it is full, if ever, at the same share."""
    ends, full = [], []
    for scale in ("paper", "small"):
        config = read_study(ROOT / "studies" / f"{name}.yaml").cells(scale)[0].config
        steps = config.epochs * math.ceil(examples / config.batch_size)
        annealing = sb.stepwise_annealing(config.annealing.slope, config.annealing.every)
        ends.append(annealing(steps))
        full.append(min(1.0, 1 / config.annealing.slope / steps))
    assert ends[1] == pytest.approx(ends[0], abs=0.01)
    assert full[1] == pytest.approx(full[0], abs=0.01)


def test_tied_parameters_of_chosen_layers():
    model = sb.mean_field(sb.nets.LeNet())
    assert [tied_parameters(model, k, ["7", "9"]) for k in (1, 2, 3)] == [2_262_188, 2_267_408, 2_272_628]


def test_scales_change_seeds_methods_and_keys():
    assert [cell.name for cell in study().cells("small")] == ["2-tied-seed0"]
    assert study().cells("small")[0].config.epochs == 2
    assert len(study().cells("smoke")) == 4
    assert study().hours("smoke") == pytest.approx(4 / 60)
    with pytest.raises(ValueError, match="scale"):
        study().cells("paper")
    assert [study().nearest(scale) for scale in ("paper", "small", "smoke")] == ["small", "small", "smoke"]


def test_longest_first_and_nothing_twice(tmp_path):
    studies = {"short": study(seeds=1), "long": study(seeds=1, scales={"smoke": {"minutes": 5}})}
    jobs = missing_jobs(studies, "smoke", tmp_path)
    assert [job.study for job in jobs] == ["long", "long", "short", "short"]
    assert run_job(jobs[-1].prepare(tmp_path / "runs", tmp_path)) is None
    assert missing_jobs(studies, "smoke", tmp_path) == jobs[:-1]


def test_stored_runs_of_another_configuration_are_not_taken_for_it(tmp_path):
    one = {"tiny": study(seeds=1)}
    job = missing_jobs(one, "smoke", tmp_path)[0]
    assert run_job(job.prepare(tmp_path / "runs", tmp_path)) is None
    other = {"tiny": study(seeds=1, base={**TINY, "batch_size": 7})}
    with pytest.raises(ValueError, match="batch_size"):
        missing_jobs(other, "smoke", tmp_path)
    with pytest.raises(ValueError, match="batch_size"):  # nor shown
        stored_runs(tmp_path, "tiny", other["tiny"], "smoke")


def test_stored_runs_of_which_something_else_was_measured_are_not_taken_for_it(tmp_path):
    job = Job.of("tiny", study(seeds=1), "smoke")[0]
    assert run_job(job.prepare(tmp_path / "runs", tmp_path)) is None
    other = {"tiny": study(seeds=1, look={"samples": 3})}
    with pytest.raises(ValueError, match="differs in look"):
        missing_jobs(other, "smoke", tmp_path)
    result_path(tmp_path, "tiny", "smoke", job.cell.name).unlink()
    trained = (tmp_path / "runs/tiny/smoke/mean_field-seed0/metrics.jsonl").stat().st_mtime_ns
    assert run_job(missing_jobs(other, "smoke", tmp_path)[0].prepare(tmp_path / "runs", tmp_path)) is None
    (run,) = stored_runs(tmp_path, "tiny", other["tiny"], "smoke")
    assert run["look"]["samples"] == 3
    assert (
        tmp_path / "runs/tiny/smoke/mean_field-seed0/metrics.jsonl"
    ).stat().st_mtime_ns == trained  # looked at again


@pytest.mark.parametrize(("train_on", "rows"), [("split", 2 * 100), ("tile", 3 * 2 * 100)])
def test_rows_are_those_that_the_network_was_given(train_on, rows, tmp_path, monkeypatch):
    config = {**TINY, "epochs": 2, "batch_size": 32, "evaluation": {"test": False, "every": 9}}
    config["data"] = {"name": "digits", "train_limit": 100, "validation": 0}
    given, forward = [], sb.BayesianModel.forward

    def note(net, inputs):
        if net.training:  # the first pass also tries the network, in evaluation mode, on an example or two
            given.append(len(inputs[0]))

    def counted(self, *args, **kwargs):
        hook = self.net.register_forward_pre_hook(note)
        try:
            return forward(self, *args, **kwargs)
        finally:
            hook.remove()

    monkeypatch.setattr(sb.BayesianModel, "forward", counted)
    fit({**config, "method": {"name": "rank1", "members": 3, "train_on": train_on}}, tmp_path, quiet=True)
    monkeypatch.undo()
    assert look_at(tmp_path, Look(samples=1, parts=[]))["rows"] == rows
    assert rows <= sum(given) <= rows + 2 * 4 * 2  # a batch that cannot be shared out evenly has rows that fill up


@pytest.mark.parametrize("changes", [{"batch_size": 7}, {"epochs": 2}])
def test_checkpoints_of_another_configuration_are_not_taken_for_it(changes, tmp_path):
    job = Job.of("tiny", study(seeds=1), "smoke")[0]
    folder = job.prepare(tmp_path / "runs", tmp_path)
    assert run_job(folder) is None
    result_path(tmp_path, "tiny", "smoke", job.cell.name).unlink()  # what the error about a stored run advises
    other = Job.of("tiny", study(seeds=1, base={**TINY, **changes}), "smoke")[0]
    with pytest.raises(ValueError, match=f"{next(iter(changes))}.*Remove that folder"):
        other.prepare(tmp_path / "runs", tmp_path)
    assert Run(folder).config == job.cell.config


def test_processes_store_and_failures_are_told(tmp_path):
    good, bad = study(seeds=1), study(seeds=1, base={**TINY, "data": {"name": "arrays", "path": "no.npz"}})
    jobs = [Job.of("good", good, "smoke")[0], Job.of("bad", bad, "smoke")[0]]
    seen = []
    failed = run_jobs(jobs, tmp_path / "runs", tmp_path, 2, lambda *counts: seen.append(counts), quiet=True)
    assert [Path(folder).parts[-3] for folder in failed] == ["bad"]
    assert "no.npz" in next(iter(failed.values()))
    assert seen == [(1, 2), (2, 2)]
    stored = json.loads(result_path(tmp_path, "good", "smoke", "mean_field-seed0").read_text())
    assert (stored["study"], stored["method"], stored["epochs"]) == ("good", "mean_field", 1)


def test_a_job_goes_on_from_what_a_kill_left(tmp_path):
    job = Job.of("tiny", study(seeds=1), "small")[0]
    folder = job.prepare(tmp_path / "runs", tmp_path)
    shorter = job.cell.config.model_copy(update={"epochs": 1})
    fit(shorter, folder, resume=True, quiet=True)
    (folder / "result.json").unlink()
    Run(folder).store_config(job.cell.config)  # as a run has it that was to be longer
    assert run_job(job.prepare(tmp_path / "runs", tmp_path)) is None
    whole = fit(job.cell.config, tmp_path / "whole", quiet=True)
    stored = stored_runs(tmp_path, "tiny", study(seeds=1), "small")[0]
    assert stored["test"] == look_at(whole.folder, Look())["test"]


def test_heat_maps_keep_every_so_many_rows(tmp_path):
    config = {**TINY, "net": {"name": "mlp", "hidden": [100]}, "method": "mean_field"}
    run = fit(config, tmp_path, quiet=True)
    stored = look_at(tmp_path, Look(samples=1, heat_maps=["1"], spectra=5, low_rank=[1]))
    maps = sb.analysis.heat_maps(run.model("last"), "1")
    kept = stored["heat_maps"]["1"]
    assert kept["shape"] == [64, 100]
    assert len(kept["sigma"]) == 64
    assert len(kept["sigma"][0]) == 64
    assert kept["sigma"][-1][-1] == pytest.approx(maps["sigma"][-1, -1], rel=1e-3)
    assert kept["2"][0][0] == pytest.approx(maps[2][0, 0], rel=1e-3)
    shares = sb.analysis.explained_variance(run.model("last"))["1"]
    assert stored["spectra"]["1"]["scale"] == pytest.approx(shares.scale[:5], rel=1e-3)
    approximated = sb.analysis.low_rank(run.model("last"), 1)
    assert stored["low_rank"]["1"]["test"]["kl_per_example"]["value"] == pytest.approx(approximated.kl().item() / 100)


def test_readable_json_is_json():
    content = {"a": {"b": [[1, 2.5], []], "c": {}}, "d": None, "e": "ü"}
    assert json.loads(readable(content)) == content


def test_faults_name_the_file(tmp_path):
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "wrong.yaml").write_text("title: T\nbase: {data: digits}\nscale: {}\n")
    with pytest.raises(ValueError, match=r"wrong\.yaml.*\n?.*scale"):
        read_studies(tmp_path)
