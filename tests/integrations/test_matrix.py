"""Seven architectures with five methods: trained, resumed, saved, read, predicted, generated, checkpointed."""

import copy
from pathlib import Path

import pytest
import torch
import transformers

import slimbayes as sb
from hugging_face import bert, distilbert, gpt2, llama, t5, vit, whisper
from slimbayes.integrations.transformers import Trainer, generate

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::accelerate", "ignore:::torch.utils.data")

EXAMPLES = 8


def tokens(count: int, length: int) -> list[list[int]]:
    return torch.randint(3, 50, (count, length), generator=torch.Generator().manual_seed(1)).tolist()


def classified() -> list[dict]:
    return [{"input_ids": row, "attention_mask": [1] * 6, "labels": i % 3} for i, row in enumerate(tokens(EXAMPLES, 6))]


def texts() -> list[dict]:
    return [{"input_ids": row, "attention_mask": [1] * 6, "labels": [*row[:5], -100]} for row in tokens(EXAMPLES, 6)]


def images() -> list[dict]:
    pixels = torch.randn(EXAMPLES, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return [{"pixel_values": image, "labels": i % 3} for i, image in enumerate(pixels)]


def sounds() -> list[dict]:
    features = torch.randn(EXAMPLES, 6, 40, generator=torch.Generator().manual_seed(1))
    rows = tokens(EXAMPLES, 4)
    return [{"input_features": sound, "labels": row} for sound, row in zip(features, rows, strict=True)]


#: The network, what it is trained on, the shape of a prediction, and what it reads to generate.
ARCHITECTURES = {
    "bert": (bert, classified, (3,), ()),
    "distilbert": (distilbert, classified, (3,), ()),
    "gpt2": (gpt2, texts, (6, 50), ("input_ids", "attention_mask")),
    "t5": (t5, texts, (6, 50), ("input_ids", "attention_mask")),
    "vit": (vit, images, (3,), ()),
    "llama": (llama, texts, (6, 50), ("input_ids", "attention_mask")),
    "whisper": (whisper, sounds, (4, 50), ("input_features",)),
}
METHODS = {
    "rank1": lambda net: sb.rank1(net, members=2, init="ones", dropout_rate=0.05, freeze_base=True),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=2, train_on="split"),
    "mean_field": lambda net: sb.mean_field(net, estimator="flipout", trained=True),
    "k_tied": lambda net: sb.k_tied(net, init_std=0.02, trained=True),
    "mc_dropout": lambda net: sb.mc_dropout(net, 0.1, place="before", unit="filter"),
}


def train(model: sb.BayesianModel, data: list[dict], folder: Path, resume: bool = False) -> Trainer:
    args = transformers.TrainingArguments(
        str(folder), max_steps=3, per_device_train_batch_size=4, learning_rate=1e-3, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="steps", save_steps=2, logging_steps=1, gradient_checkpointing=resume,
    )  # fmt: skip
    trainer = Trainer(model, args, train_dataset=data)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2") if resume else None)
    return trainer


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_with_every_method(architecture: str, method: str, tmp_path: Path) -> None:
    build, make, shape, read = ARCHITECTURES[architecture]
    data, net = make(), build()
    model = METHODS[method](net)
    start = copy.deepcopy(model)
    trainer = train(model, data, tmp_path)
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), start.parameters(), strict=True))

    # The last step again, with activation checkpointing: the same numbers.
    resumed = train(copy.deepcopy(start), data, tmp_path, resume=True).model
    for (name, first), second in zip(model.state_dict().items(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(second, first, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")

    found = trainer.predict(data)
    assert found.predictions.shape == (EXAMPLES, *shape)
    assert {f"test_{name}" for name in ("nll", "ece", "entropy", "mutual_information")} <= set(found.metrics)
    assert found.metrics["test_mutual_information"] > 0

    model.save_pretrained(tmp_path / "saved")
    loaded = sb.load(tmp_path / "saved", net)
    batch = transformers.default_data_collator(data)
    if architecture in ("t5", "whisper"):
        batch["decoder_input_ids"] = batch["labels"].clamp_min(0)
    del batch["labels"]
    first, second = (m.predict(**batch, samples=2, seed=1, likelihood="categorical").probs for m in (model, loaded))
    assert torch.equal(first, second)

    if read:
        made = generate(loaded, **{name: batch[name][:2] for name in read}, samples=2, seed=1, max_new_tokens=3)
        assert made.tokens.shape[0] == 2
        assert made.mutual_information[made.mask].max() > 0
        assert made.log_likelihood.isfinite().all()
