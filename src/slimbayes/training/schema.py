"""A JSON schema of configurations and grids, for editors."""

import inspect
import json
from typing import Any

from pydantic.json_schema import models_json_schema

from slimbayes.training._grid_file import Grid
from slimbayes.training._option_docs import names_of, options_of
from slimbayes.training.config import Data, Method, Net, TrainConfig

__all__ = ["FIRST_LINE", "SCHEMA_FILE", "json_schema"]

#: The file that YAML files refer to, beside them.
SCHEMA_FILE = "slimbayes.schema.json"
#: The first line of a YAML file, which editors read.
FIRST_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}"


def json_schema() -> dict[str, Any]:
    """Return the schema of what ``slimbayes train`` reads: a configuration, or a grid if there is the key ``base``.

    Example:
        >>> schema = json_schema()
        >>> schema["else"]["$ref"], schema["$defs"]["Optimiser"]["properties"]["lr"]["default"]
        ('#/$defs/TrainConfig', 0.001)
    """
    _, schema = models_json_schema([(TrainConfig, "validation"), (Grid, "validation")])
    sections = schema["$defs"]
    for section, model in {"data": Data, "net": Net, "method": Method}.items():
        own = sections[model.__name__]
        own["allOf"] = [_then(section, name, own["properties"]) for name in names_of(section)]
        names: dict[str, Any] = {"type": "string", "enum": names_of(section)}
        if section == "net":
            names = {"anyOf": [names, {"type": "string", "pattern": "^[^:]+:[^:]+$"}]}
        own["properties"]["name"] |= names
        own["properties"]["name"].pop("type", None)
        shorthand = sections["TrainConfig"]["properties"][section]["anyOf"]
        shorthand[:] = [names if one.get("type") == "string" else one for one in shorthand]
    sections["Grid"]["properties"]["base"]["anyOf"] = [{"type": "string"}, {"$ref": "#/$defs/TrainConfig"}]
    del sections["Grid"]["properties"]["base"]["type"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "slimbayes",
        **schema,
        "if": {"required": ["base"]},
        "then": {"$ref": "#/$defs/Grid"},
        "else": {"$ref": "#/$defs/TrainConfig"},
    }


def _then(section: str, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return what holds if a section has this name: which further keys there are."""
    options = {}
    for option in options_of(section, name):
        options[option.name] = {"description": option.text}
        if option.default is not inspect.Parameter.empty:
            options[option.name]["default"] = json.loads(json.dumps(option.default, default=str))
    own: dict[str, Any] = dict.fromkeys(known, True)
    return {
        "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
        "then": {"properties": own | options, "additionalProperties": False},
    }
