"""What tuning tries: keys of a configuration, and which values Optuna may suggest for each."""

import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from slimbayes.methods.registry import get_method
from slimbayes.training._option_docs import options_of
from slimbayes.training.config import Layers, Range, TrainConfig
from slimbayes.training.networks import WIDTHS

Space = Mapping[str, list[Any] | Layers | Range]

#: The scales that methods have, by the names of their options.
SCALES = {
    "prior_std": Range(low=0.03, high=1.0, log=True),
    "init_spread": Range(low=0.05, high=1.0, log=True),
    "rate": Range(low=0.01, high=0.5, log=True),
}


def default_space(config: TrainConfig) -> dict[str, list[Any] | Layers | Range]:
    """Return the learning rate, the network's widths and the method's scales, around what the configuration has.

    Example:
        >>> list(default_space(TrainConfig(data="iris", net="mlp", method="rank1")))
        ['optimiser.lr', 'net.hidden', 'method.prior_std', 'method.init_spread']
    """
    rate = config.optimiser.lr
    space: dict[str, list[Any] | Layers | Range] = {"optimiser.lr": Range(low=rate / 10, high=rate * 10, log=True)}
    for option in WIDTHS.get(config.net.name, ()):
        width = current_value(config, f"net.{option}")
        if isinstance(width, int) and width > 1:
            space[f"net.{option}"] = Range(low=max(1, width // 4), high=2 * width, log=True)
        elif isinstance(width, list) and width:
            widest = max(width)
            space[f"net.{option}"] = Layers(width=(max(1, widest // 4), 2 * widest), depth=(1, max(4, len(width))))
    for option, scale in SCALES.items():
        if option in get_method(config.method.name).options:
            value = current_value(config, f"method.{option}")
            if isinstance(value, float) and scale.low <= value <= scale.high:
                space[f"method.{option}"] = scale
    return space


def current_value(config: TrainConfig, key: str) -> Any:
    """Return what a configuration has for a key, its default if it has nothing; None if there is no such key.

    Example:
        >>> config = TrainConfig(data="iris", net="mlp", method="mc_dropout")
        >>> current_value(config, "net.hidden"), current_value(config, "method.rate"), current_value(config, "epochs")
        ([100], 0.1, 10)
    """
    value: Any = config.as_json()
    section, *rest = key.split(".")
    for step in (section, *rest):
        if not isinstance(value, dict) or step not in value:
            break
        value = value[step]
    else:
        return value
    if section not in ("data", "net", "method") or len(rest) != 1:
        return None
    for option in options_of(section, getattr(config, section).name):
        if option.name == rest[0] and option.default is not inspect.Parameter.empty:
            return list(option.default) if isinstance(option.default, tuple) else option.default
    return None


def suggest(trial: Any, space: Space, before: Callable[[int], None]) -> dict[str, Any]:
    """Return the values that a trial of Optuna has for the keys of a space.

    Args:
        trial: Suggests them, or remembers what it has suggested.
        space: What may be suggested.
        before: Called before each suggestion with its number.
    """
    values: dict[str, Any] = {}
    number = 0

    def whole(name: str, low: int, high: int, log: bool) -> int:
        nonlocal number
        before(number)
        number += 1
        return int(trial.suggest_int(name, low, high, log=log))

    for key, tried in space.items():
        if isinstance(tried, Layers):
            width = whole(f"{key}.width", *tried.width, log=True)
            values[key] = [width] * whole(f"{key}.depth", *tried.depth, log=False)
        elif isinstance(tried, Range) and isinstance(tried.low, int) and isinstance(tried.high, int):
            values[key] = whole(key, tried.low, tried.high, log=tried.log)
        else:
            before(number)
            number += 1
            if isinstance(tried, Range):
                values[key] = trial.suggest_float(key, tried.low, tried.high, log=tried.log)
            else:
                values[key] = json.loads(trial.suggest_categorical(key, [*map(json.dumps, tried)]))
    return values


def parameters_of(config: TrainConfig, space: Space) -> dict[str, Any]:
    """Return Optuna's parameters under which a trial has a configuration's own values, where the space has them.

    Example:
        >>> config = TrainConfig(data="iris", net={"name": "mlp", "hidden": [50, 50]})
        >>> parameters_of(config, {"net.hidden": Layers(width=(20, 100)), "epochs": [5, 20]})
        {'net.hidden.width': 50, 'net.hidden.depth': 2}
    """
    found: dict[str, Any] = {}
    for key, tried in space.items():
        value = current_value(config, key)
        if isinstance(tried, Layers):
            if isinstance(value, list) and len(set(value)) == 1:
                (low, high), (least, most) = tried.width, tried.depth
                if low <= value[0] <= high and least <= len(value) <= most:
                    found |= {f"{key}.width": value[0], f"{key}.depth": len(value)}
        elif isinstance(tried, Range):
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if number and tried.low <= value <= tried.high:
                found[key] = value
        elif value in tried:
            found[key] = json.dumps(value)
    return found


def extremes(tried: list[Any] | Layers | Range) -> list[Any]:
    """Return values of a key that show whether all are possible.

    Example:
        >>> extremes(Layers(width=(8, 16), depth=(1, 2)))
        [[8], [16, 16]]
    """
    if isinstance(tried, Layers):
        return [[width] * depth for width, depth in zip(tried.width, tried.depth, strict=True)]
    return [tried.low, tried.high] if isinstance(tried, Range) else tried
