"""The stored runs are those of the studies as they are now."""

import json
from pathlib import Path

import pytest

from reproductions.stored import stored_run
from reproductions.study import read_studies

ROOT = Path(__file__).parents[2] / "reproductions"
STUDIES = read_studies(ROOT)


@pytest.mark.parametrize("name", STUDIES)
def test_stored_runs_have_their_study_s_configuration(name):
    study = STUDIES[name]
    for scale in study.scales:
        stored = {cell.name for cell in study.cells(scale) if stored_run(ROOT / "results", name, scale, cell)}
        assert stored == {path.stem for path in (ROOT / "results" / name / scale).glob("*.json")}


def test_stored_runs_say_where_they_come_from():
    for path in [path for name in STUDIES for path in (ROOT / "results" / name).glob("*/*.json")]:
        run = json.loads(path.read_text())
        assert (run["study"], run["scale"], run["cell"]) == (path.parts[-3], path.parts[-2], path.stem)
        assert {"commit", "hardware", "versions", "time", "seed", "config"} <= run.keys()
        assert not str(run["commit"]).endswith("dirty")
