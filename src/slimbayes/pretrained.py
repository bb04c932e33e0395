"""Models on disk: ``config.json`` and ``model.safetensors``; numbers and names only, so loading runs no code."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from slimbayes._checks import check_count
from slimbayes._files import read_json, sha256_of
from slimbayes._saving import CONFIG, FORMAT, WEIGHTS, added_state, as_folder, fingerprint, save
from slimbayes.conversion import exactly
from slimbayes.ensembles._refreshed_posterior import RefreshedPosterior
from slimbayes.likelihoods import Function, get_likelihood
from slimbayes.methods.registry import get_method, method_names
from slimbayes.model import BayesianModel

__all__ = ["load", "restore", "save"]


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
    folder = as_folder(folder)
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
        options = dict(config["options"])
        if options.get("train"):
            options["train"] = exactly(options["train"])
        model = get_method(config["method"]).rebuild(net, include=exactly(config["converted"]), **options)
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
    _fill(model, config, state, folder, check_base)
    return model


def restore(folder: str | Path, model: BayesianModel, check_base: bool = True) -> None:
    """Read what ``save_pretrained`` wrote into a model that was converted in the same way, such as the one it was.

    Args:
        folder: The folder.
        model: The model, whose optimiser may hold its parameters: they stay the same objects.
        check_base: Make sure that a frozen base is the one that the factors were trained on.

    Example:
        >>> import slimbayes as sb, tempfile
        >>> model, other = (sb.rank1(nn.Linear(8, 3)) for _ in range(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_pretrained(folder)
        ...     restore(folder, other)
        >>> torch.equal(other.net.input_factor.loc, model.net.input_factor.loc)
        True
    """
    folder = as_folder(folder)
    config = _config(folder / CONFIG)
    state = _state(folder / WEIGHTS, config)
    made = {"method": model.method, "converted": sorted(model.summary().converted)}
    stored = {"method": config["method"], "converted": sorted(config["converted"])}
    if made != stored:
        raise ValueError(
            f"Expected argument `model` to be converted as the one in {str(folder)!r} was, by {stored['method']} and "
            f"{len(stored['converted'])} layers, but got {made['method']} and {len(made['converted'])}. "
            "Convert it in the same way, or use sb.load(folder, net)."
        )
    _fill(model, config, state, folder, check_base)


def _fill(
    model: BayesianModel, config: dict[str, Any], state: dict[str, Tensor], folder: Path, check_base: bool
) -> None:
    """Put a stored state into a model, or raise if it is another one's."""
    if config["base"] is not None and check_base and fingerprint(model) != config["base"]:
        raise ValueError(
            "Expected argument `net` to be the network whose frozen weights the factors were trained on, but its "
            "weights differ. Load those weights into it first; check_base=False loads all the same."
        )
    for path, part in model.named_modules():
        if isinstance(part, RefreshedPosterior):
            part.make_room(state, f"{path}.")
    _check_fit(state, model, set(model.state_dict()) if config["base"] is None else set(added_state(model)))
    _warn_of_dtypes(state, model, folder / WEIGHTS)
    model.load_state_dict(state, strict=False)


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
