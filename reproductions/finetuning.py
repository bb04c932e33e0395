"""One run of a fine-tuned transformer: trained or put together, and scored."""

import json
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from torch import nn

import slimbayes as sb
from examples import imdb_minilm, reaction_yields
from reproductions.finetuned import Finetuned
from slimbayes._files import write_json
from slimbayes.data.folders import data_folder

__all__ = ["measure"]

#: Scores of a model that has so many draws of each member, by the part of the test that they are of.
Score = Callable[[sb.BayesianModel, int], dict[str, dict[str, float]]]

#: What is made of trained networks.
MADE: dict[str, Callable[[list[nn.Module]], sb.BayesianModel]] = {
    "ensemble": lambda networks: sb.deep_ensemble(networks),
    "mc_dropout": lambda networks: reaction_yields.mc_dropout(networks[0]),
}


def measure(run: Finetuned, folder: Path) -> dict[str, Any]:
    """Make a run's model, keep it in ``folder/model``, and return its scores and what it cost.

    Args:
        run: What to do.
        folder: Its checkpoints; the runs that it is made of are beside it.
    """
    example: Any = reaction_yields if run.study == "reaction_yields" else imdb_minilm
    torch.manual_seed(run.seed)
    tokenizer, train, score = _prepared(run, example)
    transformers.set_seed(run.seed)
    net = example.pretrained()
    if run.of:
        model, cost = _assembled(run, net, folder)
        options: Mapping[str, Any] = {}
    else:
        method = example.METHODS[run.method]
        model, clock, options = method.convert(net), _Clock(folder / "clock.json"), method.rates
        example.fine_tune(
            model, tokenizer, train, folder / "trainer", run.settings["epochs"], **options, callbacks=[clock],
            resume=_last_checkpoint(folder / "trainer") or False, seed=run.seed, save_strategy="epoch",
            save_total_limit=1, logging_strategy="epoch", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        model.eval()
        model.save_pretrained(folder / "model")
        cost = {**clock.spent, "stored_bytes": _stored_bytes(model, folder)}
        write_json(folder / "cost.json", cost)
    log = _log(folder / "trainer")
    begin = time.process_time()
    scored = score(model, 1 if model.default_samples == 1 else -(-run.settings["draws"] // model.members))
    return {
        **scored,
        **cost,
        "scoring_cpu_seconds": time.process_time() - begin,
        "rates": dict(options),
        "options": {name: value for name, value in model.options.items() if isinstance(value, (str, float, int))},
        "curve": log,
        "libraries": {"transformers": transformers.__version__, "peft": peft.__version__},
    }


def _prepared(run: Finetuned, example: Any) -> tuple[Any, Any, Score]:
    """Return the tokenizer, the training examples, and how a model is scored."""
    settings = run.settings
    if run.study == "reaction_yields":
        percent = 100.0 if settings["set"] == "suzuki_miyaura" else 1.0
        reactions = example.read_reactions(data_folder() / "reactions", settings["set"], settings["split"], percent)
        tokenizer, (train, test) = example.smiles_tokenizer(example.pretrained_folder() / "vocab.txt"), reactions

        def of_yields(model: sb.BayesianModel, samples: int) -> dict[str, dict[str, float]]:
            p = example.predict(model, tokenizer, test.reactions, samples)
            return {"test": example.scores(p, test.yields, train.shift, train.scale)}

        return tokenizer, train, of_yields
    train, test = example.read_reviews(data_folder() / "imdb" / "aclImdb_v1.tar.gz", settings["count"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(example.pretrained_folder())

    def of_reviews(model: sb.BayesianModel, samples: int) -> dict[str, dict[str, float]]:
        found = {}
        for part, length in (("test", settings["length"]), ("cut", settings["cut"])):
            found[part] = example.scores(example.predict(model, tokenizer, test.texts, samples, length), test.labels)
        return found

    return tokenizer, train, of_reviews


def _assembled(run: Finetuned, net: nn.Module, folder: Path) -> tuple[sb.BayesianModel, dict[str, Any]]:
    """Return a model made of trained networks, and what these cost together."""
    networks, costs = [], []
    for name in run.of:
        place = folder.parent / name
        if not (place / "cost.json").exists():
            raise FileNotFoundError(
                f"There is no trained network in {place}. Remove the stored {name} to train it again."
            )
        networks.append(sb.load(place / "model", net).member(0))
        costs.append(json.loads((place / "cost.json").read_text()))
    model = MADE[run.method](networks)
    memory = max(cost["memory"] for cost in costs)
    return model.eval(), {**{key: sum(cost[key] for cost in costs) for key in costs[0]}, "memory": memory}


def _stored_bytes(model: sb.BayesianModel, folder: Path) -> int:
    """Return the size of the file that holds what is needed beside the trained network; of LoRA alone, PEFT's own."""
    place = folder / "model"
    net: Any = model.member(0)
    if not model.options["freeze_base"] and hasattr(net, "peft_config"):
        place = folder / "adapter"
        net.save_pretrained(place)
    return sum(file.stat().st_size for file in place.glob("*.safetensors"))


class _Clock(transformers.TrainerCallback):
    """Seconds of training over all sessions of a run: what was lost when one was killed does not count."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        resumed = state.global_step > 0 and self.file.exists()
        self.before = json.loads(self.file.read_text()) if resumed else {"seconds": 0.0, "cpu_seconds": 0.0}
        self.begin = time.perf_counter(), time.process_time()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        write_json(self.file, self._now())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of this process at its largest
        self.spent = {**self._now(), "memory": 1024 * kilobytes}

    def _now(self) -> dict[str, float]:
        since = time.perf_counter() - self.begin[0], time.process_time() - self.begin[1]
        return {"seconds": self.before["seconds"] + since[0], "cpu_seconds": self.before["cpu_seconds"] + since[1]}


def _last_checkpoint(folder: Path) -> str | None:
    """Return the last checkpoint that is whole: Trainer writes its state last."""
    whole = [file.parent for file in folder.glob("checkpoint-*/trainer_state.json")]
    return str(max(whole, key=lambda place: int(place.name.split("-")[1]))) if whole else None


def _log(folder: Path) -> list[dict[str, float]]:
    """Return loss and KL at the end of each epoch."""
    last = _last_checkpoint(folder)
    if last is None:
        return []
    history = json.loads((Path(last) / "trainer_state.json").read_text())["log_history"]
    return [{key: row[key] for key in ("epoch", "loss", "kl") if key in row} for row in history if "loss" in row]
