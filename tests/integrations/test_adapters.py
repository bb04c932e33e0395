"""PEFT's LoRA matrices as random layers; what is trained beside them; priors that do not drown small data."""

from pathlib import Path

import peft
import pytest
import torch
import transformers
from safetensors import safe_open
from test_trainer import arguments, examples
from torch import nn

import slimbayes as sb
from hugging_face import bert, gpt2, inputs
from slimbayes.integrations.transformers import Trainer, adapters, generate

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::accelerate", "ignore:::torch.utils.data")


def lora(net: nn.Module, **options) -> nn.Module:
    given = {"r": 3, "target_modules": ["query", "value"], "task_type": "SEQ_CLS", "lora_alpha": 6, **options}
    wrapped = peft.get_peft_model(net, peft.LoraConfig(**given))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:  # which PEFT starts at zero
                parameter.normal_(0, 0.3)
    return wrapped


METHODS = {
    "mean_field": lambda net, **options: sb.mean_field(net, init_std=0.1, **options),
    "k_tied": lambda net, **options: sb.k_tied(net, init_std=0.1, **options),
    "rank1": lambda net, **options: sb.rank1(net, members=2, init_spread=0.2, dropout_rate=0.1, **options),
    "batch_ensemble": lambda net, **options: sb.batch_ensemble(net, members=2, **options),
}


@pytest.mark.parametrize("matrices", ["A", "B", "both"])
@pytest.mark.parametrize("method", METHODS)
def test_every_draw_is_a_merged_network(method: str, matrices: str) -> None:
    net, batch = lora(bert()).eval(), inputs()
    model = METHODS[method](net, **adapters(net, matrices)).eval()
    converted = {name.split(".")[-2] for name in model.summary().converted}
    assert converted == {"A": {"lora_A"}, "B": {"lora_B"}, "both": {"lora_A", "lora_B"}}[matrices]
    draw = model.draw(2)
    with torch.no_grad():
        outputs = model(**batch, draw=draw).logits
        for d in range(2 * model.members):
            member = model.member(d // 2, sample=d % 2, draw=draw)
            torch.testing.assert_close(outputs[d], member(**batch).logits, rtol=1e-4, atol=1e-5)
            merged = member.merge_and_unload()
            assert type(merged) is transformers.BertForSequenceClassification
            torch.testing.assert_close(outputs[d], merged(**batch).logits, rtol=1e-4, atol=1e-5)
    assert outputs.std(0).max() > 1e-4


def test_blob_has_its_kl() -> None:
    """q(A) = N(M, Omega^2), p(A) = N(0, 0.2^2): the closed form."""
    net = lora(bert())
    model = sb.mean_field(net, prior="normal", prior_std=0.2, **adapters(net))
    expected = 0.0
    for layer in model.layers():
        q = torch.distributions.Normal(layer.weight, layer.weight_posterior.scale)
        p = torch.distributions.Normal(torch.zeros_like(layer.weight), 0.2)
        expected += torch.distributions.kl_divergence(q, p).sum()
    torch.testing.assert_close(model.kl(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_the_trainer_trains_what_peft_trains_and_writes_nothing_else(tmp_path: Path, method: str) -> None:
    data, plain = examples(), bert()
    base = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    net = lora(plain)
    model = METHODS[method](net, **adapters(net, "both"))
    before = {name: p.clone() for name, p in model.named_parameters()}
    Trainer(model, arguments(tmp_path, save_strategy="steps", save_steps=3), train_dataset=data).train()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if "lora_" in name or "modules_to_save" in name}
    folder = tmp_path / "checkpoint-3"
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        stored = set(file.keys())
    assert {name.partition("default")[0].split(".")[-2] for name in stored} == {"lora_A", "lora_B", "modules_to_save"}
    again = bert()  # its head is another
    again.load_state_dict({**again.state_dict(), **{k: v for k, v in base.items() if "classifier" not in k}})
    wrapped = peft.get_peft_model(again, peft.PeftConfig.from_pretrained(folder))
    loaded = sb.load(folder, wrapped)
    batch = transformers.default_data_collator(data)
    del batch["labels"]
    assert torch.equal(loaded.predict(**batch, seed=1).probs, model.predict(**batch, seed=1).probs)
    trained = {name for name, p in loaded.named_parameters() if p.requires_grad}
    assert trained == moved
    assert "peft.get_peft_model" in (folder / "README.md").read_text()
    other = bert()
    with pytest.raises(ValueError, match="frozen weights"):
        sb.load(folder, lora(other))


def test_generation_and_checkpointing_with_adapters() -> None:
    net = lora(gpt2(), target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    model = sb.rank1(net, members=2, dropout_rate=0.1, **adapters(net))
    prompt = torch.tensor([[3, 4, 5]])
    made = generate(model, prompt, seed=1, max_new_tokens=4, min_new_tokens=4)
    assert made.draw_log_likelihood.shape == (8, 1)
    member = model.member(1).merge_and_unload()
    assert generate(sb.deterministic(member), prompt, max_new_tokens=4).tokens.shape[0] == 1
    found = []
    for enabled in (False, True):
        torch.manual_seed(1)
        model = sb.rank1(net, members=2, dropout_rate=0.1, **adapters(net)).double().train()
        if enabled:
            model.gradient_checkpointing_enable()
        torch.manual_seed(2)
        model(input_ids=prompt).logits.square().mean().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_what_are_no_adapters_is_said() -> None:
    with pytest.raises(ValueError, match=r"peft\.get_peft_model"):
        adapters(bert())
    with pytest.raises(ValueError, match="`matrices`"):
        adapters(lora(bert()), "C")


# ---------------------------------------------------------------------- a frozen base, a new head, and small data


@pytest.mark.parametrize("method", METHODS)
def test_a_new_head_is_trained_and_saved_beside_the_factors(tmp_path: Path, method: str) -> None:
    net, batch = bert(), inputs()
    model = METHODS[method](net, freeze_base=True, include="encoder", train=["classifier"])
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    added = {name for name, p in model.named_parameters() if id(p) in set(map(id, model.added_parameters()))}
    assert trained == added | {"net.classifier.weight", "net.classifier.bias"}
    with torch.no_grad():
        model.net.classifier.weight.mul_(2)
    model.save_pretrained(tmp_path)
    fresh = bert()
    fresh.bert.load_state_dict(net.bert.state_dict())  # and a head with other numbers
    loaded = sb.load(tmp_path, fresh)
    assert torch.equal(loaded.predict(**batch, seed=1).probs, model.predict(**batch, seed=1).probs)
    assert {name for name, p in loaded.named_parameters() if p.requires_grad} == trained
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert "net.classifier.weight" in file.keys()  # noqa: SIM118


def test_norms_in_modules_that_are_trained_keep_their_statistics_up_to_date() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))
    model = sb.rank1(net, freeze_base=True, train=["3"]).train()
    assert not model.net[1].training
    assert model.net[3].training


def test_exceptions_need_a_rule() -> None:
    with pytest.raises(ValueError, match="freeze_base=True"):
        sb.rank1(bert(), train=["classifier"])
    with pytest.raises(ValueError, match=r"`train`.*classifer.*classifier"):
        sb.rank1(bert(), freeze_base=True, train=["classifer"])


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda net: sb.rank1(net, init="ones", freeze_base=True), 0.05),
        (lambda net: sb.rank1(net, trained=True, freeze_base=True), 0.05),
        (lambda net: sb.mean_field(net, freeze_base=True), 0.05),
        (lambda net: sb.k_tied(net, freeze_base=True), 0.05),
        (lambda net: sb.rank1(net, freeze_base=True), 4.0),  # locations are spread by 0.5, scales are 0.03
    ],
)
def test_the_kl_of_adapters_begins_small(make, most: float) -> None:
    """For each number that has one (scales vary by a tenth); it was 0.75 with the first."""
    model = make(bert())
    numbers = sum(part.scale.numel() for part in model.stochastic())
    assert model.kl().item() / numbers < most


def test_a_prior_is_what_was_asked_for() -> None:
    assert sb.rank1(bert(), freeze_base=True, prior_std=0.3).options["prior_std"] == 0.3
    assert sb.rank1(bert(), trained=True).options["prior_std"] == 0.15
    assert sb.rank1(bert()).options["prior_std"] == 0.1
    start = sb.rank1(bert(), prior_std="initial", init_spread=0.3, dropout_rate=0.2).options["prior_std"]
    assert start == pytest.approx((0.3**2 + 0.2 / 0.8) ** 0.5)
    frozen = sb.mean_field(bert(), freeze_base=True, init_std=0.03).options
    assert (frozen["prior"], frozen["prior_std"]) == ("tied_mean", 0.03)
    assert sb.mean_field(bert(), freeze_base=True, prior="normal", prior_std=0.2).options["prior"] == "normal"
