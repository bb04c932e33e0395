"""Hugging Face models, built from small random configurations."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from torch import nn

import slimbayes as sb
from slimbayes import conversion
from slimbayes.layers.rank1 import Rank1

pytestmark = pytest.mark.filterwarnings("ignore:::transformers")

MEMBERS, BATCH, LENGTH = 3, 4, 6
SMALL = {"vocab_size": 50, "pad_token_id": 0}


def bert() -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=16,
        num_labels=3, **SMALL,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(
        dim=16, hidden_dim=24, n_layers=2, n_heads=2, max_position_embeddings=16, num_labels=3, **SMALL
    )
    return transformers.DistilBertForSequenceClassification(config)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=2, use_cache=False, **SMALL
    )
    return transformers.GPT2LMHeadModel(config)


#: The model, and layers that rank1 converts: all linear ones.
MODELS = {"bert": (bert, 2 * 6 + 2), "distilbert": (distilbert, 2 * 6 + 2), "gpt2": (gpt2, 1)}


@pytest.fixture(params=MODELS)
def name(request) -> str:
    return request.param


def inputs() -> dict[str, torch.Tensor]:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, 4:] = 0
    return {"input_ids": torch.randint(3, 50, (BATCH, LENGTH)), "attention_mask": mask}


def test_logits_have_their_draws_first_and_equal_the_members(name: str) -> None:
    build, layers = MODELS[name]
    model, batch = sb.rank1(build().eval(), members=MEMBERS, dropout_rate=0.1), inputs()
    assert len(model.summary().converted) == layers
    draw = model.draw(2)
    with torch.no_grad():
        outputs = model(**batch, draw=draw)
        rest = (BATCH, LENGTH, 50) if name == "gpt2" else (BATCH, 3)
        assert outputs.logits.shape == (MEMBERS * 2, *rest)
        for d in range(MEMBERS * 2):
            member = model.member(d // 2, sample=d % 2, draw=draw)
            plain = member(**batch)
            assert type(plain) is type(outputs)
            torch.testing.assert_close(outputs.logits[d], plain.logits, rtol=1e-4, atol=1e-5)


def test_members_are_plain_models_of_the_same_class(name: str) -> None:
    build, _ = MODELS[name]
    net = build()
    member = sb.rank1(net, members=MEMBERS).member(1)
    assert [type(m) for m in member.modules()] == [type(m) for m in net.modules()]
    assert {k: v.shape for k, v in member.state_dict().items()} == {k: v.shape for k, v in net.state_dict().items()}


def test_a_training_step_reaches_every_factor(name: str) -> None:
    build, _ = MODELS[name]
    model, batch = sb.rank1(build().train(), members=MEMBERS), inputs()
    elbo = sb.ELBO(model, num_data=100)
    targets = batch["input_ids"] if name == "gpt2" else torch.tensor([0, 1, 2, 1])
    outputs = model(**batch)
    loss = elbo(outputs, targets)
    log_probs = outputs.logits.log_softmax(-1)
    picked = log_probs.gather(-1, targets.expand(MEMBERS, *targets.shape).unsqueeze(-1))
    torch.testing.assert_close(loss, -picked.sum() / MEMBERS / BATCH + model.kl() / 100, rtol=1e-5, atol=1e-5)
    loss.backward()
    factors = {key: p for key, p in model.named_parameters() if "_factor." in key}
    assert factors
    for key, parameter in factors.items():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


def test_prediction_in_chunks(name: str) -> None:
    build, _ = MODELS[name]
    model, batch = sb.rank1(build(), members=MEMBERS), inputs()
    whole = model.predict(**batch, samples=0)
    with torch.no_grad():
        each = torch.stack([model.member(k).eval()(**batch).logits.softmax(-1) for k in range(MEMBERS)])
    torch.testing.assert_close(whole.probs, each.mean(0), rtol=1e-4, atol=1e-5)
    chunked = model.predict(**batch, samples=0, batch_size=3)
    torch.testing.assert_close(chunked.probs, whole.probs, rtol=1e-4, atol=1e-6)
    assert type(chunked.draws) is type(whole.draws)


def test_hidden_states_and_attentions_have_their_draws_first() -> None:
    net = bert().eval()
    net.set_attn_implementation("eager")  # the fused kernels return no attention
    model, batch = sb.rank1(net, members=MEMBERS), inputs()
    with torch.no_grad():
        outputs = model(**batch, samples=0, output_hidden_states=True, output_attentions=True)
        plain = model.member(1)(**batch, output_hidden_states=True, output_attentions=True)
    for kind in ("hidden_states", "attentions"):
        found, expected = outputs[kind], plain[kind]
        assert len(found) == len(expected) > 0
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours[1], theirs, rtol=1e-4, atol=1e-5)


def test_tuples_instead_of_outputs() -> None:
    model, batch = sb.rank1(bert().eval(), members=MEMBERS), inputs()
    with torch.no_grad():
        (logits,) = model(**batch, samples=0, return_dict=False)
        torch.testing.assert_close(logits[2], model.member(2)(**batch).logits, rtol=1e-4, atol=1e-5)


def test_the_models_own_loss_passes_through() -> None:
    model, batch = sb.rank1(bert().eval(), members=MEMBERS), inputs()
    labels = torch.tensor([0, 1, 2, 1])
    outputs = model(**batch, labels=labels, samples=0)
    expected = nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.repeat(MEMBERS))
    torch.testing.assert_close(outputs.loss, expected)


def test_tokenised_batches_are_mappings_that_stay_of_their_class() -> None:
    batch = transformers.BatchEncoding(inputs())
    doubled = sb.batching.map_leaves(lambda x: x.repeat(2, 1), batch)
    assert type(doubled) is transformers.BatchEncoding
    assert doubled["input_ids"].shape == (2 * BATCH, LENGTH)
    assert batch["input_ids"].shape == (BATCH, LENGTH)
    model = sb.rank1(bert().eval(), members=MEMBERS)
    assert model(**batch).logits.shape == (MEMBERS, BATCH, 3)


def test_an_adapter_is_saved_without_its_base(tmp_path: Path) -> None:
    net = bert().eval()
    model, batch = sb.rank1(net, members=MEMBERS, freeze_base=True, include="encoder"), inputs()
    model.save_pretrained(tmp_path)
    loaded = sb.load(tmp_path, net)
    assert torch.equal(loaded.predict(**batch, seed=1).probs, model.predict(**batch, seed=1).probs)
    config = json.loads((tmp_path / "config.json").read_text())
    assert len(config["converted"]) == 2 * 6
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert all("_factor." in key and "encoder" in key for key in file.keys())  # noqa: SIM118


class Rank1Conv1D(Rank1, transformers.pytorch_utils.Conv1D):
    """GPT-2's linear layer, whose weight is (in, out)."""

    def sizes(self):
        return self.weight.shape[0], self.weight.shape[1]

    def op(self, x, *args):
        return x @ self.weight

    def scaled_weight(self, scale):
        return self.weight * scale.T


def test_gpt2_needs_a_converter_for_its_own_linear_layer() -> None:
    conv1d = transformers.pytorch_utils.Conv1D
    left = sb.rank1(gpt2()).summary().left
    assert "no converter is registered for Conv1D" in left["transformer.h.0.attn.c_attn"]
    sb.register_converter(conv1d, lambda layer, settings: Rank1Conv1D.adopt(layer, settings.options, settings.memo))
    try:
        net, batch = gpt2().eval(), inputs()
        model = sb.rank1(net, members=MEMBERS, dropout_rate=0.1)
        assert len(model.summary().converted) == 2 * 4 + 1
        assert model.net.lm_head.weight is model.net.transformer.wte.weight  # tied, as they were
        draw = model.draw(1)
        with torch.no_grad():
            outputs = model(**batch, draw=draw)
            for k in range(MEMBERS):
                member = model.member(k, sample=0, draw=draw)
                torch.testing.assert_close(outputs.logits[k], member(**batch).logits, rtol=1e-4, atol=1e-5)
    finally:
        del conversion._CONVERTERS["rank1"][conv1d]
