"""Models on disk: ``config.json`` and ``model.safetensors``; numbers and names only, so loading runs no code."""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import slimbayes
from slimbayes._checks import check_count
from slimbayes._files import read_json, replacing, sha256_of, with_checksum
from slimbayes.conversion import exactly
from slimbayes.ensembles._refreshed_posterior import RefreshedPosterior
from slimbayes.likelihoods import LIKELIHOODS, Function, Likelihood, get_likelihood
from slimbayes.methods.registry import get_method, method_names
from slimbayes.model import BayesianModel

__all__ = ["load", "save"]

FORMAT = 1


CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save(model: BayesianModel, folder: str | Path) -> None:
    """Write a model; see ``BayesianModel.save_pretrained``.

    With ``freeze_base`` only what conversion added is written, and a fingerprint of the base.
    """
    folder = _folder(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected argument `folder` to be a folder, but {str(folder)!r} is a file. Give another.")
    if model.likelihood is not None:
        _check_likelihood(model.likelihood)
    frozen = model.options["freeze_base"]
    stored, tied = _without_duplicates(_wanted(model) if frozen else model.state_dict())
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


def _folder(folder: str | Path) -> Path:
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


def _wanted(model: BayesianModel) -> dict[str, Tensor]:
    """Return what a model with a frozen base adds to it."""
    added = _added(model)
    if model.likelihood is not None:
        added.update(map(id, model.likelihood.parameters()))
    return {name: tensor.detach() for name, tensor in model.state_dict(keep_vars=True).items() if id(tensor) in added}


def _added(model: BayesianModel) -> set[int]:
    """Return the ids of the tensors that conversion added: parameters, and what random parts have collected."""
    collected = (buffer for part in model.stochastic() for buffer in part.buffers())
    return {id(tensor) for tensors in (model.added_parameters(), collected) for tensor in tensors}


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
        place = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,)
        if place in first:
            tied[name] = first[place]
        else:
            first[place] = name
            stored[name] = tensor.detach().cpu().contiguous()
            if stored[name].untyped_storage().nbytes() != stored[name].nbytes:
                stored[name] = stored[name].clone()  # a view of a larger tensor, which others may view too
    return stored, tied


def fingerprint(model: BayesianModel) -> str:
    """Return a hash of everything that the plain network brought along."""
    digest = hashlib.sha256()
    for name, tensor in _base(model):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _base(model: BayesianModel) -> Iterator[tuple[str, Tensor]]:
    added = _added(model)
    for name, parameter in model.net.named_parameters():
        if id(parameter) not in added:
            yield name, parameter
    for name, buffer in model.net.named_buffers():
        # The count of batches changes nothing that a frozen norm layer does.
        if not name.endswith("num_batches_tracked") and id(buffer) not in added:
            yield name, buffer


def load(
    folder: str | Path, net: nn.Module | Sequence[nn.Module], device: Any = None, check_base: bool = True
) -> BayesianModel:
    """Rebuild a model that ``save_pretrained`` wrote.

    Args:
        folder: The folder.
        net: The plain network of the same architecture: with any weights if they were saved too, with the
            very weights that were converted if the base was frozen. The model has its dtype; a warning tells if the
            file has another one. A list of them for an ensemble whose members
            differ in architecture.
        device: Where to put the model; None for where ``net`` is.
        check_base: Make sure that a frozen base is the one that the factors were trained on.

    Example:
        >>> import slimbayes as sb, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sb.rank1(nn.Linear(8, 3)).save_pretrained(folder)
        ...     model = load(folder, nn.Linear(8, 3))
        >>> model.members
        4
    """
    folder = _folder(folder)
    if device is not None:
        try:
            torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"Expected argument `device` to be one such as 'cpu' or 'cuda', but got {device!r}."
            ) from error
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"No {name} in {str(folder)!r}. Give a folder that save_pretrained wrote.")
    if isinstance(net, nn.ModuleList):
        net = list(net)
    nets: list[Any] = list(net) if isinstance(net, (list, tuple)) else [net]
    for one in nets or [None]:
        if not isinstance(one, nn.Module):
            raise TypeError(f"Expected argument `net` to be a torch.nn.Module, but got {type(one).__name__}.")
    config = _config(folder / CONFIG)
    state = _state(folder / WEIGHTS, config)
    _check_members(folder, config["options"].get("members", 1), state)
    _check_architecture(set(config["converted"]), nets[0])
    try:
        model = get_method(config["method"]).rebuild(net, include=exactly(config["converted"]), **config["options"])
        if config["likelihood"] is not None:
            stored = config["likelihood"]
            likelihood = Function(None, stored["function"]) if "function" in stored else get_likelihood(stored)
            model.likelihood = likelihood.to(device=model.device, dtype=model.dtype)
    except (TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{folder / CONFIG} does not describe a model of method {config['method']!r}: "
            f"{str(error).splitlines()[0]}. Update slimbayes, or save the model again."
        ) from error
    if device is not None:
        model.to(device)
    if config["base"] is not None and check_base and fingerprint(model) != config["base"]:
        raise ValueError(
            "Expected argument `net` to be the network whose frozen weights the factors were trained on, but its "
            "weights differ. Load those weights into it first; check_base=False loads all the same."
        )
    for path, part in model.named_modules():
        if isinstance(part, RefreshedPosterior):
            part.make_room(state, f"{path}.")
    _check_fit(state, model, set(model.state_dict()) if config["base"] is None else set(_wanted(model)))
    _warn_of_dtypes(state, model, folder / WEIGHTS)
    model.load_state_dict(state, strict=False)
    return model


def _config(path: Path) -> dict[str, Any]:
    """Return what ``save`` wrote about a model, or raise an error that names the file."""
    remedy = "Copy it or save the model again."
    config = read_json(path, remedy)
    if config.get("format") != FORMAT or config.get("method") not in method_names():
        raise ValueError(
            f"{str(path)!r} has format {config.get('format')!r} and method {config.get('method')!r}; this "
            f"version reads format {FORMAT} and {sorted(method_names())}. Update slimbayes, "
            "or import the file that registers the method."
        )
    kinds: dict[str, Any] = {
        "options": dict,
        "converted": list,
        "likelihood": (dict, type(None)),
        "tied": dict,
        "base": (str, type(None)),
    }
    for key, kind in kinds.items():
        if key not in config or not isinstance(config[key], kind):
            raise ValueError(f"{path} is damaged: {key!r} is {config.get(key)!r}. {remedy}")
    if not all(isinstance(name, str) for name in (*config["converted"], *config["tied"].values())):
        raise ValueError(f"{path} is damaged: `converted` and `tied` should hold names. {remedy}")
    return config


def _state(path: Path, config: dict[str, Any]) -> dict[str, Tensor]:
    """Return the stored tensors; raise if they are not what was written."""
    if config.get("sha256") not in (None, sha256_of(path)):  # files of before 0.1 have no checksum
        raise ValueError(
            f"{str(path)!r} is damaged, or not the file that belongs to {CONFIG}: its SHA-256 is not the stored one. "
            "Copy or save it again."
        )
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}. Copy or save it again.") from error
    for name, source in config["tied"].items():
        if source not in state:
            raise ValueError(
                f"{path.with_name(CONFIG)} ties {name} to {source!r}, which {WEIGHTS} lacks. Save it again."
            )
        state[name] = state[source]
    return state


def _check_members(folder: Path, members: Any, state: dict[str, Tensor]) -> None:
    """Raise before so many members are built if the file has other ones: each has tensors or rows of its own."""
    check_count(f"members in {folder / CONFIG}", members, remedy="Save the model again.")
    networks = {name.split(".")[2] for name in state if name.startswith("net.networks.")}
    if members > 1 and members not in {len(networks), *(x.shape[0] for x in state.values() if x.dim())}:
        raise ValueError(
            f"{folder / CONFIG} has {members} members, but {WEIGHTS} beside it has weights of no such number. Save the "
            "model again."
        )


def _warn_of_dtypes(state: dict[str, Tensor], model: BayesianModel, path: Path) -> None:
    own = model.state_dict()
    for name, tensor in state.items():
        theirs, ours = (str(one.dtype).removeprefix("torch.") for one in (tensor, own[name]))
        if theirs != ours and tensor.is_floating_point() and own[name].is_floating_point():
            warnings.warn(
                f"The weights in {str(path)!r} are stored in {theirs}, but the given `net` is {ours}: the model "
                f"computes in {ours}, so that its predictions differ. Give net.to(torch.{theirs}) for those that were "
                "saved.",
                stacklevel=3,
            )
            return


def _check_architecture(names: set[str], net: nn.Module) -> None:
    missing = sorted(names - {name for name, _ in net.named_modules()})
    if missing:
        raise ValueError(
            f"Expected argument `net` to be the saved architecture, but it lacks {', '.join(missing[:5])}. "
            "Build the network as it was when the model was converted."
        )


def _check_fit(state: dict[str, Tensor], model: BayesianModel, wanted: set[str]) -> None:
    own = model.state_dict()
    for name in sorted(wanted | set(state)):
        ours, theirs = (tuple(tensors[name].shape) if name in tensors else None for tensors in (own, state))
        if ours != theirs:
            found = "has none" if ours is None else f"has one of shape {ours}"
            stored = "none" if theirs is None else f"one of shape {theirs}"
            raise ValueError(
                f"Expected argument `net` to be the saved architecture, but of {name} the file has {stored} and the "
                f"network {found}. Build the network as it was when the model was converted."
            )
        if _kind(own[name]) != _kind(state[name]):
            raise ValueError(
                f"Expected {name} to be {own[name].dtype}, as the network has it, but the file has "
                f"{state[name].dtype}: numbers would be cut off. Save the model again, with the network's type."
            )


def _kind(x: Tensor) -> str:
    return "real" if x.is_floating_point() else "complex" if x.is_complex() else "whole"
