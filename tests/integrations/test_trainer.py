"""Hugging Face's Trainer with models that have draws: what it minimises, what it says, what it writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from torch import nn

import slimbayes as sb
from hugging_face import bert, gpt2, t5, without_dropout
from slimbayes.integrations.transformers import Trainer

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::accelerate", "ignore:::torch.utils.data")


def examples(count: int = 12, length: int = 6, classes: int = 3) -> list[dict]:
    source = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, 50, (count, length), generator=source)
    return [
        {"input_ids": row.tolist(), "attention_mask": [1] * length, "labels": i % classes}
        for i, row in enumerate(tokens)
    ]


def texts(count: int = 8, length: int = 6) -> list[dict]:
    """Of different numbers of targets."""
    rows = []
    for i, example in enumerate(examples(count, length)):
        labels = [*example["input_ids"][: length - i % 3], *[-100] * (i % 3)]
        rows.append({"input_ids": example["input_ids"], "attention_mask": [1] * length, "labels": labels})
    return rows


def arguments(folder: Path, **options) -> transformers.TrainingArguments:
    given = {
        "max_steps": 3, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "report_to": [], "use_cpu": True,
        "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1,
    }  # fmt: skip
    return transformers.TrainingArguments(str(folder), **{**given, **options})


def rank1(net: nn.Module, **options) -> sb.BayesianModel:
    return sb.rank1(net, **{"members": 2, "init": "ones", "dropout_rate": 0.1, **options})


def state(model: sb.BayesianModel) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(first: dict, second: dict, **tolerance) -> None:
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], **(tolerance or {"rtol": 0, "atol": 0}))


# ---------------------------------------------------------------------- what is minimised


def test_the_loss_is_the_elbo_of_the_training_set(tmp_path: Path) -> None:
    data = examples()
    model = rank1(bert().double())
    trainer = Trainer(model, arguments(tmp_path), train_dataset=data, samples=0)
    trainer.train()
    again = rank1(bert().double())
    assert trainer.elbo.num_data == 12
    assert [log["beta"] for log in trainer.state.log_history[:3]] == [0.5, 1.0, 1.0]  # over two thirds of three steps
    again.load_state_dict(model.state_dict())
    batch = transformers.default_data_collator(data[:4])
    targets = batch.pop("labels")
    elbo = sb.ELBO(again.eval(), num_data=12, member_kl="mean")
    trainer.model.eval()
    trainer.state.global_step, trainer.current_gradient_accumulation_steps = 2, 1
    found = trainer.compute_loss(model, {**batch, "labels": targets}, num_items_in_batch=torch.tensor([4, 4]))
    torch.testing.assert_close(found, elbo(again(**batch, samples=0), targets))


@pytest.mark.parametrize(("build", "data"), [(bert, examples()), (gpt2, texts()), (t5, texts())])
def test_accumulated_batches_are_one_batch(tmp_path: Path, build, data) -> None:
    """Also where they have different numbers of targets."""
    torch.manual_seed(1)
    net, states = without_dropout(build().double()), []
    for own, parts in ((4, 1), (2, 2), (1, 4)):
        torch.manual_seed(2)
        model = rank1(net)
        options = {"per_device_train_batch_size": own, "gradient_accumulation_steps": parts, "optim": "sgd"}
        Trainer(model, arguments(tmp_path, max_grad_norm=0, **options), train_dataset=data, samples=0).train()
        states.append(state(model))
    assert not torch.equal(
        *[next(v for k, v in s.items() if "factor.loc" in k) for s in (states[0], rank1(net).state_dict())]
    )
    assert_same(states[0], states[1], rtol=1e-9, atol=1e-11)
    assert_same(states[0], states[2], rtol=1e-9, atol=1e-11)


def test_the_loss_of_tokens_is_the_elbo_for_each_of_them(tmp_path: Path) -> None:
    data = texts()
    model = rank1(gpt2().double(), freeze_base=True)
    trainer = Trainer(model, arguments(tmp_path), train_dataset=data, samples=0)
    model.eval()
    trainer.current_gradient_accumulation_steps = 1
    batch = transformers.default_data_collator(data[:4])
    _, counts = trainer.get_batch_samples(iter([batch]), 1, torch.device("cpu"))
    assert counts.tolist() == [4, 4 * 5 - 0 - 1 - 2 - 0]
    trainer.state.max_steps, trainer.state.global_step = 3, 2
    found = trainer.compute_loss(model, dict(batch), num_items_in_batch=counts)
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], samples=0).logits
    log_probs = logits[:, :, :-1].log_softmax(-1)
    valid = batch["labels"][:, 1:] != -100
    picked = log_probs.gather(-1, batch["labels"][:, 1:].clamp_min(0).expand(2, 4, 5).unsqueeze(-1)).squeeze(-1)
    expected = -picked[:, valid].sum() / 2 / valid.sum() + model.kl("mean") / 8 * 4 / valid.sum()
    torch.testing.assert_close(found, expected)


def test_members_of_an_ensemble_each_get_the_whole_gradient(tmp_path: Path) -> None:
    data, (first, second) = examples(), [without_dropout(bert().double()) for _ in range(2)]
    options = {"optim": "sgd", "max_grad_norm": 0}
    both, alone = sb.deep_ensemble([first, second]), sb.deterministic(second)
    for model in (both, alone):
        Trainer(model, arguments(tmp_path, **options), train_dataset=data).train()
    transformers.Trainer(second, arguments(tmp_path, **options), train_dataset=data).train()
    for name, tensor in second.state_dict().items():
        torch.testing.assert_close(alone.net.state_dict()[name], tensor, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(both.member(1).state_dict()[name], tensor, rtol=1e-6, atol=1e-8)


def test_two_processes_do_what_one_does_and_count_the_kl_once(tmp_path: Path) -> None:
    worker = Path(__file__).with_name("trainer_worker.py")
    helpers = os.pathsep.join(filter(None, (str(worker.parent.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": helpers}
    found = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--rdzv-backend=c10d",
         "--rdzv-endpoint=localhost:0", str(worker), str(tmp_path)],
        capture_output=True, text=True, timeout=300, env=environment,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    alone = subprocess.run(
        [sys.executable, str(worker), str(tmp_path)], capture_output=True, text=True, timeout=300, env=environment
    )
    assert alone.returncode == 0, alone.stderr[-3000:]
    two, one = (torch.load(tmp_path / f"{n}.pt") for n in (2, 1))
    for name, result in one.items():
        if isinstance(result, dict):
            assert_same(two[name], result, rtol=1e-8, atol=1e-10)
        else:  # Hugging Face adds up losses in single precision
            torch.testing.assert_close(two[name], result, rtol=1e-6, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


def test_the_best_checkpoint_is_loaded_at_the_end(tmp_path: Path) -> None:
    data = examples()
    model = rank1(bert())
    args = arguments(
        tmp_path, max_steps=4, learning_rate=0.3, save_strategy="steps", save_steps=1, eval_strategy="steps",
        eval_steps=1, load_best_model_at_end=True, metric_for_best_model="eval_nll", greater_is_better=False,
    )  # fmt: skip
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=data, samples=0, eval_samples=0)
    trainer.train()
    scores = [log["eval_nll"] for log in trainer.state.log_history if "eval_nll" in log]
    assert min(scores) < scores[-1]  # the rate is large: the last weights are not the best
    assert trainer.evaluate()["eval_nll"] == pytest.approx(min(scores), rel=1e-5)


def test_what_has_a_kl_has_no_weight_decay_and_factors_have_a_rate(tmp_path: Path) -> None:
    model = rank1(bert())
    trainer = Trainer(
        model, arguments(tmp_path, weight_decay=0.1, learning_rate=1e-3), train_dataset=examples(), factor_lr=0.05
    )
    groups = trainer.create_optimizer().param_groups
    rates = {id(p): (group["weight_decay"], group["lr"]) for group in groups for p in group["params"]}
    kinds: dict[str, set] = {}
    for name, p in model.named_parameters():
        kind = "factor" if "_factor." in name else "weight" if p.dim() > 1 and "bias" not in name else "other"
        kinds.setdefault(kind, set()).add(rates[id(p)])
    assert kinds == {"factor": {(0.0, 0.05)}, "weight": {(0.1, 1e-3)}, "other": {(0.0, 1e-3)}}
    gaussian = Trainer(sb.mean_field(bert()), arguments(tmp_path, weight_decay=0.1), train_dataset=examples())
    decayed = gaussian.get_decay_parameter_names(gaussian.model)
    assert decayed == []  # the means have a KL, biases and norms none


def test_a_trained_prior_works_without_weight_decay(tmp_path: Path) -> None:
    model = rank1(bert(), prior_scale="trainable")
    args = arguments(tmp_path, weight_decay=0.1)
    trainer = Trainer(model, args, train_dataset=examples())
    assert args.ddp_find_unused_parameters is False  # the KL alone depends on it
    assert not any("prior" in name for name in trainer.get_decay_parameter_names(model))
    before = [p.clone() for name, p in model.named_parameters() if name.endswith("prior.rho")]
    trainer.train()
    after = [p for name, p in model.named_parameters() if name.endswith("prior.rho")]
    assert before
    assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


# ---------------------------------------------------------------------- what it says


def test_one_row_for_each_example(tmp_path: Path) -> None:
    data = examples(10)
    model = rank1(bert(), init="normal", init_spread=0.3)
    trainer = Trainer(model, arguments(tmp_path, per_device_eval_batch_size=4), train_dataset=data, eval_samples=0)
    found = trainer.predict(data)
    batch = transformers.default_data_collator(data)
    targets = batch.pop("labels")
    p = model.predict(**batch, samples=0)
    assert found.predictions.shape == (10, 3)
    np.testing.assert_allclose(found.predictions, p.log_probs, rtol=1e-5, atol=1e-6)
    assert found.label_ids.tolist() == targets.tolist()
    expected = {
        "nll": sb.metrics.negative_log_likelihood(p.log_probs, targets),
        "accuracy": sb.metrics.accuracy(p.probs, targets),
        "ece": sb.metrics.expected_calibration_error(p.probs, targets),
        "entropy": p.entropy.mean(),
        "mutual_information": p.mutual_information.mean(),
        "loss": -p.log_likelihood(targets).mean(),
    }
    for name, value in expected.items():
        assert found.metrics[f"test_{name}"] == pytest.approx(value.item(), rel=1e-5, abs=1e-7), name
    assert p.mutual_information.mean() > 0
    assert trainer.evaluate(data)["eval_nll"] == pytest.approx(expected["nll"].item(), rel=1e-5)
    without = [{key: value for key, value in example.items() if key != "labels"} for example in data]
    unlabelled = trainer.predict(without)
    np.testing.assert_allclose(unlabelled.predictions, found.predictions, rtol=1e-5, atol=1e-6)
    assert unlabelled.label_ids is None


def test_tokens_are_scored_one_by_one(tmp_path: Path) -> None:
    data = texts(7)
    model = rank1(gpt2(), init="normal", init_spread=0.3)
    trainer = Trainer(model, arguments(tmp_path, per_device_eval_batch_size=3), eval_samples=0)
    found = trainer.predict(data)
    batch = transformers.default_data_collator(data)
    p = model.predict(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], samples=0)
    assert found.predictions.shape == (7, 6, 50)  # as long as the texts, as Hugging Face's own are
    np.testing.assert_allclose(found.predictions, p.log_probs, rtol=1e-4, atol=1e-5)
    valid, targets = batch["labels"][:, 1:] != -100, batch["labels"][:, 1:]
    log_probs = p.log_probs[:, :-1][valid]
    nll = -log_probs.gather(1, targets[valid].unsqueeze(1)).mean().item()
    assert found.metrics["test_nll"] == pytest.approx(nll, rel=1e-5)
    assert found.metrics["test_entropy"] == pytest.approx(p.entropy[:, :-1][valid].mean().item(), rel=1e-5)
    right = (log_probs.argmax(1) == targets[valid]).double().mean().item()
    assert found.metrics["test_accuracy"] == pytest.approx(right)


def test_numbers_are_gaussian(tmp_path: Path) -> None:
    config = bert().config
    config.num_labels = 1
    data = [{**example, "labels": float(i)} for i, example in enumerate(examples(6))]
    model = rank1(transformers.BertForSequenceClassification(config), init="normal")
    trainer = Trainer(model, arguments(tmp_path), train_dataset=data, eval_samples=0)
    assert isinstance(model.likelihood, sb.Gaussian)
    trainer.train()
    found = trainer.predict(data)
    batch = transformers.default_data_collator(data)
    targets = batch.pop("labels")
    p = model.predict(**batch, samples=0)
    np.testing.assert_allclose(found.predictions, p.mean, rtol=1e-4, atol=1e-5)
    assert found.metrics["test_nll"] == pytest.approx(-p.log_likelihood(targets).mean().item(), rel=1e-5)
    assert found.metrics["test_rmse"] == pytest.approx((p.mean[:, 0] - targets).square().mean().sqrt().item(), rel=1e-5)
    assert found.metrics["test_std"] == pytest.approx(p.std.mean().item(), rel=1e-5)


def test_several_labels_are_yes_or_no(tmp_path: Path) -> None:
    config = bert().config
    config.problem_type = "multi_label_classification"
    data = [{**example, "labels": [float(i % 2), 1.0, 0.0]} for i, example in enumerate(examples(6))]
    model = rank1(transformers.BertForSequenceClassification(config), init="normal")
    trainer = Trainer(model, arguments(tmp_path), train_dataset=data, eval_samples=0)
    trainer.train()
    found = trainer.predict(data)
    batch = transformers.default_data_collator(data)
    targets = batch.pop("labels")
    probs = model.predict(**batch, samples=0).probs
    np.testing.assert_allclose(np.exp(found.predictions), probs, rtol=1e-4, atol=1e-5)
    nll = nn.functional.binary_cross_entropy(probs, targets).item()
    assert found.metrics["test_nll"] == pytest.approx(nll, rel=1e-4)


def test_metrics_of_ones_own_get_log_probabilities(tmp_path: Path) -> None:
    seen = []

    def metrics(p):
        seen.append(p)
        return {"accuracy": 0.25, "shape": p.predictions.shape[0]}

    data = examples(6)
    trainer = Trainer(rank1(bert()), arguments(tmp_path), eval_dataset=data, compute_metrics=metrics)
    found = trainer.evaluate()
    assert found["eval_accuracy"] == 0.25
    assert found["eval_shape"] == 6
    assert found["eval_nll"] > 0
    (p,) = seen
    np.testing.assert_allclose(np.exp(p.predictions).sum(1), 1, rtol=1e-5)
    changed = Trainer(
        rank1(bert()), arguments(tmp_path), eval_dataset=data, compute_metrics=metrics,
        preprocess_logits_for_metrics=lambda log_probs, labels: log_probs.argmax(-1),
    )  # fmt: skip
    assert changed.predict(data).predictions.shape == (6,)


def test_evaluation_does_not_disturb_training(tmp_path: Path) -> None:
    states = []
    net = bert()
    for options in ({}, {"eval_strategy": "steps", "eval_steps": 1}):
        torch.manual_seed(0)
        model = rank1(net)
        trainer = Trainer(model, arguments(tmp_path, **options), train_dataset=examples(), eval_dataset=examples(5))
        trainer.train()
        states.append(state(model))
    assert_same(*states)
    assert sum("eval_ece" in log for log in trainer.state.log_history) == 3


# ---------------------------------------------------------------------- what it writes


def test_a_checkpoint_holds_factors_alone_and_is_read_by_load(tmp_path: Path) -> None:
    data, net = examples(), bert()
    model = rank1(net, freeze_base=True)
    Trainer(model, arguments(tmp_path, save_strategy="steps", save_steps=3), train_dataset=data).train()
    folder = tmp_path / "checkpoint-3"
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert all("_factor." in key for key in file.keys())  # noqa: SIM118
    batch = transformers.default_data_collator(data)
    del batch["labels"]
    again = sb.load(folder, net)
    assert torch.equal(again.predict(**batch, seed=1).probs, model.predict(**batch, seed=1).probs)
    assert json.loads((folder / "network" / "config.json").read_text())["model_type"] == "bert"
    card = (folder / "README.md").read_text()
    assert "library_name: slimbayes" in card
    assert 'sb.load(".", net)' in card


@pytest.mark.parametrize("freeze", [False, True])
def test_a_resumed_run_is_the_run(tmp_path: Path, freeze: bool) -> None:
    net, data = bert(), examples()
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    torch.manual_seed(0)
    whole = rank1(net, freeze_base=freeze)
    Trainer(whole, arguments(tmp_path, **options), train_dataset=data).train()
    torch.manual_seed(5)
    resumed = rank1(net, freeze_base=freeze)
    trainer = Trainer(resumed, arguments(tmp_path, **options), train_dataset=data)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert_same(state(whole), state(resumed))
    assert [log["beta"] for log in trainer.state.log_history if "beta" in log] == [0.5, 1.0, 1.0, 1.0]


def test_the_best_model_comes_back(tmp_path: Path) -> None:
    data = examples()
    options = {"save_strategy": "steps", "eval_strategy": "steps", "save_steps": 1, "eval_steps": 1, "max_steps": 3}
    model = rank1(bert())
    args = arguments(tmp_path, load_best_model_at_end=True, metric_for_best_model="ece", learning_rate=0.3, **options)
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=data)
    trainer.train()
    best = sb.load(trainer.state.best_model_checkpoint, bert())
    assert_same(state(best), state(model))


def test_a_folder_to_publish(tmp_path: Path) -> None:
    data = examples()
    trainer = Trainer(rank1(bert()), arguments(tmp_path), train_dataset=data, eval_dataset=data)
    trainer.train()
    trainer.evaluate()
    trainer.save_model()
    trainer.create_model_card(model_name="mine", license="mit")
    assert {"README.md", "config.json", "model.safetensors", "network"} <= {path.name for path in tmp_path.iterdir()}
    card = (tmp_path / "README.md").read_text()
    for part in ("license: mit", "- bayesian", "BertForSequenceClassification with rank1", "# mine", "Ece: "):
        assert part in card, part
    assert card.count("\n---\n") == 1


# ---------------------------------------------------------------------- what it refuses


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    data, model = examples(), rank1(bert())
    for wrong, words in (
        ({"args": arguments(tmp_path, label_smoothing_factor=0.1)}, "label_smoothing_factor"),
        ({"compute_loss_func": lambda outputs, labels, **_: outputs.logits.sum()}, "knows no KL"),
        ({"samples": -1}, "`samples`"),
        ({"num_data": 0}, "`num_data`"),
    ):
        with pytest.raises(ValueError, match=words):
            Trainer(model, **{"args": arguments(tmp_path), "train_dataset": data, **wrong})
    with pytest.raises(TypeError, match="no `config`"):
        Trainer(sb.rank1(nn.Linear(2, 2)), arguments(tmp_path))
    with pytest.raises(TypeError, match="BayesianModel"):
        Trainer(bert(), arguments(tmp_path))

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(data)

    with pytest.raises(ValueError, match="num_data"):
        Trainer(model, arguments(tmp_path), train_dataset=Stream()).train()
    Trainer(model, arguments(tmp_path), train_dataset=Stream(), num_data=12).train()
    unlabelled = [{"input_ids": example["input_ids"]} for example in data]
    with pytest.raises(ValueError, match="label_names"):
        Trainer(model, arguments(tmp_path), train_dataset=unlabelled).train()


def test_the_plain_trainer_does_not_train_without_the_kl(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch received was empty"):
        transformers.Trainer(rank1(bert()), arguments(tmp_path), train_dataset=examples()).train()


@pytest.mark.parametrize("options", [{"bf16": True}, {"torch_compile": True, "torch_compile_backend": "eager"}])
def test_precision_and_compilation(tmp_path: Path, options: dict) -> None:
    data, losses = examples(), []
    net = without_dropout(bert())
    for given in ({}, options):
        torch.manual_seed(0)
        model = rank1(net)
        trainer = Trainer(model, arguments(tmp_path, **given), train_dataset=data, samples=0, eval_samples=0)
        trainer.train()
        losses.append([log["loss"] for log in trainer.state.log_history if "loss" in log])
        assert trainer.predict(data).predictions.dtype == np.float32
        member = model.member(0)
        assert type(member) is transformers.BertForSequenceClassification
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_it_needs_its_extra() -> None:
    code = "import sys; sys.modules['transformers'] = None; import slimbayes.integrations.transformers"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'pip install "slimbayes[transformers]"' in found.stderr


def test_the_core_does_not_import_transformers() -> None:
    code = "import sys, slimbayes as sb; sb.rank1; print('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_model_init(tmp_path: Path) -> None:
    trainer = Trainer(args=arguments(tmp_path), model_init=lambda: rank1(bert()), train_dataset=examples())
    assert trainer.train().global_step == 3
    assert trainer.model.likelihood is not None
