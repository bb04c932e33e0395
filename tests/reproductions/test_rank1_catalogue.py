"""Every table and figure of the rank-1 paper: its YAML, its configurations, and what the paper says about both."""

from functools import cache
from pathlib import Path

import pytest
import torch

import slimbayes as sb
from reproductions.evaluated import asked
from reproductions.item import read_item
from reproductions.study import read_studies
from slimbayes.data.dataset import Task
from slimbayes.training.models import build_model
from slimbayes.training.networks import build_network
from slimbayes.training.parsing import load_config

FOLDER = Path(__file__).parents[2] / "reproductions"
ITEMS = {path.stem: path for path in (FOLDER / "items").glob("rank1_*.yaml")}
ALL = read_studies(FOLDER)
#: The paper's own configurations.
STUDIES = {name: one for name, one in ALL.items() if name.startswith("rank1_")}
#: Inside scikit-learn.
BUNDLED = {"digits", "iris", "wine", "breast_cancer", "diabetes"}
TASKS = {
    "cifar10": Task("categorical", 10, (3, 32, 32)),
    "cifar100": Task("categorical", 100, (3, 32, 32)),
    "imagenet": Task("categorical", 1000, (3, 224, 224)),
}


@cache
def paper_cells(name):
    return {cell.method: cell for cell in STUDIES[name].cells("paper") if cell.seed == 0}


def paper_cell(name, method):
    return paper_cells(name)[method]


def test_every_table_and_figure_has_an_item():
    assert set(ITEMS) == {f"rank1_table_{n}" for n in range(1, 9)} | {f"rank1_figure_{n}" for n in range(1, 13)}


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_items_can_be_read_and_name_studies_that_there_are(name):
    item = read_item(ITEMS[name])
    assert item.paper == "rank-1"
    assert item.item == name.removeprefix("rank1_").replace("_", " ").capitalize()
    assert set(item.studies) | set(item.published) <= set(ALL)
    assert set(item.published) <= set(STUDIES)
    for published in item.published:
        assert list(ALL[published].scales) == ["paper", "smoke"]  # nobody starts them by accident
    for part in item.show:
        columns = part.get("columns", [])
        assert all(len(numbers) == len(columns) for numbers in part.get("paper", {}).values())


def test_every_published_configuration_is_named_by_some_item():
    items = [read_item(path) for path in ITEMS.values()]
    assert {study for item in items for study in (*item.studies, *item.published)} >= set(STUDIES)


def test_at_most_three_items_need_what_cannot_be_run_here():
    """ImageNet: a table and two figures."""
    lacking = [name for name, path in ITEMS.items() if set(read_item(path).studies) & set(STUDIES)]
    assert sorted(lacking) == ["rank1_figure_12", "rank1_figure_7", "rank1_table_1"]


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_published_run_has_a_configuration_and_a_smoke_run(name):
    one = STUDIES[name]
    assert list(one.scales) == ["paper", "smoke"]
    for scale in one.scales:
        assert one.cells(scale)
        assert not one.scale(scale).cut
        look = one.look_at(scale)
        assert look.evaluate is not None
        asked(look.evaluate)  # raises for what cannot be asked
    assert {cell.config.data.name for cell in one.cells("smoke")} <= BUNDLED


@pytest.mark.parametrize(
    ("name", "method", "parameters"),
    [
        ("rank1_cifar10", "deterministic", 36_497_146),
        ("rank1_cifar10", "deep_ensemble", 4 * 36_497_146),
        ("rank1_cifar10", "batch_ensemble", 36_575_500),
        ("rank1_cifar10", "rank1-gaussian", 36_653_824),
        ("rank1_cifar10", "rank1-cauchy", 36_653_824),
        ("rank1_cifar100", "rank1-gaussian", 36_712_504),
        ("rank1_imagenet", "deterministic", 25_610_152),
        ("rank1_imagenet", "batch_ensemble", 25_821_708),
        ("rank1_imagenet", "rank1-gaussian", 26_030_264),
    ],
)
def test_networks_of_the_paper_have_the_parameters_of_the_reference(name, method, parameters):
    assert count(name, method) == parameters


@pytest.mark.parametrize(
    ("name", "method", "millions", "digits"),
    [
        ("rank1_cifar10", "mean_field", 73, 0),
        ("rank1_cifar10", "mc_dropout", 36.5, 1),
        ("rank1_cifar100", "narrow_ensemble", 36.68, 2),
        ("rank1_imagenet", "deep_ensemble", 102.4, 1),
    ],
)
def test_networks_of_the_paper_have_about_the_parameters_it_prints(name, method, millions, digits):
    assert round(count(name, method) / 1e6, digits) == round(millions, digits)


def count(name, method):
    config = paper_cell(name, method).config
    with torch.device("meta"):
        model = build_model(config.method, lambda: build_network(config.net, TASKS[config.data.name]))
    return sb.count_parameters(model, running_statistics=True)


@pytest.mark.parametrize(
    ("name", "method", "prior_std", "dropout_rate", "sign_init", "l2"),
    [  # Tables 5 and 6
        ("rank1_cifar10", "rank1-gaussian", 0.1, 1e-3, -0.5, 1e-4),
        ("rank1_cifar10", "rank1-cauchy", 0.1, 1e-6, -0.5, 1e-4),
        ("rank1_cifar100", "rank1-gaussian", 0.1, 1e-3, -1.0, 3e-4),
        ("rank1_cifar100", "rank1-cauchy", 0.01, 1e-6, -1.0, 3e-4),
        ("rank1_imagenet", "rank1-gaussian", 0.05, 1e-3, -0.75, 1e-4),
        ("rank1_imagenet_cauchy", "rank1-cauchy", 0.005, 1e-6, -0.5, 1e-4),
    ],
)
def test_settings_are_those_of_tables_5_and_6(name, method, prior_std, dropout_rate, sign_init, l2):
    config = paper_cell(name, method).config
    options = config.method.options
    assert options.get("family", "normal") == {"rank1-gaussian": "normal", "rank1-cauchy": "cauchy"}[method]
    assert (options["members"], options["prior_std"], options["dropout_rate"]) == (4, prior_std, dropout_rate)
    assert (options.get("init", "normal"), options["init_spread"]) == ("normal", -sign_init)
    assert config.optimiser.weight_decay == pytest.approx(2 * l2)  # the penalty is l2 times the sum of squares
    images, epochs, decay, ratio, anneal, unit = (
        (128 * 32 // 4, 135, [45, 90, 120], 0.1, 90, 256)
        if "imagenet" in name
        else (64 * 8 // 4, 250, [epoch * 250 / 200 for epoch in (80, 160, 180)], 0.2, 200, 128)
    )
    assert (config.batch_size, config.epochs) == (images, epochs)
    assert (config.schedule.at, config.schedule.factor) == (decay, ratio)
    assert config.optimiser.lr == pytest.approx(0.1 * images / unit)
    assert config.annealing.fraction * epochs == pytest.approx(anneal)


@pytest.mark.parametrize("members", [1, 2, 8, 16])
def test_more_members_see_fewer_images_at_512_rows_a_step(members):
    config = paper_cell("rank1_cifar10", f"rank1-K={members}").config
    assert config.method.options["members"] == members
    assert config.batch_size * members == 512
    assert config.optimiser.lr == pytest.approx(0.1 * config.batch_size / 128)


def test_ablations_differ_from_the_gaussian_in_one_thing():
    base = paper_cell("rank1_cifar10", "rank1-gaussian").config.as_json()
    expected = {
        "rank1-input": "factors",
        "rank1-output": "factors",
        "rank1-log-normal": "family",
        "rank1-dropout-0.1": "dropout_rate",
        "rank1-dropout-0.2": "dropout_rate",
        "rank1-dropout-0.3": "dropout_rate",
    }
    for name, option in expected.items():
        found = paper_cell("rank1_cifar10", name).config.as_json()
        assert {key for key in base if base[key] != found[key]} == {"method"}
        ours, theirs = base["method"], found["method"]
        assert {key for key in ours | theirs if ours.get(key) != theirs.get(key)} == {option}
    mixture = paper_cell("rank1_cifar10", "rank1-mixture").config.as_json()
    assert {key for key in base if base[key] != mixture[key]} == {"objective"}


@pytest.mark.parametrize(
    ("name", "method", "file"),
    [
        ("rank1_mimic", "rank1-gaussian", "mimic_rank1"),
        ("rank1_mimic", "batch_ensemble", "mimic_batch_ensemble"),
        ("rank1_mimic", "rank1-cauchy", "mimic_rank1_cauchy"),
        ("rank1_mimic", "deterministic", "mimic_deterministic"),
        ("rank1_mimic", "bayesian_embeddings", "mimic_bayesian_embeddings"),
        ("rank1_mimic", "fully_bayesian", "mimic_fully_bayesian"),
    ],
)
def test_rows_of_table_4_are_the_stored_configurations(name, method, file):
    ours = paper_cell(name, method).config.as_json()
    theirs = load_config(FOLDER / "configs" / f"{file}.yaml").as_json()
    changed = {key for key in ours if ours[key] != theirs[key]}
    # Without a posterior there is no KL to anneal, and all draws are alike.
    assert changed <= ({"annealing", "evaluation"} if method in ("deterministic", "batch_ensemble") else set())


def test_table_8_repeats_rows_of_table_2():
    of_2 = read_item(ITEMS["rank1_table_2"]).show[0]["paper"]
    of_8 = [part["paper"] for part in read_item(ITEMS["rank1_table_8"]).show if "paper" in part]
    for row in ("narrow_ensemble", "deep_ensemble"):
        assert of_8[2][row] == of_2[row][:6]
    assert [number.removesuffix("%") for number in of_8[0]["rank1-normal"]] == of_2["rank1-normal"][:6]
