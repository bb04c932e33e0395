"""The runs of fine-tuned transformers: planned, made at a tiny scale, stored, shown."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reproductions import finetuned, finetuning
from reproductions.finetuned import Finetuned, app, planned, prepare, run_job, stored, stored_runs
from reproductions.show.finetuned_table import FinetunedTable
from reproductions.stored import Sources
from tiny_pretrained import (
    ATOMS,
    FILM,
    WORDS,
    write_network,
    write_reactions,
    write_reviews,
    write_tokenizer,
)

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::accelerate", "ignore:::torch.utils.data")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIMBAYES_DATA", str(tmp_path / "data"))
    for study, words in (("reaction_yields", ATOMS), ("imdb_minilm", FILM)):
        network = write_network(tmp_path / study, [*WORDS, *words])
        monkeypatch.setattr(getattr(finetuning, study), "pretrained_folder", lambda network=network: network)
    write_tokenizer(tmp_path / "imdb_minilm")
    write_reactions(tmp_path / "data" / "reactions")
    write_reviews(tmp_path / "data" / "imdb" / "aclImdb_v1.tar.gz")
    return tmp_path


def made(run, here):
    assert run_job(prepare(run, here / "runs", here / "results")) is None
    return stored(here / "results", run)


def of_yields(method, seed=0, of=(), split="Test1"):
    name = "suzuki_miyaura" if split == "random_0" else "buchwald_hartwig"
    settings = {"epochs": 2, "draws": 4, "set": name, "split": split}
    return Finetuned("reaction_yields", method, seed, 1.0, settings, split, tuple(of))


def of_reviews(method, seed=0):
    settings = {"epochs": 1, "draws": 4, "count": 6, "length": 12, "cut": 4}
    return Finetuned("imdb_minilm", method, seed, 1.0, settings)


@pytest.mark.parametrize("study", finetuned.STUDIES)
def test_what_is_made_of_others_comes_after_them(study):
    names = [run.name for run in planned(study)]
    assert len(set(names)) == len(names)
    for position, run in enumerate(planned(study)):
        assert set(run.of) <= set(names[:position])
        assert run.of or run.method in getattr(finetuning, study).METHODS
        assert not run.of or run.method in finetuning.MADE


@pytest.mark.parametrize("study", finetuned.STUDIES)
def test_stored_runs_are_of_the_plan_and_of_the_example_as_it_is(study):
    runs, names = stored_runs(ROOT / "reproductions" / "results", study), {run.name for run in planned(study)}
    assert {path.stem for path in (ROOT / "reproductions" / "results" / study).glob("*.json")} <= names
    for run in runs:
        assert {"commit", "hardware", "versions", "time", "test", "seconds", "stored_bytes"} <= run.keys()
        assert not str(run["commit"]).endswith("dirty")
        if not run["of"]:
            assert run["rates"] == dict(getattr(finetuning, study).METHODS[run["method"]].rates)


def test_an_ensemble_is_made_of_stored_networks(here):
    plain = [of_yields("plain", seed) for seed in (0, 1)]
    parts = [made(run, here) for run in plain]
    assert parts[0]["test"] != parts[1]["test"]
    assert [row["epoch"] for row in parts[0]["curve"]] == [1.0, 2.0]
    ensemble = made(of_yields("ensemble", of=[run.name for run in plain]), here)
    assert ensemble["cpu_seconds"] == sum(part["cpu_seconds"] for part in parts)
    assert ensemble["stored_bytes"] == sum(part["stored_bytes"] for part in parts)
    assert ensemble["test"]["epistemic"] > 0 == parts[0]["test"]["epistemic"]
    dropped = made(of_yields("mc_dropout", of=[plain[0].name]), here)
    assert dropped["test"]["epistemic"] > 0
    error = run_job(prepare(of_yields("ensemble", 1, ["plain-Test1-seed7"]), here / "runs", here / "results"))
    assert "Remove the stored plain-Test1-seed7" in error


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_its_last_epoch(here, monkeypatch):
    run = of_yields("rank1", split="random_0")
    whole = made(run, here)
    (here / "results" / run.study / f"{run.name}.json").unlink()
    save, saves = finetuning._Clock.on_save, []

    def killed(self, *args, **kwargs):
        saves.append(save(self, *args, **kwargs))
        if len(saves) == 1:
            raise RuntimeError("killed")

    monkeypatch.setattr(finetuning._Clock, "on_save", killed)
    folder = prepare(run, here / "again", here / "results")
    assert run_job(folder) == "RuntimeError: killed"
    first = json.loads((folder / "clock.json").read_text())
    assert run_job(prepare(run, here / "again", here / "results")) is None
    again = stored(here / "results", run)
    assert len(saves) == 2  # of the second epoch alone, after the first one's
    assert again["test"] == whole["test"]
    assert again["cpu_seconds"] > first["cpu_seconds"]
    assert not (folder / "trainer").exists()


def test_other_settings_are_an_error(here):
    run = of_yields("plain")
    made(run, here)
    longer = Finetuned(run.study, run.method, run.seed, 1.0, {**run.settings, "epochs": 3}, run.override)
    with pytest.raises(ValueError, match="is of other settings than"):
        stored(here / "results", longer)
    (here / "runs" / run.study / run.name / "trainer").mkdir()
    with pytest.raises(ValueError, match="has checkpoints of other settings"):
        prepare(longer, here / "runs", here / "results")


@pytest.mark.slow
def test_of_a_frozen_base_and_of_lora_the_small_file_counts(here):
    sizes = {method: made(of_reviews(method), here)["stored_bytes"] for method in ("plain", "lora", "rank1_frozen")}
    assert sizes["lora"] < sizes["plain"]
    assert sizes["rank1_frozen"] < sizes["plain"]
    run = stored(here / "results", of_reviews("lora"))
    assert run["test"].keys() == run["cut"].keys() == {"accuracy", "nll", "ece", "aurc"}
    assert run["memory"] > 1e7


def test_the_table_has_stored_numbers_and_before_that_the_published_ones(tmp_path):
    table = FinetunedTable(
        kind="finetuned_table", study="reaction_yields", override="Test1", columns=["r2", "coverage", "stored_bytes"],
        published={"Yield-BERT": ["0.84"]},
    )  # fmt: skip
    empty = table.render(Sources(tmp_path), "x").text
    assert empty.startswith("Not run yet: `python -m reproductions.finetuned reaction_yields`.")
    assert "| Yield-BERT | 0.84 |" in empty
    assert not any(table.progress(Sources(tmp_path)).values())
    run = next(run for run in planned("reaction_yields") if run.name == "rank1-Test1-seed0")
    path = tmp_path / "results" / run.study / f"{run.name}.json"
    path.parent.mkdir(parents=True)
    content = {
        "method": "rank1", "override": "Test1", "settings": run.settings, "of": [], "commit": "abc",
        "hardware": {"processor": "slow"}, "test": {"r2": 0.91, "coverage": 0.895}, "stored_bytes": 28_424_128,
    }  # fmt: skip
    path.write_text(json.dumps(content))
    full = table.render(Sources(tmp_path), "x").text
    assert "| rank1 | 1 | 0.91 |  | 89.5 | 28,424 |" in full
    assert "1 of 10 runs. On slow, one core each. Commit abc." in full


def test_the_command_lists_and_asks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["reaction_yields", "--list", "--only", "*-Test1-*"])
    assert shown.exit_code == 0
    assert "rank1_lora-Test1-seed0" in shown.stdout
    assert "FullCV" not in shown.stdout
    wrong = CliRunner().invoke(app, ["reaction_yields", "--only", "swag*"])
    assert wrong.exit_code == 2
    assert "swag" in wrong.output
    assert "reaction_yields" in CliRunner().invoke(app, ["reaction_yield"]).output
