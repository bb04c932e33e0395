"""Each bad configuration is a clear error that names the key and what would be right, before anything is trained."""

import pytest
import yaml
from typer.testing import CliRunner

from slimbayes.cli.app import app

GOOD = {"data": {"name": "iris"}, "net": {"name": "mlp", "hidden": [4]}, "epochs": 1}


def changed(**changes):
    return yaml.safe_dump({**GOOD, **changes})


#: What the file holds, and words of the error.
BAD = {
    "empty": ("", ["a.yaml", "keys and values", "data: digits"]),
    "a list": ("- data\n- net\n", ["a.yaml", "keys and values"]),
    "not YAML": ("data: [digits\n", ["a.yaml", "not YAML", "Correct the file"]),
    "a tab": ("data:\n\tname: digits\n", ["a.yaml", "not YAML", "line 2"]),
    "a key given twice": ("data: iris\nepochs: 1\nnet: mlp\nepochs: 3\n", ["'epochs'", "given twice", "line 4"]),
    "an inner key given twice": (
        "data: iris\nnet: {name: mlp, hidden: [1], hidden: [2]}\n",
        ["'hidden'", "given twice"],
    ),
    "nested 5000 deep": ("[" * 5000, ["a.yaml", "nested too deep"]),
    "an object of Python": ("data: !!python/object/apply:os.getcwd []\n", ["a.yaml", "not YAML", "python/object"]),
    "a date that is none": ("data: 2026-13-45\n", ["a.yaml", "not YAML", "month"]),
    "no net": (yaml.safe_dump({"data": "iris"}), ["net: it is missing"]),
    "an unknown key": (changed(optimizer="adam"), ["optimizer", "Did you mean 'optimiser'"]),
    "an unknown set": (changed(data="irys"), ["data.name", "'iris'"]),
    "an unknown option of the data": (changed(data={"name": "iris", "tset": 3}), ["tset", "Did you mean 'test'"]),
    "an unknown net": (changed(net="mlpp"), ["net.name", "Did you mean 'mlp'"]),
    "an unknown option of the net": (changed(net={"name": "mlp", "hiden": 3}), ["hiden", "Did you mean 'hidden'"]),
    "words for widths": (changed(net={"name": "mlp", "hidden": "abc"}), ["net.hidden", "'abc'", "whole numbers"]),
    "negative widths": (changed(net={"name": "mlp", "hidden": [-8]}), ["net.hidden", "-8", "whole numbers"]),
    "a width of zero": (changed(net={"name": "mlp", "hidden": [0]}), ["net.hidden", "0", "whole numbers"]),
    "half a unit": (changed(net={"name": "mlp", "hidden": [1.5]}), ["net.hidden", "1.5", "whole numbers"]),
    "a net that no memory holds": (
        changed(net={"name": "mlp", "hidden": [10**13]}),
        ["GiB of memory", "Use a smaller network", "--ignore-memory"],
    ),
    "an unknown method": (changed(method="rank2"), ["method.name", "Did you mean 'rank1'"]),
    "an unknown option of the method": (changed(method={"name": "rank1", "member": 3}), ["Did you mean 'members'"]),
    "no members": (changed(method={"name": "rank1", "members": 0}), ["members", "at least 1"]),
    "terms that tie nothing": (changed(method={"name": "k_tied", "k": 99}), ["`k`", "99", "Use a smaller k"]),
    "no epochs": (changed(epochs=0), ["epochs", "greater than or equal to 1", "0"]),
    "epochs and steps": (changed(steps=3), ["`epochs` or `steps`"]),
    "a rate of nothing": (changed(optimiser={"lr": 0}), ["optimiser.lr", "greater than 0"]),
    "an infinite rate": (changed(optimiser={"lr": float("inf")}), ["optimiser.lr", "finite"]),
    "a rate in words": (changed(optimiser={"lr": "fast"}), ["optimiser.lr", "number", "'fast'"]),
    "a negative seed": (changed(seed=-1), ["seed", "greater than or equal to 0"]),
    "an unknown likelihood": (changed(likelihood="guess"), ["likelihood", "'categorical'"]),
    "steps out of order": (changed(schedule={"name": "step", "at": [5, 2]}), ["schedule.at", "in order"]),
    "weights that are not there": (changed(net={"name": "mlp", "weights": "/no/w.pt"}), ["/no/w.pt", "net.weights"]),
    "numbers for keys": ("data: iris\nnet: mlp\n3: 4\n", ["3", "should be string"]),
}


def test_there_are_many():
    assert len(BAD) >= 13


@pytest.mark.parametrize("name", BAD)
def test_bad_yaml(tmp_path, name):
    text, words = BAD[name]
    path = tmp_path / "a.yaml"
    path.write_text(text)
    result = CliRunner().invoke(app, ["train", str(path), "--out", str(tmp_path / "run"), "-q"])
    told = " ".join(result.stderr.split())
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (2, True), repr(result.exception)
    assert [word for word in words if word not in told] == [], told
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("word", ["net.hidden=abc", "net.hidden=[-8]", "epochs=[", "epochs", "seed.a=1"])
def test_bad_words(tmp_path, word):
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump({**GOOD, "seed": 3}))
    result = CliRunner().invoke(app, ["train", str(path), word, "--out", str(tmp_path / "run"), "-q"])
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (2, True), repr(result.exception)
    assert word.partition("=")[0].partition(".")[0] in result.stderr
    assert "empty()" not in result.stderr
