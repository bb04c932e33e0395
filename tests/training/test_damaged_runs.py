"""Each damaged file of a run is one clear line that names the file; nothing is read from it silently."""

import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from training_runs import small
from typer.testing import CliRunner

from slimbayes.cli.app import app
from slimbayes.training import Run, fit
from slimbayes.training.predicting import predict_file


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    fit(small(epochs=1, net={"name": "mlp", "hidden": [4]}), folder / "run", quiet=True)
    np.save(folder / "x.npy", np.zeros((2, 1, 8, 8), np.float32))
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    shutil.copy(trained / "x.npy", tmp_path)
    return Run(tmp_path / "run")


def config_of_model(**changes):
    def damage(run):
        path = run.checkpoints.path() / "config.json"
        content = json.loads(path.read_text())
        del content["checksum"]  # somebody knows about it
        for key, value in changes.items():
            content[key] = {**content[key], **value} if isinstance(content[key], dict) and value else value
        path.write_text(json.dumps(content))

    return damage


def text(name, content):
    def damage(run):
        path = run.checkpoints.path() / "config.json" if name == "config.json" else run.folder / name
        path.write_text(content)

    return damage


def flip_a_bit(run):
    path = run.checkpoints.path() / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(content)


def rewritten(change, checksum=False):
    """Return a damage: other tensors, with or without the checksum of what was there."""

    def damage(run):
        path = run.checkpoints.path() / "model.safetensors"
        save_file({name: change(x) for name, x in load_file(path).items()}, path)
        if not checksum:
            config_of_model(sha256=None)(run)

    return damage


def cut(run):
    path = run.checkpoints.path() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:200])
    config_of_model(sha256=None)(run)


def index(**changes):
    def damage(run):
        path = run.checkpoints.folder / "index.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "checksum": None, **changes}))

    return damage


def stored_task(**changes):
    def damage(run):
        path = run.folder / "run.json"
        content = json.loads(path.read_text())
        content["task"].update(changes)
        path.write_text(json.dumps({**content, "checksum": None}))

    return damage


def without(name):
    def damage(run):
        (run.folder / name).unlink()

    return damage


def without_checkpoint(run):
    shutil.rmtree(run.checkpoints.path())


#: What is done to a run, and words that the error has: the file and the remedy.
DAMAGED = {
    "a flipped bit": (flip_a_bit, ["model.safetensors", "SHA-256", "Copy or save it again"]),
    "other weights under the checksum": (rewritten(lambda x: x + 1, True), ["model.safetensors", "SHA-256"]),
    "whole numbers": (rewritten(lambda x: x.int()), ["run/checkpoints/epoch-", "torch.int32", "Save the model again"]),
    "complex numbers": (rewritten(lambda x: x.to(torch.complex64)), ["epoch-", "torch.complex64", "Save the model"]),
    "weights that are NaN": (
        rewritten(lambda x: x * float("nan")),
        ["model of", "run cannot", "weights are to blame", "is not finite", "again"],
    ),
    "weights of another shape": (rewritten(lambda x: torch.cat([x, x], -1)), ["epoch-", "shape", "as it was"]),
    "weights cut off": (cut, ["model.safetensors", "damaged", "Copy or save it again"]),
    "an unknown option": (config_of_model(options={"colour": 1}), ["config.json", "colour", "again"]),
    "converted null": (config_of_model(converted=None), ["config.json", "'converted'", "again"]),
    "no options": (config_of_model(options=None), ["config.json", "'options'", "again"]),
    "a dangling tie": (config_of_model(tied={"a": "b"}), ["config.json", "'b'", "Save it again"]),
    "a list for a configuration": (text("config.json", "[1, 2]"), ["config.json", "holds [1, 2]", "again"]),
    "a billion members": (config_of_model(options={"members": 10**9}), ["config.json", "1000000000 members", "again"]),
    "members as words": (config_of_model(options={"members": "four"}), ["config.json", "'four'", "again"]),
    "an unknown likelihood": (config_of_model(likelihood={"name": "guess"}), ["epoch-", "'guess'", "categorical"]),
    "an unknown family": (config_of_model(options={"family": "os:system"}), ["epoch-", "`family`", "'os:system'"]),
    "no layer that is converted": (config_of_model(converted=[]), ["epoch-", "a layer to convert"]),
    "a broken config.json": (text("config.json", '{"a": '), ["config.json", "not JSON", "again"]),
    "an empty run.json": (text("run.json", "{}"), ["run.json", "'task'", "again"]),
    "a broken run.json": (text("run.json", "{"), ["run.json", "not JSON", "again"]),
    "a damaged task": (text("run.json", '{"task": {}, "preparation": {}}'), ["run.json", "`task`", "again"]),
    "no run.json": (without("run.json"), ["There is no file", "run.json", "Copy the run again"]),
    "fewer classes than outputs": (stored_task(classes=["a"]), ["run.json", "10 outputs, but 1 classes", "again"]),
    "no outputs": (stored_task(outputs=0), ["run.json", "`outputs`", "again"]),
    "a shape of letters": (stored_task(input_shape="abc"), ["run.json", "`input_shape`", "'a'", "again"]),
    "a task of its own": (stored_task(likelihood="os:system"), ["run.json", "`likelihood`", "'os:system'", "again"]),
    "a scale that is NaN": (stored_task(target_std=float("nan")), ["run.json", "`target_std`", "nan", "again"]),
    "an index whose score is a word": (index(nll="low"), ["index.json", "`nll` is 'low'", "again"]),
    "an index with another key": (index(colour=1), ["index.json", "colour", "again"]),
    "an index without a key": (text("checkpoints/index.json", '{"last": "a"}'), ["index.json", "'best'", "again"]),
    "a broken index": (text("checkpoints/index.json", "last: a"), ["index.json", "not JSON", "again"]),
    "no checkpoint": (without_checkpoint, ["epoch-00001", "index.json", "Copy the run again"]),
    "a broken config.yaml": (text("config.yaml", "data: [digits"), ["config.yaml", "not YAML", "Correct the file"]),
    "a broken result.json": (text("result.json", ""), ["result.json", "not JSON", "train with --resume"]),
    "nested deep": (text("config.yaml", "[" * 5000), ["config.yaml", "nested too deep", "Give a configuration"]),
}


def test_there_are_many():
    assert len(DAMAGED) >= 10


@pytest.mark.parametrize("name", DAMAGED)
def test_predict_says_which_file_and_what_to_do(run, name):
    damage, words = DAMAGED[name]
    damage(run)
    result = CliRunner().invoke(app, ["predict", str(run.folder), str(run.folder.parent / "x.npy")])
    told = " ".join(result.stderr.split())
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (2, True), result.exception
    assert [word for word in words if word not in told] == [], told


@pytest.mark.parametrize("content", [b"\xff\xfe\x00\n", b"{\n"])
def test_metrics_that_cannot_be_read_are_named(run, content):
    (run.folder / "metrics.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged.*Remove the lines"):
        _ = run.metrics


FILES = ("config.yaml", "run.json", "checkpoints/index.json", "checkpoints/epoch-00001/config.json")


def predicted(folder):
    return {name: values.tolist() for name, values in predict_file(Run.open(folder), folder.parent / "x.npy").items()}


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere_is_an_error_or_changes_nothing(run, name):
    path, expected = run.folder / name, predicted(run.folder)
    content = path.read_bytes()
    generator, refused = np.random.default_rng(0), 0
    for place in generator.choice(len(content), 60, replace=False):
        flipped = bytearray(content)
        flipped[place] ^= 1 << generator.integers(7)
        path.write_bytes(flipped)
        try:
            assert predicted(run.folder) == expected
        except (ValueError, OSError) as error:
            assert path.name in str(error)  # noqa: PT017
            refused += 1
    assert refused > 50


def test_a_changed_mean_is_noticed_and_a_changed_configuration_may_be_meant(run):
    path = run.folder / "run.json"
    content = json.loads(path.read_text())
    content["task"]["target_mean"] += 1.0
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"run\.json is damaged, or was changed by hand.*Copy the run again"):
        _ = Run.open(run.folder).task
    path = run.folder / "config.yaml"
    changed = path.read_text().replace("batch_size: 64", "batch_size: 65")
    path.write_text(changed)
    with pytest.raises(ValueError, match=r"config\.yaml is damaged, or was changed by hand.*remove that line"):
        _ = Run.open(run.folder).config
    path.write_text(changed.rpartition("#")[0])
    assert Run.open(run.folder).config.batch_size == 65


class Call:
    """What unpickling would call."""

    def __reduce__(self):
        return (eval, ("open('called', 'w')",))


def pickled(path):
    path.write_bytes(pickle.dumps(Call()))
    path.with_name("state.pt.sha256").unlink()


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shortened(path):
    path.write_bytes(path.read_bytes()[:100])
    path.with_name("state.pt.sha256").unlink()


@pytest.mark.parametrize("damage", [pickled, flipped, shortened], ids=lambda damage: damage.__name__)
def test_a_damaged_state_is_not_continued_from(run, damage, monkeypatch):
    monkeypatch.chdir(run.folder.parent)
    damage(run.checkpoints.path("last") / "state.pt")
    config = small(epochs=2, net={"name": "mlp", "hidden": [4]})
    with pytest.raises(ValueError, match=r"state\.pt is damaged.*Copy the run again") as caught:
        fit(config, run.folder, resume=True, quiet=True)
    assert "weights_only" not in str(caught.value)
    assert not (run.folder.parent / "called").exists()


def test_pickled_weights_to_start_from_are_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.pt").write_bytes(pickle.dumps(Call()))
    config = small(net={"name": "mlp", "hidden": [4], "weights": str(tmp_path / "w.pt")})
    with pytest.raises(ValueError, match=r"w\.pt \(net\.weights\) is damaged.*Save the network's state_dict") as caught:
        fit(config, tmp_path / "run", quiet=True)
    assert "weights_only" not in str(caught.value)
    assert not (tmp_path / "called").exists()


def test_temporary_files_of_processes_that_are_no_more_are_removed(run):
    from slimbayes._files import HOST, write_json

    for name in (".evaluation.json.999999999", f".evaluation.json.{HOST}-999999999"):
        (run.folder / name).touch()
    kept = run.folder / ".evaluation.json.another-host-999999999"
    kept.touch()
    write_json(run.folder / "evaluation.json", {})
    assert [path.name for path in run.folder.glob(".evaluation.json.*")] == [kept.name]
