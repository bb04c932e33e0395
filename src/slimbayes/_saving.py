"""Models to disk: ``config.json`` and ``model.safetensors``; ``pretrained`` reads them again."""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor

import slimbayes
from slimbayes._files import replacing, sha256_of, with_checksum
from slimbayes.likelihoods import LIKELIHOODS, Function, Likelihood

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save(model: "BayesianModel", folder: str | Path) -> None:
    """Write a model; see ``BayesianModel.save_pretrained``.

    With ``freeze_base`` only what conversion added is written, and a fingerprint of the base.
    """
    folder = as_folder(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected argument `folder` to be a folder, but {str(folder)!r} is a file. Give another.")
    if model.likelihood is not None:
        _check_likelihood(model.likelihood)
    frozen = model.options["freeze_base"]
    stored, tied = _without_duplicates(added_state(model) if frozen else model.state_dict())
    config = {
        "format": FORMAT,
        "slimbayes": slimbayes.__version__,
        "method": model.method,
        "options": model.options,
        "converted": model.summary().converted,
        "likelihood": None if model.likelihood is None else model.likelihood.spec(),
        "tied": tied,
        "base": fingerprint(model) if frozen else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS, folder / CONFIG) as (weights, text):
        save_file(stored, weights, metadata={"format": "pt"})
        text.write_text(json.dumps(with_checksum({**config, "sha256": sha256_of(weights)}), indent=2) + "\n")
        shutil.copymode(text, weights)  # safetensors makes its files unreadable for others


def as_folder(folder: str | Path) -> Path:
    """Return a path, or raise for what is none."""
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"Expected argument `folder` to be a path, but got {folder!r}. Give the name of a folder.")
    return Path(folder)


def _check_likelihood(likelihood: Likelihood) -> None:
    if isinstance(likelihood, Function):
        warnings.warn(
            f"The likelihood of the model is a function, {likelihood.label!r}, which no file can hold: its name alone "
            f"is stored. Give it again after loading: sb.ELBO(model, num_data, likelihood={likelihood.label}).",
            stacklevel=4,
        )
    elif LIKELIHOODS.get(likelihood.name) is not type(likelihood):
        raise ValueError(
            f"Cannot write the likelihood {type(likelihood).__name__}: only {sorted(LIKELIHOODS)} can be built again "
            "from numbers and names. Set model.likelihood = None before saving, and give it back after loading."
        )


def added_state(model: "BayesianModel") -> dict[str, Tensor]:
    """Return what a model with a frozen base adds to it."""
    added = _added(model)
    if model.likelihood is not None:
        added.update(map(id, model.likelihood.parameters()))
    return {name: tensor.detach() for name, tensor in model.state_dict(keep_vars=True).items() if id(tensor) in added}


def _added(model: "BayesianModel") -> set[int]:
    """Return the ids of the tensors that are no frozen base: what was added, or collected, or is trained."""
    collected = (buffer for part in model.stochastic() for buffer in part.buffers())
    kept = (model.added_parameters(), collected, model.trained_of_base())
    return {id(tensor) for tensors in kept for tensor in tensors}


def _without_duplicates(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Split a state into tensors to store and names that are tied to one of them."""
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"Cannot write {name}: a module's extra state is no tensor, and loading runs no code. Keep it in a "
                "buffer, or store model.state_dict() yourself."
            )
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,)
        if memory in first:
            tied[name] = first[memory]
        else:
            first[memory] = name
            stored[name] = tensor.detach().cpu().contiguous()
            if stored[name].untyped_storage().nbytes() != stored[name].nbytes:
                stored[name] = stored[name].clone()  # a view of a larger tensor, which others may view too
    return stored, tied


def fingerprint(model: "BayesianModel") -> str:
    """Return a hash of everything that the plain network brought along."""
    digest = hashlib.sha256()
    for name, tensor in _base(model):
        digest.update(name.encode())
        for part in _in_memory(tensor.detach()):
            digest.update(part.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _in_memory(tensor: Any) -> list[Tensor]:
    """Return a tensor, or of one that is made of others, such as a weight in few bits, those."""
    if type(tensor) is Tensor or not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    return [part for name in tensor.__tensor_flatten__()[0] for part in _in_memory(getattr(tensor, name))]


def _base(model: "BayesianModel") -> Iterator[tuple[str, Tensor]]:
    added = _added(model)
    for name, parameter in model.net.named_parameters():
        # PEFT keeps the new head that a network came with beside the one that it trains, and never uses it.
        if id(parameter) not in added and ".original_module." not in name:
            yield name, parameter
    for name, buffer in model.net.named_buffers():
        # The count of batches changes nothing that a frozen norm layer does.
        if not name.endswith("num_batches_tracked") and id(buffer) not in added:
            yield name, buffer
