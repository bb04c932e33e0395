"""Networks by name, sized for a task."""

import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from slimbayes import nets
from slimbayes._checks import check_choice, check_count
from slimbayes.data.dataset import Task
from slimbayes.data.folders import data_folder
from slimbayes.training.config import PRETRAINED, Net

__all__ = ["NETWORKS", "build_network", "check_given", "check_network", "check_trusted"]


def _image(task: Task) -> dict[str, Any]:
    if len(task.input_shape) != 3:
        raise ValueError(
            f"Expected `net.name` to fit inputs of shape {task.input_shape}, but got one for images. Use mlp."
        )
    return {"classes": task.outputs, "channels": task.input_shape[0]}


def _lenet(task: Task, **options: Any) -> nn.Module:
    return nets.LeNet(**_image(task), size=task.input_shape[1:], **options)


def _tokens(task: Task, **options: Any) -> nn.Module:
    if task.vocabulary is None:
        raise ValueError(
            "Expected `net.name` to fit the data, but lstm reads tokens. Use series for real values, or mlp."
        )
    return nets.SequenceClassifier(task.vocabulary, outputs=task.outputs, **options)


def _series(task: Task, **options: Any) -> nn.Module:
    if len(task.input_shape) != 2:
        raise ValueError(
            f"Expected `net.name` to fit inputs of shape {task.input_shape}, but series reads (time, features)."
        )
    return nets.SeriesClassifier(task.input_shape[1], outputs=task.outputs, **options)


def _records(task: Task, **options: Any) -> nn.Module:
    if task.vocabulary is None or not task.context:
        raise ValueError("Expected `net.name` to fit the data, but records reads events: physionet2012 or mimic3.")
    return nets.RecordClassifier(task.vocabulary, task.context, outputs=task.outputs, **options)


def _mlp(task: Task, hidden: Sequence[int] | None = (100,)) -> nn.Module:
    """Return an MLP.

    Args:
        task: What is predicted.
        hidden: Width of each hidden layer.
    """
    if task.vocabulary is not None:
        raise ValueError("Expected `net.name` to fit the data, but mlp reads real values, not tokens. Use lstm.")
    return nets.MLP(math.prod(task.input_shape), hidden or [100], task.outputs)


#: By name; the function takes the task and the options, the class tells which options there are.
NETWORKS: dict[str, tuple[Callable[..., nn.Module], Callable[..., Any]]] = {
    "mlp": (_mlp, _mlp),
    "lenet": (_lenet, nets.LeNet),
    "wide_resnet": (lambda task, **options: nets.WideResNet(**_image(task), **options), nets.WideResNet),
    "cifar_resnet": (lambda task, **options: nets.CifarResNet(**_image(task), **options), nets.CifarResNet),
    "resnet4": (lambda task, **options: nets.ResNet4(**_image(task), **options), nets.ResNet4),
    "resnet50": (lambda task, **options: nets.ResNet(**_image(task), **options), nets.ResNet),
    "lstm": (_tokens, nets.SequenceClassifier),
    "series": (_series, nets.SeriesClassifier),
    "records": (_records, nets.RecordClassifier),
}
#: Options that make a network wide; `share` narrows all of them by the same factor.
WIDTHS = {
    "mlp": ["hidden"],
    "lenet": ["width"],
    "wide_resnet": ["width"],
    "cifar_resnet": ["width"],
    "resnet4": ["width"],
    "resnet50": ["width"],
    "lstm": ["embedding", "hidden"],
    "series": ["hidden"],
    "records": ["embedding", "hidden", "dense"],
}
#: Arguments that follow from the task.
SIZES = {"task", "inputs", "outputs", "classes", "channels", "size", "vocabulary", "variables", "context"}


def check_trusted(config: Net, trust: Iterable[str], where: Path) -> None:
    """Raise if a configuration that was found in a file would run code that the user has not named.

    Args:
        config: The network; those of slimbayes need no trust.
        trust: What the user has named: ``package.module:function``, or ``package.module`` for all that it defines.
        where: The file.
    """
    if ":" not in config.name or config.name in trust:
        return
    module, _, function = config.name.partition(":")
    if module in trust and getattr(getattr(_own_module(module), function, None), "__module__", None) == module:
        return
    raise ValueError(
        f"{where} asks for a network that is not one of slimbayes: {config.name}. Opening the run would run that code, "
        f"which whoever wrote the file has chosen. If you know it, name it: --trust {config.name}, in Python "
        f"Run.open(folder, trust={config.name!r}); or build the network yourself: Run.open(folder, net=net)."
    )


def check_given(config: Net, trust: Iterable[str], path: Path) -> None:
    """Raise if a configuration file of a run's or saved model's folder would run code that the user has not named.

    A file elsewhere is the user's own, who trusts it by giving it.
    """
    if any((path.parent / name).is_file() for name in ("run.json", "config.json")):
        check_trusted(config, trust, path)


def build_network(config: Net, task: Task) -> nn.Module:
    """Return a network of the right size, with torch's global generator as the source of its weights.

    Args:
        config: Its name, options and weights. A name with a colon, ``package.module:function``, is your own function;
            it is called with the options, and with ``task`` if it has an argument of that name. The others have an
            option ``share``: with K, they are as narrow as one of K members that together have the parameters of
            the network described.
        task: What is predicted.

    Example:
        >>> build_network(Net(name="mlp", hidden=[5]), Task("categorical", 3, (4,)))[-1]
        Linear(in_features=5, out_features=3, bias=True)
    """
    check_network(config)
    if ":" in config.name:
        net = _own(config.name, config.options, task)
    else:
        try:
            net = NETWORKS[config.name][0](task, **_narrowed(config, task))
        except (TypeError, RuntimeError, OverflowError) as error:
            raise ValueError(
                f"The options {config.options} of net {config.name!r} do not fit: {str(error).splitlines()[0]}. "
                "Correct them in the configuration."
            ) from error
    if config.weights is not None:
        _start_from(net, config.weights)
    return net


def check_network(config: Net) -> None:
    """Raise unless there are such a network and such options; one's own are checked when they are built."""
    if ":" in config.name:
        return
    check_choice("net.name", config.name, NETWORKS)
    known = [name for name in inspect.signature(NETWORKS[config.name][1]).parameters if name not in SIZES]
    for option in config.options:
        check_choice("net", option, [*known, "share"])
    for option in WIDTHS[config.name]:
        _check_width(f"net.{option}", config.options.get(option))


def _check_width(argument: str, value: Any) -> None:
    """Raise unless a width, or each of several, is a whole number from 1 on."""
    if value is None:
        return
    remedy = "Give whole numbers, such as [100, 100]."
    for width in value if isinstance(value, (list, tuple)) else [value]:
        check_count(argument, width, remedy=remedy)


def _narrowed(config: Net, task: Task) -> dict[str, Any]:
    """Return the options, with widths at which ``share`` networks have together the parameters of this one."""
    options = config.options
    share = options.pop("share", None)
    if share is None:
        return options
    check_count("net.share", share)
    build, signature = NETWORKS[config.name]
    defaults = inspect.signature(signature).parameters
    wide = {name: options.get(name) or defaults[name].default for name in WIDTHS[config.name]}
    widest = max(max(value) if isinstance(value, Sequence) else value for value in wide.values())

    def narrow(width: int) -> dict[str, Any]:
        def part(value: Any) -> Any:
            return [*map(part, value)] if isinstance(value, Sequence) else max(1, round(value * width / widest))

        return {**options, **{name: part(value) for name, value in wide.items()}}

    return narrow(nets.matched(lambda width: build(task, **narrow(width)), widest, share))


def _own_module(name: str) -> ModuleType:
    """Import a module that the user has named; like ``python -m``, find it in the working directory as well.

    Nothing else may look there: somebody else's run may be the working directory, beside modules of common names.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError:
        if {"", os.getcwd()} & set(sys.path):
            raise
    sys.path.append(os.getcwd())
    return import_module(name)


def _own(name: str, options: dict[str, Any], task: Task) -> nn.Module:
    module, _, function = name.partition(":")
    try:
        build = getattr(_own_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"Expected `net.name` {name!r} to be package.module:function, but {error}.") from error
    try:
        signature = inspect.signature(build)
        if "task" in signature.parameters:
            options = {**options, "task": task}
        signature.bind(**options)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The options {sorted(set(options) - {'task'})} of net {name!r} do not fit: {error}. Correct them in the "
            "configuration."
        ) from error
    net = build(**options)
    if not isinstance(net, nn.Module):
        raise ValueError(f"Expected `net.name` {name} to return a torch.nn.Module, but got {type(net).__name__}.")
    return net


def _start_from(net: nn.Module, weights: Path) -> None:
    path = weights
    if str(weights).startswith(PRETRAINED):
        path = data_folder() / "pretrained" / f"{str(weights).removeprefix(PRETRAINED)}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path} (net.weights).")
    try:
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # a damaged file raises one of many kinds, and torch advises to unpickle it
        raise ValueError(
            f"{path} (net.weights) is damaged, or holds other than tensors. Save the network's state_dict() again, "
            "best with safetensors."
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ValueError(f"{path} (net.weights) should hold a state dict, tensors by name. Save net.state_dict().")
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"The weights in {path} (net.weights) do not fit the network. {error}") from error
