"""A frozen base in few bits, with factors in single precision around it: torchao's and bitsandbytes' layers.

torchao 0.18.0 and bitsandbytes 0.50.2 on a CPU; without them these tests are skipped.
"""

import copy
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from test_trainer import arguments, examples
from torch import nn

import slimbayes as sb
from hugging_face import inputs, without_dropout
from slimbayes.integrations.transformers import Trainer

pytestmark = pytest.mark.filterwarnings("ignore")

KINDS = ("torchao", "8 bits", "4 bits")


def network() -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=50, num_labels=3
    )
    return without_dropout(transformers.BertForSequenceClassification(config))


def in_few_bits(kind: str) -> nn.Module:
    net = network()
    if kind == "torchao":
        quantization = pytest.importorskip("torchao.quantization")
        quantization.quantize_(net, quantization.Int8WeightOnlyConfig())
        return net
    bnb = pytest.importorskip("bitsandbytes")
    for parent in list(net.bert.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear:
                sizes = layer.in_features, layer.out_features
                eight = kind == "8 bits"
                new = bnb.nn.Linear8bitLt(*sizes, has_fp16_weights=False) if eight else bnb.nn.Linear4bit(*sizes)
                new.load_state_dict(layer.state_dict())
                setattr(parent, name, new)
    return net.to("cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_factors_around_a_base_in_few_bits(kind: str, tmp_path: Path) -> None:
    net, batch = in_few_bits(kind), inputs()
    model = sb.rank1(net, members=2, dropout_rate=0.1, freeze_base=True)
    assert len(model.summary().converted) == 1 * 6 + 2
    assert {p.dtype for p in model.added_parameters()} == {torch.float32}
    draw = model.draw(2)
    outputs = model(**batch, draw=draw).logits
    outputs.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.added_parameters())
    for d in range(4):
        member = model.member(d // 2, sample=d % 2, draw=draw)
        layers = [layer for layer in member.modules() if isinstance(layer, nn.Linear)]
        assert {type(layer) for layer in layers} == {nn.Linear}
        assert {type(layer.weight) for layer in layers} == {nn.Parameter}
        torch.testing.assert_close(member(**batch).logits, outputs[d].detach(), rtol=1e-4, atol=1e-5)
    model.eval().check(**batch)
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert all("_factor." in key for key in file.keys())  # noqa: SIM118
    loaded = sb.load(tmp_path, net)
    first, second = (m.predict(**batch, seed=1, likelihood="categorical").probs for m in (model, loaded))
    torch.testing.assert_close(first, second)
    other = in_few_bits(kind)
    with pytest.raises(ValueError, match="frozen weights"):
        sb.load(tmp_path, other)


@pytest.mark.parametrize("kind", KINDS)
def test_training_around_it(kind: str, tmp_path: Path) -> None:
    net, data = in_few_bits(kind), examples()
    model = sb.rank1(
        net, members=2, trained=True, freeze_base=True, train=["classifier"] if kind != "torchao" else None
    )
    before = copy.deepcopy({name: p.detach() for name, p in model.named_parameters() if p.requires_grad})
    trainer = Trainer(model, arguments(tmp_path), train_dataset=data)
    trainer.train()
    assert all(not torch.equal(p, before[name]) for name, p in model.named_parameters() if p.requires_grad)
    assert trainer.predict(data).predictions.shape == (12, 3)


def test_means_need_more_bits() -> None:
    with pytest.raises(ValueError, match="fewer bits than a mean needs"):
        sb.mean_field(in_few_bits("torchao"), include="bert.pooler.dense")
    with pytest.raises(ValueError, match="Linear4bit"):
        sb.mean_field(in_few_bits("4 bits"), include="bert.pooler.dense")
