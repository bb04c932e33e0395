"""A run and an evaluation know the data that they are of."""

import json
import warnings

import numpy as np
import pytest
import torch

from slimbayes.data.dataset import DataSet, Examples, Rows, Task
from slimbayes.data.fingerprint import differences, fingerprint
from slimbayes.evaluation import evaluate, load_subject
from slimbayes.evaluation.settings import Settings
from slimbayes.training import Run, fit
from slimbayes.training.config import TrainConfig

FEW = Settings(corruptions="none", resamples=0)


def toy(values, targets, rows=None):
    examples = Examples((torch.tensor(values),), torch.tensor(targets))
    train = examples if rows is None else Rows(examples, torch.tensor(rows))
    return DataSet("toy", train, None, None, Task("gaussian", 1, (1,)))


def test_each_value_type_order_and_target_counts():
    first = fingerprint(toy([[1.0], [2.0]], [0.0, 1.0]))
    assert fingerprint(toy([[1.0], [2.0]], [0.0, 1.0])) == first
    assert fingerprint(toy([[1.0], [2.0]], [0.0, 1.0], rows=[0, 1])) == first
    for other in (
        toy([[1.0], [2.0000002]], [0.0, 1.0]),
        toy([[2.0], [1.0]], [0.0, 1.0]),
        toy([[1.0], [2.0]], [0.0, 2.0]),
        toy([[1], [2]], [0.0, 1.0]),
        toy([[1.0], [2.0]], [0.0, 1.0], rows=[1, 0]),
    ):
        assert differences(first, fingerprint(other), {}, {}) == ["the values of train differ"]


def test_parts_that_come_and_go_and_other_shapes_are_named():
    first = fingerprint(toy([[1.0], [2.0]], [0.0, 1.0]))
    examples = Examples((torch.tensor([[1.0], [2.0]]),), torch.tensor([0.0, 1.0]))
    more = fingerprint(DataSet("toy", examples, examples, None, Task("gaussian", 1, (1,))))
    assert differences(first, more, {}, {}) == ["there was no validation part"]
    assert differences(more, first, {}, {}) == ["the validation part is gone"]
    wide = fingerprint(DataSet("toy", examples, None, None, Task("gaussian", 1, (2,))))
    assert differences(first, wide, {}, {}) == ["an example had the shape [1], now [2]"]


def table(columns, rows, scale=1.0, seed=0):
    values = scale * np.random.default_rng(seed).normal(size=(rows, len(columns)))
    lines = [",".join(columns), *(",".join(f"{value:.6f}" for value in row) for row in values)]
    return "\n".join(lines) + "\n"


CONFIG = {"data": {"name": "table", "path": "t.csv", "target": "y"}, "net": {"name": "mlp", "hidden": [4]}, "epochs": 1}
CHANGES = {
    "other values": (table("abdy", 60, scale=1000.0, seed=1), ["the values of train differ"]),
    "more rows": (table("abdy", 90), ["train had 42 rows, now 63"]),
    "a column of another name": (table("abey", 60), ["the column 'd' is gone", "the column 'e' is new"]),
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(table("abdy", 60))
    return fit(CONFIG, "run", quiet=True)


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_is_not_continued_or_evaluated_on_other_data(run, tmp_path, name):
    text, words = CHANGES[name]
    (tmp_path / "t.csv").write_text(text)
    before = (run.folder / "run.json").read_text()
    for call in (lambda: fit({**CONFIG, "epochs": 2}, "run", resume=True, quiet=True), lambda: load_subject("run")):
        with pytest.raises(ValueError, match=r"trained on other data: of t\.csv") as caught:
            call()
        assert all(word in str(caught.value) for word in words)
        assert "train in another folder" in str(caught.value)
    assert (run.folder / "run.json").read_text() == before
    assert run.result["epochs"] == 1


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Return a function that writes a table whose categories, classes and targets have other names or units."""
    monkeypatch.chdir(tmp_path)

    def write(pets=("cat", "dog"), yes="yes", unit=1.0):
        rows = [f"{row % 7},{pets[row % 2]},{unit * (row % 13 + 0.25)},{yes if row % 3 else 'no'}" for row in range(60)]
        (tmp_path / "t.csv").write_text("\n".join(["n,pet,cost,kind", *rows]) + "\n")

    write()
    return write


NAMED = {
    "classes": ("kind", {"yes": "yup"}, "the classes: .*'yes'.*, now .*'yup'"),
    "units of the target": ("cost", {"unit": 1024.0}, r"the mean of the training targets: \d\.\d+, now \d{4}\."),
    "units of an input": ("kind", {"unit": 1024.0}, "they are prepared in another way"),
    "categories": ("kind", {"pets": ("cow", "dog")}, "they are prepared in another way"),
}


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("name", NAMED)
def test_names_and_units_count_though_the_network_gets_the_same_numbers(named, name, epochs):
    """Of a run that is finished, too: its scores would be taken for those of the data that are there now."""
    target, changes, words = NAMED[name]
    config = {**CONFIG, "data": {**CONFIG["data"], "target": target}}
    fit(config, "run", quiet=True)
    assert fit(config, "run", resume=True, quiet=True).result["epochs"] == 1
    named(**changes)
    with pytest.raises(ValueError, match=rf"was trained on other data: of .*t\.csv.*{words}"):
        fit({**config, "epochs": epochs}, "run", resume=True, quiet=True)


@pytest.mark.parametrize("name", NAMED)
def test_nor_is_the_evaluation_of_a_saved_model_continued(named, name):
    target, changes, words = NAMED[name]
    config = TrainConfig(**{**CONFIG, "data": {**CONFIG["data"], "target": target}})
    fit(config, "run", quiet=True).model().save_pretrained("saved")
    for _ in range(2):
        evaluate([load_subject("saved", config=config)], FEW)
    named(**changes)
    with pytest.raises(ValueError, match=rf"evaluation\.json belongs to another evaluation: of the data, {words}"):
        evaluate([load_subject("saved", config=config)], FEW)


def test_a_finished_run_needs_no_data(run, tmp_path):
    (tmp_path / "t.csv").unlink()
    assert fit(CONFIG, "run", resume=True, quiet=True).result["epochs"] == 1


def test_the_same_data_go_on_and_old_runs_get_a_warning(run):
    fit({**CONFIG, "epochs": 2}, "run", resume=True, quiet=True)
    about = json.loads((run.folder / "run.json").read_text())
    del about["data"], about["checksum"]
    (run.folder / "run.json").write_text(json.dumps(about))
    with pytest.warns(UserWarning, match="has no fingerprint of its data"):
        assert fit({**CONFIG, "epochs": 3}, "run", resume=True, quiet=True).result["epochs"] == 3


def test_a_stored_evaluation_is_not_continued_on_other_data(run, tmp_path):
    evaluate([load_subject("run")], FEW)
    stored = json.loads((run.folder / "evaluation.json").read_text())
    assert stored["fingerprint"] == Run("run").about["data"]
    stored["fingerprint"]["parts"]["test"]["sha256"] = "0"
    (run.folder / "evaluation.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match="of the data, the values of test differ.*--fresh"):
        evaluate([load_subject("run")], FEW)
    evaluate([load_subject("run")], FEW, fresh=True)
    del stored["fingerprint"]
    (run.folder / "evaluation.json").write_text(json.dumps(stored))
    with pytest.warns(UserWarning, match="evaluation.json has no fingerprint"):
        evaluate([load_subject("run")], FEW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_subject("run")
