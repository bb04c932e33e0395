"""Sets by name, and the nearest name for a misspelt one."""

import inspect
import json

import pytest

from slimbayes.data.preparation import get_preparation
from slimbayes.data.registry import load_data, loader_of

BUNDLED = {"digits": 1797, "iris": 150, "wine": 178, "breast_cancer": 569, "diabetes": 442}


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_sets_need_no_files(name, tmp_path):
    data = load_data(name, tmp_path / "nowhere")
    assert data.name == name
    assert len(data.train) + len(data.validation) + len(data.test) == BUNDLED[name]
    spec = json.loads(json.dumps(data.preparation.spec(), allow_nan=False))
    assert get_preparation(spec).spec() == data.preparation.spec()


@pytest.mark.parametrize("name", BUNDLED)
def test_options_reach_the_loader(name):
    data = load_data(name, validation=7, test=11, seed=3)
    assert (len(data.validation), len(data.test)) == (7, 11)


@pytest.mark.parametrize(
    ("name", "nearest"), [("digit", "digits"), ("breast-cancer", "breast_cancer"), ("tables", "table")]
)
def test_an_unknown_set(name, nearest):
    with pytest.raises(ValueError, match=rf"`data.name`.*'digits', .*but got '{name}'. Did you mean '{nearest}'\?"):
        load_data(name)


@pytest.mark.parametrize(
    ("name", "option", "nearest"),
    [("iris", "validaton", "validation"), ("uci", "splits", "split"), ("table", "catgorical", "categorical")],
)
def test_an_unknown_option(name, option, nearest):
    with pytest.raises(ValueError, match=f"got '{option}'. Did you mean '{nearest}'"):
        load_data(name, **{option: 1})


@pytest.mark.parametrize("name", ["uci", "table", "arrays", *BUNDLED])
def test_loaders_take_a_folder_and_options_by_keyword(name):
    folder, *options = inspect.signature(loader_of(name)).parameters.values()
    assert folder.name == "folder"
    assert {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("name", "given", "lacking"),
    [("table", {"path": "a.csv"}, "target"), ("arrays", {}, "path"), ("image_folder", {"size": 8}, "path")],
)
def test_an_option_that_a_set_cannot_do_without(name, given, lacking):
    with pytest.raises(ValueError, match=f"`data.{lacking}`, which {name} needs"):
        load_data(name, **given)


@pytest.mark.parametrize("value", ["flase", 1, None])
def test_a_switch_is_true_or_false(value):
    with pytest.raises(ValueError, match=rf"`data.augment` to be true or false, but got {value!r}"):
        load_data("cifar10", augment=value)
