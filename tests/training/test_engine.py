"""The engine against plain torch loops, and what it leaves in the folder."""

import json
import math

import numpy as np
import pytest
import torch
import yaml
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from training_runs import DIGITS, MLP, small, weights

import slimbayes as sb
from slimbayes._seeds import Purpose, mix
from slimbayes.data.registry import load_data
from slimbayes.training import Run, TrainConfig, fit
from slimbayes.training.engine import default_folder

SIZE, BATCH, STEPS = 200, 64, 4  # of `small`


def train(folder, **changes):
    return fit(small(**changes), folder, quiet=True)


def steps_of(run):
    return [line for line in run.metrics if "lr" in line]


def epochs_of(run):
    return [line for line in run.metrics if "train" in line]


def bare_model(method, seed=0, **options):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    return getattr(sb, method)(net, **options)


def bare_batches(epoch, seed=0):
    """Return an epoch's inputs and targets, step by step."""
    examples = load_data("digits").train
    order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(mix(seed, Purpose.ORDER, epoch)))
    return [(examples.inputs[0][rows], examples.targets[rows]) for rows in order.split(BATCH)]


def bare_loop(model, optimiser, epochs, beta=lambda step: 1.0, rate=lambda step: 1.0, clip=None, seed=0):
    """Train as anyone would who has never heard of the engine; return the losses."""
    torch.manual_seed(mix(seed, Purpose.NOISE, 0))
    model.train()
    losses, bases = [], [group["lr"] for group in optimiser.param_groups]
    for epoch in range(epochs):
        for x, y in bare_batches(epoch, seed):
            for group, base in zip(optimiser.param_groups, bases, strict=True):
                group["lr"] = base * rate(len(losses))
            log_probs = model(x).log_softmax(-1)
            nll = -log_probs[:, torch.arange(len(y)), y].mean()
            loss = nll + beta(len(losses)) * model.kl() / SIZE
            optimiser.zero_grad()
            loss.backward()
            if clip is not None:
                norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
                for p in model.parameters():
                    if p.grad is not None and norm > clip:
                        p.grad *= clip / norm
            optimiser.step()
            losses.append(loss.item())
    return losses


def assert_same(run, model, tolerance=1e-6):
    state = run.model("last").state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.parametrize(("method", "options"), [("deterministic", {}), ("rank1", {"members": 2}), ("mean_field", {})])
def test_equals_a_plain_loop(tmp_path, method, options):
    run = train(tmp_path, method={"name": method, **options}, annealing="none")
    model = bare_model(method, **options)
    losses = bare_loop(model, torch.optim.Adam(model.parameters(), 1e-3), epochs=3)
    np.testing.assert_allclose([line["loss"] for line in steps_of(run)], losses, rtol=1e-5)
    assert_same(run, model)


def test_annealing_rates_clipping_and_momentum_equal_a_plain_loop(tmp_path):
    run = train(
        tmp_path,
        optimiser={"name": "sgd", "lr": 0.2, "clip_norm": 0.5, "factor_lr": 0.05, "weight_decay": 0.01},
        schedule={"name": "cosine", "warmup": 0.5},
        annealing={"name": "linear", "fraction": 0.5},
        seed=3,
    )

    def beta(step):
        return min(1.0, (step + 1) / 6)

    def rate(step):
        return (step + 1) / 2 if step < 2 else 0.5 * (1 + math.cos(math.pi * (step - 2) / 10))

    model = bare_model("rank1", seed=3)
    factors = [p for name, p in model.named_parameters() if "_factor." in name]
    others = [p for name, p in model.named_parameters() if "_factor." not in name]
    groups = [{"params": others, "weight_decay": 0.01}, {"params": factors, "lr": 0.05}]
    optimiser = torch.optim.SGD(groups, 0.2, momentum=0.9, nesterov=True)
    losses = bare_loop(model, optimiser, 3, beta, rate, clip=0.5, seed=3)
    lines = steps_of(run)
    np.testing.assert_allclose([line["loss"] for line in lines], losses, rtol=1e-5)
    np.testing.assert_allclose([line["lr"] for line in lines], [0.2 * rate(step) for step in range(12)])
    np.testing.assert_allclose([line["beta"] for line in lines], [beta(step) for step in range(12)])
    assert_same(run, model)


def test_step_decay(tmp_path):
    schedule = {"name": "step", "at": [1, 2.5], "factor": 0.1}
    run = train(tmp_path, optimiser={"lr": 0.01}, schedule=schedule)
    expected = [0.01] * 4 + [0.001] * 6 + [0.0001] * 2
    np.testing.assert_allclose([line["lr"] for line in steps_of(run)], expected)


@pytest.mark.parametrize("method", ["deterministic", "batch_ensemble"])
def test_accumulation_changes_only_rounding(tmp_path, method):
    whole = train(tmp_path / "1", method=method, annealing="none", log_every=STEPS)
    parts = train(tmp_path / "4", method=method, annealing="none", log_every=STEPS, accumulate=4)
    assert_same(parts, whole.model("last"), tolerance=1e-5)
    for one, other in zip(whole.metrics, parts.metrics, strict=True):
        terms, others = (line.get("train", line) for line in (one, other))
        for name in ("nll", "kl", "loss", "accuracy", "beta", "lr", "examples"):
            assert terms[name] == pytest.approx(others[name], rel=1e-4)


def test_weight_decay_spares_factors(tmp_path):
    """Without gradients only decay is left: SGD multiplies by 1 - lr * decay."""
    optimiser = {"name": "sgd", "lr": 0.1, "momentum": 0, "clip_norm": 1e-30, "weight_decay": 0.5}
    run = train(tmp_path, optimiser=optimiser, epochs=1, annealing="none")
    before, after = bare_model("rank1").state_dict(), run.model("last").state_dict()
    for name, tensor in before.items():
        shrunk = 1.0 if "_factor." in name else (1 - 0.1 * 0.5) ** STEPS
        torch.testing.assert_close(after[name], tensor * shrunk, msg=name)


def test_steps_instead_of_epochs(tmp_path):
    short = train(tmp_path / "steps", epochs=None, steps=6, annealing="none")
    assert short.result["steps"] == 6
    assert short.result["epochs"] == 2
    assert [line["step"] for line in steps_of(short)] == [1, 2, 3, 4, 5, 6]
    whole = train(tmp_path / "epochs", epochs=2, annealing="none")
    for name in ("loss", "nll", "kl"):
        assert [line[name] for line in steps_of(short)] == [line[name] for line in steps_of(whole)[:6]]


def test_an_accelerator_of_others_in_this_process_keeps_its_precision(tmp_path):
    AcceleratorState._reset_state(reset_partial_state=True)  # of tests before this one
    GradientState._reset_state()
    others = Accelerator(mixed_precision="bf16", cpu=True)
    try:
        assert fit(small(epochs=1), tmp_path / "run", quiet=True).result is not None  # in fp32
        assert others.mixed_precision == "bf16"
        assert others.sync_gradients
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()


def test_the_best_checkpoint_has_the_least_validation_nll(tmp_path):
    # A rate that ruins after the third epoch what had been reached.
    schedule = {"name": "step", "at": [3], "factor": 300}
    run = train(tmp_path, method="deterministic", epochs=5, optimiser={"lr": 0.01}, schedule=schedule)
    nlls = [line["validation"]["nll"] for line in epochs_of(run)]
    best = 1 + int(np.argmin(nlls))
    assert best == 3
    index = run.checkpoints.index()
    assert index == (f"epoch-{5:05d}", f"epoch-{best:05d}", 5, nlls[best - 1])
    assert run.result["best"] == index.best
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == sorted(
        ["index.json", index.last, index.best]
    )
    # The stored weights give that score, computed by hand, and are those that the result speaks of.
    validation = load_data("digits").limited(None, 100).validation
    inputs, targets = validation.fetch(torch.arange(100))
    with torch.no_grad():
        log_probs = run.model()(*inputs)[0].log_softmax(-1)
    nll = -log_probs[torch.arange(100), targets].mean().item()
    assert nll == pytest.approx(nlls[best - 1], rel=1e-5) == run.result["validation"]["nll"]
    accuracy = (log_probs.argmax(-1) == targets).double().mean().item()
    assert run.result["validation"]["accuracy"] == pytest.approx(accuracy)


def test_validation_now_and_then(tmp_path):
    run = train(tmp_path, epochs=5, evaluation={"every": 2, "test": False})
    assert [line["validation"] is not None for line in epochs_of(run)] == [False, True, False, True, True]
    assert run.result["test"] is None
    scored = {line["epoch"]: line["validation"]["nll"] for line in epochs_of(run) if line["validation"]}
    best = min(scored, key=scored.get)
    assert run.checkpoints.index()[1:] == (f"epoch-{best:05d}", 5, scored[best])


def test_what_the_folder_holds(tmp_path):
    how = {"log_every": 3, "evaluation": {"samples": 1}}  # scores of epochs and of the end rest on as many draws
    run = train(tmp_path, **how)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoints",
        "config.yaml",
        "metrics.jsonl",
        "result.json",
        "run.json",
    ]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == TrainConfig(**small(**how)).as_json()
    assert Run.open(tmp_path).config == run.config
    assert {"seed", "commit", "versions", "hardware", "time", "parameters", "task", "preparation"} <= run.about.keys()
    assert run.about["seed"] == run.result["seed"] == 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["step"], "train" in line) for line in lines] == [
        (1, 3, False),
        (1, 4, True),
        (2, 6, False),
        (2, 8, True),
        (3, 9, False),
        (3, 12, False),
        (3, 12, True),
    ]
    assert [line["examples"] for line in lines if "train" not in line] == [192, 128, 64, 136]
    assert [line["train"]["examples"] for line in epochs_of(run)] == [200, 200, 200]
    for line in steps_of(run):
        beta = line["beta"]
        assert beta == pytest.approx(min(1, line["step"] / 8))
        assert line.keys() >= {"nll", "kl", "loss", "accuracy", "lr", "examples_per_second"}
    last = epochs_of(run)[-1]
    assert last["validation"] == run.result["validation"] or run.result["best"] != "epoch-00003"
    kl = bare_model("rank1").kl().item()
    assert steps_of(run)[0]["kl"] == pytest.approx(kl, rel=0.01)


def test_epoch_means_are_means_over_examples(tmp_path):
    run = train(tmp_path, method="deterministic")
    for epoch in epochs_of(run):
        steps = [line for line in steps_of(run) if line["epoch"] == epoch["epoch"]]
        for name in ("nll", "loss", "accuracy"):
            mean = np.average([line[name] for line in steps], weights=[line["examples"] for line in steps])
            assert epoch["train"][name] == pytest.approx(mean)


def test_train_limit_takes_the_first_examples(tmp_path):
    data = {**DIGITS, "train_limit": 70}
    run = train(tmp_path, data=data, method="deterministic", epochs=1, batch_size=1000)
    assert run.result["steps"] == 1
    examples = load_data("digits").train
    model = bare_model("deterministic")
    loss = nn.functional.cross_entropy(model(examples.inputs[0][:70])[0], examples.targets[:70]).item()
    assert steps_of(run)[0]["loss"] == pytest.approx(loss, rel=1e-5)


def test_bfloat16(tmp_path):
    half = train(tmp_path / "bf16", precision="bf16", method="deterministic")
    whole = train(tmp_path / "fp32", method="deterministic")  # in the same process, another precision
    ours, theirs = ([line["loss"] for line in steps_of(run)] for run in (half, whole))
    assert ours != theirs
    np.testing.assert_allclose(ours, theirs, rtol=0.02)
    assert half.model().dtype == torch.float32


@pytest.mark.parametrize("method", ["rank1", "batch_ensemble", "mean_field", "k_tied", "deterministic"])
def test_the_same_seed_gives_the_same_weights(tmp_path, method):
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        torch.rand(5)  # whatever happened before
        train(tmp_path / name, method=method, epochs=1, seed=seed)
    assert weights(tmp_path / "a", 1) == weights(tmp_path / "b", 1) != weights(tmp_path / "c", 1)


def test_a_regression_in_the_targets_own_units(tmp_path):
    run = fit({"data": "diabetes", "net": MLP, "method": "deterministic", "epochs": 3}, tmp_path, quiet=True)
    data = load_data("diabetes")
    inputs, targets = data.test.fetch(torch.arange(len(data.test)))
    model, task = run.model(), data.task
    with torch.no_grad():
        mean = model(*data.preparation(*inputs))[0].squeeze(-1) * task.target_std + task.target_mean
        std = task.target_std * model.predict(*data.preparation(*inputs), samples=0).aleatoric_std.flatten()
    y = targets.flatten() * task.target_std + task.target_mean
    rmse = (mean - y).square().mean().sqrt().item()
    nll = -torch.distributions.Normal(mean, std).log_prob(y).mean().item()
    assert run.result["test"] == pytest.approx({"nll": nll, "rmse": rmse}, rel=1e-4)


def test_lines_without_a_terminal_and_quiet(tmp_path, capsys):
    fit(small(epochs=2), tmp_path / "a")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "parameters; expected memory" in lines[0]
    assert lines[1].startswith("epoch 1/2  NLL ")
    assert all(word in lines[2] for word in ("KL", "beta", "acc", "/s", "validation: nll"))
    train(tmp_path / "b", epochs=1)
    assert capsys.readouterr() == ("", "")


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(tmp_path / "run", trackers=["tensorboard"])
    (events,) = (tmp_path / "run").rglob("events.out.tfevents.*")
    stored = EventAccumulator(str(events)).Reload()
    losses = [(one["step"], one["loss"]) for one in steps_of(run)]
    np.testing.assert_allclose([(one.step, one.value) for one in stored.Scalars("train/loss")], losses, rtol=1e-6)
    scores = [(one["step"], one["validation"]["nll"]) for one in epochs_of(run)]
    np.testing.assert_allclose([(one.step, one.value) for one in stored.Scalars("validation/nll")], scores, rtol=1e-6)


def test_a_tracker_that_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr("slimbayes.training.engine.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="trackers: wandb is not installed.*pip install wandb"):
        train(tmp_path / "run", trackers=["wandb"])
    assert not (tmp_path / "run").exists()


def test_configurations_from_files_and_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(small(epochs=1)))
    run = fit("c.yaml", quiet=True)
    assert str(run.folder) == "runs/digits-mlp-rank1-seed0"
    assert run.config == TrainConfig(**small(epochs=1))


def test_predicted_noise_has_two_outputs_for_each_target(tmp_path):
    config = {
        "data": "diabetes",
        "net": MLP,
        "method": "deterministic",
        "likelihood": {"name": "gaussian", "noise": "predicted"},
        "epochs": 2,
    }
    run = fit(config, tmp_path, quiet=True)
    data = load_data("diabetes")
    inputs, targets = data.test.fetch(torch.arange(len(data.test)))
    with torch.no_grad():
        mean, rho = run.model()(*data.preparation(*inputs))[0].unbind(-1)
    std = data.task.target_std
    normal = torch.distributions.Normal(std * mean, std * nn.functional.softplus(rho))
    expected = -normal.log_prob(std * targets.flatten()).mean().item()
    assert run.result["test"]["nll"] == pytest.approx(expected, rel=1e-5)


def test_a_run_on_frozen_weights_can_be_opened_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(sb.nets.MLP(64, MLP["hidden"], 10).state_dict(), "weights.pt")
    net, method = {**MLP, "weights": "weights.pt"}, {"name": "rank1", "freeze_base": True}
    run = fit(small(net=net, method=method, epochs=1), "run", quiet=True)
    here = run.model().state_dict()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    there = Run.open(tmp_path / "run").model().state_dict()
    assert all(torch.equal(value, there[name]) for name, value in here.items())


def test_after_each_epoch_somebody_is_told_and_may_end_the_run(tmp_path):
    seen = []

    def told(epoch, validation):
        seen.append((epoch, validation["nll"]))
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small(), tmp_path / "run", quiet=True, after_epoch=told)
    run = fit(small(), tmp_path / "run", quiet=True, resume=True, after_epoch=told)
    stored = [(line["epoch"], line["validation"]["nll"]) for line in run.metrics if "validation" in line]
    assert seen == stored
    assert [epoch for epoch, _ in seen] == [1, 2, 3]


def test_a_run_ends_after_the_epoch_in_which_its_time_is_over_and_goes_on_with_more(tmp_path):
    run = fit(small(epochs=4, max_seconds=1e-6), tmp_path, quiet=True)
    assert run.result["epochs"] == 1
    assert run.result["length"] == {"epochs": 4, "steps": None, "max_seconds": 1e-6}
    (tmp_path / "result.json").unlink()  # as if it had been killed before
    assert fit(small(epochs=4, max_seconds=1e-6), tmp_path, quiet=True, resume=True).result["epochs"] == 1
    longer = fit(small(epochs=4), tmp_path, quiet=True, resume=True)
    assert longer.result["epochs"] == 4
    whole = fit(small(epochs=4), tmp_path / "whole", quiet=True)
    assert longer.result["test"] == whole.result["test"]


def test_what_a_table_is_called_names_its_folder():
    config = TrainConfig(data={"name": "table", "path": "/some where/houses.csv.gz", "target": "y"}, net="mlp")
    assert str(default_folder(config)) == "runs/houses-mlp-rank1-seed0"
