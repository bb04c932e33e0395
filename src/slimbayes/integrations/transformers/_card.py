"""The model card: what a folder holds, and how to get the model back."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from slimbayes.model import BayesianModel

TAGS = ("slimbayes", "bayesian", "uncertainty")


def write_card(model: BayesianModel, network: Any, path: Path, of_run: str = "") -> None:
    """Write ``README.md``.

    Args:
        model: What the folder holds.
        network: The Hugging Face network in it.
        path: The file.
        of_run: A card that ``transformers.Trainer`` has made of the run, which is kept below ours.
    """
    run = ModelCard(of_run) if of_run else None
    data: ModelCardData = ModelCardData() if run is None else run.data
    data.library_name = "slimbayes"
    data.tags = [*TAGS, *(tag for tag in data.tags or [] if tag not in TAGS)]
    base = getattr(network.config, "_name_or_path", "") or None
    if base is not None:
        data.base_model = base
    below = "" if run is None else f"\n{run.text.lstrip()}"
    path.write_text(f"---\n{data.to_yaml()}\n---\n{_text(model, network, base)}{below}")


def _text(model: BayesianModel, network: Any, base: str | None) -> str:
    frozen = model.options["freeze_base"]
    kind = type(network).__name__
    if frozen:
        source = repr(base) if base else "..."
        net = f"transformers.{kind}.from_pretrained({source})  # the very network that was converted"
        what = "The base is frozen, and not in this folder: the file holds what conversion added."
    else:
        net = f'transformers.{kind}(transformers.AutoConfig.from_pretrained("network"))  # of this folder'
        what = "The file holds all weights; `network/config.json` is the network's own configuration."
    wrapped = ""
    if model._first_network is not network:
        wrapped = '\nnet = peft.get_peft_model(net, peft.PeftConfig.from_pretrained("."))  # of this folder'
    layers = len(model.summary().converted)
    members = f"{model.members} member{'s' * (model.members != 1)}"
    return f"""
# {kind} with {model.method}

A Bayesian neural net made by slimbayes: method `{model.method}`, {members}, {layers} converted layers.
{what}

```python
import slimbayes as sb, transformers{", peft" if wrapped else ""}

net = {net}{wrapped}
model = sb.load(".", net)  # this folder
p = model.predict(**batch, samples={model.default_samples})  # p.probs, p.entropy, p.mutual_information
```
"""
