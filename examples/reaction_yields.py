"""Yields of chemical reactions, and how sure the network is of each.

A BERT that was trained on the text of reactions (rxnfp, MIT licence) is fine-tuned: it says a mean and a noise for each
reaction, and its members' disagreement comes on top.

    pip install "slimbayes[transformers]" && pip install --no-deps rxnfp==0.1.0
    python examples/reaction_yields.py DATA     # about an hour on one core; --help shows more

DATA has ``buchwald_hartwig.tsv``, a table of (reaction, yield in %), and ``buchwald_hartwig_splits.json``, row numbers
for training and test. Of rxnfp only the files of weights are read; its code is not run.
"""

import argparse
import csv
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import peft
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast, TrainingArguments

import slimbayes as sb
from slimbayes.integrations.transformers import Trainer, adapters
from slimbayes.likelihoods import Gaussian
from slimbayes.prediction import Prediction

#: What is one word of a SMILES text: an atom in brackets, a chlorine or bromine, the arrow, a ring of two digits; else
#: each character.
SMILES = r"\[[^\]]+\]|Br|Cl|>>|%\d\d|."


def main(data: Path, method: str = "rank1", split: str = "FullCV_01", epochs: float = 10) -> None:
    """Fine-tune, print the scores on the test reactions and a few intervals."""
    train, test = read_reactions(data, "buchwald_hartwig", split)
    tokenizer = smiles_tokenizer(pretrained_folder() / "vocab.txt")
    net = pretrained()
    model = METHODS[method].convert(net)  # such as sb.rank1(net, members=4, trained=True, train_on="split")
    trainer = fine_tune(model, tokenizer, train, "runs/reaction_yields", epochs, **METHODS[method].rates)
    print(trainer.state.log_history[-1])
    predicted = predict(model, tokenizer, test.reactions, samples=-(-20 // model.members))
    print(scores(predicted, test.yields, train.shift, train.scale))
    low, high = (train.shift + train.scale * bound for bound in predicted[:5].interval(0.9))
    for happened, least, most in zip(test.yields.tolist(), low.flatten(), high.flatten(), strict=False):
        print(f"expected {least:.0f} to {most:.0f}%, found {happened:.0f}%")


# ---------------------------------------------------------------------- data


class Reactions(NamedTuple):
    """Reactions as SMILES texts, and their yields in %."""

    reactions: list[str]
    yields: Tensor

    @property
    def shift(self) -> float:
        """The yields' mean."""
        return self.yields.mean().item()

    @property
    def scale(self) -> float:
        """Their standard deviation; a network learns (yield - shift) / scale."""
        return self.yields.std().item()


def read_reactions(folder: Path, name: str, split: str, percent: float = 1.0) -> tuple[Reactions, Reactions]:
    """Return the training and the test reactions of a published split.

    Args:
        folder: Has ``NAME.tsv`` and ``NAME_splits.json``.
        name: Of the set.
        split: Of its splits.
        percent: What the file's yields are multiplied by to be in %.
    """
    with (folder / f"{name}.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    parts = json.loads((folder / f"{name}_splits.json").read_text())[split]
    train, test = ([rows[row] for row in parts[part]] for part in ("train", "test"))

    def of(rows: list[dict[str, str]]) -> Reactions:
        yields = torch.tensor([percent * float(row["yield"]) for row in rows], dtype=torch.float64)
        return Reactions([row["reaction"] for row in rows], yields)

    return of(train), of(test)


def smiles_tokenizer(vocabulary: Path) -> PreTrainedTokenizerFast:
    """Return a tokenizer of SMILES, as Hugging Face has them, from a file with a word in each line."""
    words = {word: number for number, word in enumerate(vocabulary.read_text().splitlines())}
    core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(SMILES), "isolated")
    around = [(word, words[word]) for word in ("[CLS]", "[SEP]")]
    core.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=512, **special)


def pretrained_folder() -> Path:
    """Return the folder of the trained network, without running code of the package that brings it."""
    found = importlib.util.find_spec("rxnfp")
    if found is None or not found.submodule_search_locations:
        raise ImportError("The trained network is in the package rxnfp: pip install --no-deps rxnfp==0.1.0")
    return Path(found.submodule_search_locations[0]) / "models" / "transformers" / "bert_pretrained"


def pretrained() -> nn.Module:
    """Return the trained network, with a new head for a mean and a noise."""
    return BertForSequenceClassification.from_pretrained(pretrained_folder(), num_labels=2, weights_only=True)


# ---------------------------------------------------------------------- fine-tuning


def fine_tune(
    model: sb.BayesianModel,
    tokenizer: PreTrainedTokenizerFast,
    train: Reactions,
    folder: str | Path,
    epochs: float = 10,
    learning_rate: float = 1e-4,
    factor_lr: float | None = None,
    callbacks: Sequence[Any] = (),
    resume: bool = False,
    **options: Any,
) -> Trainer:
    """Train a model on reactions; ``options`` go to ``TrainingArguments``."""
    given: dict[str, Any] = {"per_device_train_batch_size": 16, "warmup_steps": 0.1, "weight_decay": 0.01, "bf16": True}
    given["use_cpu"] = not torch.cuda.is_available()
    labels = ((train.yields - train.shift) / train.scale).tolist()
    tokens = tokenizer(train.reactions)["input_ids"]
    data = [{"input_ids": one, "labels": label} for one, label in zip(tokens, labels, strict=True)]
    args = TrainingArguments(
        str(folder), num_train_epochs=epochs, learning_rate=learning_rate, report_to=[], **{**given, **options}
    )
    likelihood = Gaussian(noise="predicted")
    trainer = Trainer(
        model, args, train_dataset=data, processing_class=tokenizer, likelihood=likelihood, factor_lr=factor_lr,
        callbacks=list(callbacks),
    )  # fmt: skip
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
    """Return the network with LoRA matrices in each of its layers; they and the head are trained."""
    layers = ["query", "key", "value", "dense"]
    config = peft.LoraConfig(
        r=8, lora_alpha=16, target_modules=layers, exclude_modules=r".*pooler.*", task_type="SEQ_CLS",
        modules_to_save=["pooler", "classifier"],
    )  # fmt: skip
    return peft.get_peft_model(net, config)


def rank1_lora(net: nn.Module) -> sb.BayesianModel:
    """Return four members that differ by rank-1 factors around the LoRA matrices; the trained weights stay."""
    lora = with_lora(net)
    return sb.rank1(lora, members=4, trained=True, train_on="split", **adapters(lora, "both"))


def mc_dropout(net: nn.Module) -> sb.BayesianModel:
    """Return the network with its own dropout kept on; not that of attention weights, a bare function."""
    return sb.mc_dropout(net, exclude="*.self.dropout")


#: Split: each training reaction is shown to one of the four members, which costs what one network does. The prior is as
#: wide as the factors' start, so that the KL of 44,000 factors does not outweigh 2,767 reactions.
METHODS = {
    "rank1": Method(
        lambda net: sb.rank1(net, members=4, trained=True, prior_std="initial", train_on="split"),
        {"learning_rate": 1e-4, "factor_lr": 1e-3},
    ),
    "batch_ensemble": Method(
        lambda net: sb.batch_ensemble(net, members=4, trained=True, train_on="split"),
        {"learning_rate": 1e-4, "factor_lr": 1e-3},
    ),
    "rank1_lora": Method(rank1_lora, {"learning_rate": 1e-3, "factor_lr": 1e-3}),
    "lora": Method(lambda net: sb.deterministic(with_lora(net)), {"learning_rate": 1e-3}),
    "mc_dropout": Method(mc_dropout),
    "plain": Method(sb.deterministic),
}


# ---------------------------------------------------------------------- what comes out


def predict(
    model: sb.BayesianModel,
    tokenizer: PreTrainedTokenizerFast,
    reactions: Sequence[str],
    samples: int,
    batch_size: int = 64,
    seed: int = 0,
) -> Prediction:
    """Return all draws of standardised yields; reactions of like lengths go together, to save padding."""
    tokens = tokenizer(list(reactions))["input_ids"]
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
    return Prediction(draws, Gaussian(noise="predicted"), model.members)


def scores(p: Prediction, yields: Tensor, shift: float, scale: float) -> dict[str, float]:
    """Return what predictions of standardised yields are worth, in % of yield and nats.

    Args:
        p: With draws of (yield - shift) / scale.
        yields: What came out, in %.
        shift: Mean of the training yields.
        scale: Their standard deviation.
    """
    mean, std = (part.squeeze(-1).double() for part in p.moments)
    draws = shift + scale * mean, scale * std
    low, high = (shift + scale * bound.squeeze(-1).double() for bound in p.interval(0.9))
    predicted, uncertainty = draws[0].mean(0), scale * p.std.squeeze(-1).double()
    rmse = sb.metrics.root_mean_squared_error(predicted, yields).item()
    return {
        "r2": r2(predicted, yields),
        "rmse": rmse,
        "nll": sb.metrics.gaussian_negative_log_likelihood(*draws, yields).item(),
        "crps": sb.metrics.crps(*draws, yields).item(),
        "coverage": sb.metrics.interval_coverage(low, high, yields).item(),
        "width": sb.metrics.interval_width(low, high).item(),
        "rmse_of_surest": rmse_of_surest(predicted, uncertainty, yields),
        "aleatoric": scale * p.aleatoric_std.mean().item(),
        "epistemic": scale * p.epistemic_std.mean().item(),
    }


def r2(predicted: Tensor, yields: Tensor) -> float:
    r"""Return the share of variance that is explained, :math:`1 - \sum_n (y_n - m_n)^2 / \sum_n (y_n - \bar y)^2`."""
    return (1 - (yields - predicted).square().sum() / (yields - yields.mean()).square().sum()).item()


def rmse_of_surest(predicted: Tensor, uncertainty: Tensor, yields: Tensor, share: float = 0.8) -> float:
    """Return the RMSE after setting aside the most uncertain reactions; ``share`` of them, rounded, are left.

    Example:
        >>> rmse_of_surest(torch.zeros(5), torch.tensor([1.0, 2, 3, 4, 9]), torch.tensor([1.0, 1, 1, 1, 100]))
        1.0
    """
    rows = uncertainty.argsort(stable=True)[: round(share * len(yields))]
    return sb.metrics.root_mean_squared_error(predicted[rows], yields[rows]).item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--method", choices=METHODS, default="rank1")
    parser.add_argument("--split", default="FullCV_01")
    parser.add_argument("--epochs", type=float, default=10)
    given = parser.parse_args()
    main(given.data, given.method, given.split, given.epochs)
