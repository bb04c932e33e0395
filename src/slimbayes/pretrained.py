"""Models on disk: ``config.json`` and ``model.safetensors``; numbers and names only, so loading runs no code."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import slimbayes
from slimbayes._files import replacing
from slimbayes.conversion import exactly
from slimbayes.ensembles.refreshed import RefreshedLaw
from slimbayes.likelihoods import LIKELIHOODS, Likelihood, get_likelihood
from slimbayes.methods.registry import get_method, method_names
from slimbayes.model import BayesianModel

__all__ = ["load", "save"]

FORMAT = 1


CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save(model: BayesianModel, folder: str | Path) -> None:
    """Write a model; see ``BayesianModel.save_pretrained``.

    With ``freeze_base`` only what conversion added is written, and a fingerprint of the base.
    """
    folder = Path(folder)
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
        text.write_text(json.dumps(config, indent=2) + "\n")
        shutil.copymode(text, weights)  # safetensors makes its files unreadable for others


def _check_likelihood(likelihood: Likelihood) -> None:
    if LIKELIHOODS.get(likelihood.name) is not type(likelihood):
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
            very weights that were converted if the base was frozen. A list of them for an ensemble whose members
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
    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"No {name} in {str(folder)!r}. Give a folder that save_pretrained wrote.")
    if isinstance(net, nn.ModuleList):
        net = list(net)
    nets: list[Any] = list(net) if isinstance(net, (list, tuple)) else [net]
    for one in nets or [None]:
        if not isinstance(one, nn.Module):
            raise TypeError(f"Expected argument `net` to be a torch.nn.Module, but got {type(one).__name__}.")
    config = json.loads((folder / CONFIG).read_text())
    if config.get("format") != FORMAT or config.get("method") not in method_names():
        raise ValueError(
            f"{str(folder / CONFIG)!r} has format {config.get('format')!r} and method {config.get('method')!r}; this "
            f"version reads format {FORMAT} and {sorted(method_names())}. Update slimbayes, "
            "or import the file that registers the method."
        )
    _check_architecture(set(config["converted"]), nets[0])
    model = get_method(config["method"]).rebuild(net, include=exactly(config["converted"]), **config["options"])
    if config["likelihood"] is not None:
        model.likelihood = get_likelihood(config["likelihood"]).to(device=model.device, dtype=model.dtype)
    if device is not None:
        model.to(device)
    if config["base"] is not None and check_base and fingerprint(model) != config["base"]:
        raise ValueError(
            "Expected argument `net` to be the network whose frozen weights the factors were trained on, but its "
            "weights differ. Load those weights into it first; check_base=False loads all the same."
        )
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{str(folder / WEIGHTS)!r} is damaged: {error}. Copy or save it again.") from error
    state.update({name: state[source] for name, source in config["tied"].items()})
    for path, part in model.named_modules():
        if isinstance(part, RefreshedLaw):
            part.make_room(state, f"{path}.")
    _check_fit(state, model, set(model.state_dict()) if config["base"] is None else set(_wanted(model)))
    model.load_state_dict(state, strict=False)
    return model


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
