"""Configurations as YAML with comments, and the JSON schema for editors."""

import itertools
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from reproductions.study import read_study
from slimbayes.training._option_docs import names_of, options_of
from slimbayes.training.commented import commented_yaml
from slimbayes.training.config import TrainConfig
from slimbayes.training.parsing import load_config, parse_config, read_yaml
from slimbayes.training.schema import FIRST_LINE, json_schema

ROOT = Path(__file__).parent.parent.parent
CASES = {
    "little": {"data": "digits", "net": "mlp"},
    "sections": {
        "data": {"name": "table", "path": "/a, b/c: d.csv", "target": "#y", "ignore": ["no", "1"], "seed": None},
        "net": {"name": "mlp", "hidden": [20, 20]},
        "method": {"name": "k_tied", "k": 3},
        "likelihood": {"name": "gaussian", "noise": "predicted"},
        "optimiser": "sgd",
        "schedule": {"name": "step", "at": [5, 8]},
        "steps": 50,
        "evaluation": {"test": False},
        "tune": {"trials": 5, "space": {"optimiser.lr": {"low": 1e-5, "high": 1e-2, "log": True}, "net.hidden": [[5]]}},
    },
    "own network": {"data": "digits", "net": {"name": "package.module:build", "depth": 3}},
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_as_the_same_configuration(name, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(commented_yaml(CASES[name], "Of a test."))
    config = load_config(path)
    expected = parse_config(CASES[name])
    assert config.as_json() == expected.as_json()
    if expected.tune:
        assert config.tune == expected.tune
    assert path.read_text().splitlines()[0] == FIRST_LINE


def test_every_key_has_an_explanation_and_its_default_can_be_set(tmp_path):
    """With all # before keys removed, it says explicitly what was the case."""
    content = {"data": "iris", "net": "mlp", "method": "mc_dropout"}
    lines = commented_yaml(content).splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r" *#?\w+: ", line):
            assert before.lstrip().startswith("# "), line
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(re.sub(r"^( *)#(?! )", r"\1", line) for line in lines))
    full, config = load_config(path), parse_config(content)
    keys = yaml.safe_load(path.read_text())
    assert keys.keys() == TrainConfig.model_fields.keys()
    assert keys["method"].keys() == {"name"} | {option.name for option in options_of("method", "mc_dropout")}
    for section in keys.keys() - {"data", "net", "method", "tune"}:
        assert full.as_json()[section] == config.as_json()[section]


def test_every_key_of_every_section_is_explained():
    fields = [field for field in TrainConfig.model_fields.values() if not field.description]
    assert not fields
    for section in ("data", "net", "method"):
        for name in names_of(section):
            unexplained = [option.name for option in options_of(section, name) if not option.text]
            assert not unexplained, f"{section} {name}"


# ---------------------------------------------------------------------- the schema


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(json.dumps(json_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def stored():
    """Yield the YAML of tests, documents and reproductions that configurations and grids are."""
    for path in sorted(ROOT.glob("reproductions/**/*.yaml")):
        content = read_yaml(path)
        if path.parent.name == "items":  # what a page shows
            continue
        if path.parent.name == "studies":  # grids with keys of their own, of other studies too
            study = read_study(path)
            content = {"base": study.base, "methods": study.methods or [], "overrides": study.overrides}
        yield pytest.param(content, id=path.name)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
            content = yaml.safe_load(text)
            if "scales" not in content and {"data", "base"} & content.keys():
                yield pytest.param(content, id=page.name)


@pytest.mark.parametrize("content", [*stored()])
def test_the_yaml_of_the_repository_fits(content, validator):
    errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content)]
    assert not errors


def test_what_init_writes_fits(validator):
    for content in CASES.values():
        validator.validate(yaml.safe_load(commented_yaml(content)))


WRONG = [
    {"data": "digts", "net": "mlp"},
    {"data": "digits"},
    {"data": "digits", "net": {"name": "mlp", "hiden": [3]}},
    {"data": "digits", "net": "mlp", "method": {"name": "k_tied", "members": 3}},
    {"data": "digits", "net": "mlp", "epoch": 3},
    {"data": "digits", "net": "mlp", "optimiser": {"lr": -1}},
    {"base": {"data": "digits", "net": "mlp"}, "seed": 3},
]


@pytest.mark.parametrize("content", WRONG, ids=str)
def test_what_training_refuses_does_not_fit(content, validator):
    assert not validator.is_valid(content)
