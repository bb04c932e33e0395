"""Hugging Face models, built from small random configurations."""

import json
import pickle
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from torch import nn

import slimbayes as sb
from hugging_face import BATCH, LENGTH, bert, decoded, distilbert, gpt2, inputs, llama, t5, vit, whisper
from slimbayes.layers.embedding import GaussianEmbedding

pytestmark = pytest.mark.filterwarnings("ignore:::transformers")

MEMBERS = 3
#: The model, and layers that rank1 converts: all linear ones.
MODELS = {"bert": (bert, 2 * 6 + 2), "distilbert": (distilbert, 2 * 6 + 2), "gpt2": (gpt2, 2 * 4 + 1)}


@pytest.fixture(params=MODELS)
def name(request) -> str:
    return request.param


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
    whole = model.predict(**batch, samples=0, likelihood="categorical")
    with torch.no_grad():
        each = torch.stack([model.member(k).eval()(**batch).logits.softmax(-1) for k in range(MEMBERS)])
    torch.testing.assert_close(whole.probs, each.mean(0), rtol=1e-4, atol=1e-5)
    chunked = model.predict(**batch, samples=0, batch_size=3, likelihood="categorical")
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


def test_training_on_the_models_own_loss_is_warned_of() -> None:
    """It has no KL."""
    labels = torch.tensor([0, 1, 2, 1])
    with pytest.warns(UserWarning, match="no KL"):
        sb.rank1(bert(), members=MEMBERS)(**inputs(), labels=labels)
    model = sb.rank1(bert(), members=MEMBERS)
    sb.ELBO(model, num_data=4)
    model(**inputs(), labels=labels)
    sb.batch_ensemble(bert(), members=MEMBERS)(**inputs(), labels=labels)  # has none to forget


def test_what_tools_of_hugging_face_ask_for(capsys: pytest.CaptureFixture) -> None:
    net = bert()
    model = sb.rank1(net, members=2, freeze_base=True)
    assert model.config is model.net.config
    assert (model.device, model.dtype) == (net.device, net.dtype)
    model.print_trainable_parameters()
    trained = sum(p.numel() for name, p in model.named_parameters() if "_factor." in name)
    assert capsys.readouterr().out.startswith(f"trainable params: {trained:,d} || all params: ")
    assert not hasattr(sb.rank1(nn.Linear(2, 2)), "config")


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


# ---------------------------------------------------------------------- every architecture with every method


#: The model, its inputs, and the tables that it reads by position. Whisper's 20 positions are five for each row.
ARCHITECTURES = {
    "bert": (bert, inputs, {"bert.embeddings.position_embeddings"}),
    "distilbert": (distilbert, inputs, {"distilbert.embeddings.position_embeddings"}),
    "gpt2": (gpt2, inputs, {"transformer.wpe"}),
    "t5": (t5, lambda: {**inputs(), **decoded()}, set()),
    "vit": (vit, lambda: {"pixel_values": torch.randn(BATCH, 3, 16, 16)}, set()),
    "llama": (llama, inputs, set()),
    "whisper": (
        whisper,
        lambda: {"input_features": torch.randn(BATCH, 6, 40), **decoded()},
        {"model.encoder.embed_positions"},
    ),
}
METHODS = {
    "rank1": lambda net: sb.rank1(net, members=2, dropout_rate=0.1),
    "rank1_mean_field_embedding": lambda net: sb.rank1(net, members=2, embedding="mean_field"),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=2),
    "mean_field": lambda net: sb.mean_field(net, init_std=0.05),
    "mean_field_local": lambda net: sb.mean_field(net, init_std=0.05, estimator="local"),
    "mean_field_flipout": lambda net: sb.mean_field(net, init_std=0.05, estimator="flipout"),
    "k_tied": lambda net: sb.k_tied(net, init_std=0.05),
    "mc_dropout": lambda net: sb.mc_dropout(net, 0.1, place="before"),
}
#: The methods with random tables, and one without; the rest are slow.
FAST = {"rank1_mean_field_embedding", "mean_field_flipout"}
PAIRS = [
    pytest.param(a, m, marks=() if m in FAST or (a, m) in {("gpt2", "rank1"), ("gpt2", "k_tied")} else pytest.mark.slow)
    for a in ARCHITECTURES
    for m in METHODS
]


@pytest.mark.parametrize(("architecture", "method"), PAIRS)
def test_every_draw_is_its_member(architecture: str, method: str) -> None:
    build, make, by_position = ARCHITECTURES[architecture]
    torch.manual_seed(0)
    model, batch = METHODS[method](build()), make()
    model.train()
    (model(**batch, samples=2).logits.square().mean() + model.kl()).backward()
    assert model.kl().isfinite()
    tables = {layer.name for layer in model.layers() if isinstance(layer, GaussianEmbedding) and layer.by_position}
    assert tables == (by_position if "embed" in method or "field" in method or method == "k_tied" else set())
    model.eval()
    model.check(**batch)
    draw = model.draw(2)
    with torch.no_grad():
        outputs = model(**batch, draw=draw).logits
        for d in range(2 * model.members):
            alone = model.member(d // 2, sample=d % 2, draw=draw)(**batch).logits
            torch.testing.assert_close(outputs[d], alone, rtol=1e-4, atol=2e-5)
    assert model.predict(**batch, samples=2).draws.logits.shape == outputs.shape
    whole, parts = (model.predict(**batch, samples=2, seed=1, batch_size=size).draws.logits for size in (BATCH, 3))
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=2e-5)


def test_gpt2_is_converted_whole() -> None:
    """Before, 8 of its 9 layers with weight matrices stayed point estimates, without a word."""
    model = sb.rank1(gpt2(), members=MEMBERS)
    assert len(model.summary().converted) == 9
    assert {model.net.get_submodule(name).plain_class.__name__ for name in model.summary().converted} == {
        "Conv1D",
        "Linear",
    }
    assert model.net.lm_head.weight is model.net.transformer.wte.weight  # tied, as they were
    assert len(sb.mean_field(gpt2()).summary().converted) == 9 + 2


@pytest.mark.parametrize("method", ["rank1", "rank1_mean_field_embedding", "mean_field", "mc_dropout"])
def test_a_cache_is_filled_by_the_passes_that_are_given_it(method: str) -> None:
    """Before, passes that try the network had put rows of their own into it, and the first pass failed."""
    model, tokens = METHODS[method](gpt2()).eval(), inputs()["input_ids"]
    cache, draw = transformers.DynamicCache(), model.draw(2)
    with torch.no_grad():
        start = model(input_ids=tokens[:, :3], past_key_values=cache, use_cache=True, draw=draw).logits
        assert cache.get_seq_length() == 3
        rest = model(input_ids=tokens[:, 3:], past_key_values=cache, use_cache=True, draw=draw).logits
        whole = model(input_ids=tokens, draw=draw).logits
    torch.testing.assert_close(torch.cat([start, rest], 2), whole, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("method", ["mean_field", "k_tied"])
def test_relative_tables_stay_points_and_say_so(method: str) -> None:
    left = METHODS[method](t5()).summary().left
    tables = {name: reason for name, reason in left.items() if name.endswith("relative_attention_bias")}
    assert len(tables) == 2
    assert all("pairs of positions" in reason for reason in tables.values())


def test_positions_may_be_common_to_all_rows_or_not() -> None:
    """As with prompts that are padded on the left, and others."""
    tokens = torch.randint(3, 50, (3, 6))
    own = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3], [0, 0, 0, 0, 1, 2]])
    for order in ((own, None), (None, own)):
        model = sb.mean_field(gpt2().eval(), init_std=0.05)
        draw = model.draw(2)
        for positions in order:
            given = {} if positions is None else {"position_ids": positions}
            with torch.no_grad():
                outputs = model(input_ids=tokens, **given, draw=draw).logits
                for d in range(2):
                    alone = model.member(0, sample=d, draw=draw)(input_ids=tokens, **given).logits
                    torch.testing.assert_close(outputs[d], alone, rtol=1e-4, atol=2e-5)


def test_layers_of_the_library_can_be_pickled() -> None:
    model, batch = sb.rank1(gpt2().eval(), members=MEMBERS), inputs()
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(**batch, samples=0).logits, model(**batch, samples=0).logits)
