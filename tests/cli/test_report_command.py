"""The command ``slimbayes report``."""

import json
import sys
from pathlib import Path

import pytest
from command_line import invoke

sys.path.append(str(Path(__file__).parents[1] / "report"))

from records import minimal


def evaluated(folder, title, **changes):
    """Write an evaluation as ``slimbayes evaluate`` does."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("data: wine\n")
    (folder / "evaluation.json").write_text(json.dumps(minimal(title).content | changes))
    return folder


def test_one_run(tmp_path):
    run, out = evaluated(tmp_path / "run", "rank-1 <normal>"), tmp_path / "made" / "one.html"
    result = invoke("report", run, "-o", out, "--title", "My title")
    assert result.exit_code == 0, result.output
    assert f"Report of 1 run: {out}" in result.output
    text = out.read_text()
    assert "rank-1 &lt;normal&gt;" in text
    assert "<h1>My title</h1>" in text


def test_a_folder_of_runs_names_those_left_out(tmp_path):
    grid = tmp_path / "grid"
    for title in ("a", "b"):
        evaluated(grid / title, f"method {title}")
    (grid / "c").mkdir()
    (grid / "c" / "config.yaml").write_text("data: wine\n")
    out = tmp_path / "report.html"
    result = invoke(
        "report", grid, grid / "a", grid / "a" / "evaluation.json", "-o", out, "--figures", tmp_path / "files"
    )
    assert result.exit_code == 0, result.output
    assert "Report of 2 runs" in result.output
    assert f"slimbayes evaluate {grid / 'c'}" in result.output
    assert "method b" in out.read_text()
    assert "method a" in (tmp_path / "files" / "scores.csv").read_text()


@pytest.mark.parametrize("what", ["run", "grid", "nothing", "folder", "suffix", "other data"])
def test_errors_say_what_to_do(tmp_path, what):
    run, out, words = tmp_path / "run", tmp_path / "report.html", []
    if what == "run":
        run.mkdir()
        (run / "config.yaml").write_text("data: wine\n")
        words = ["There is no", f"slimbayes evaluate {run}"]
    elif what == "grid":
        (run / "a").mkdir(parents=True)
        (run / "a" / "config.yaml").write_text("data: wine\n")
        words = [f"slimbayes evaluate {run}/*"]
    elif what == "nothing":
        words = [f"There is no {run}"]
    else:
        evaluated(run, "a")
    if what == "folder":
        out.mkdir()
        words = ["is a folder", "report.html"]
    elif what == "suffix":
        out = tmp_path / "report.pdf"
        words = ["'.html'", "'.pdf'"]
    elif what == "other data":
        evaluated(run / "b", "b", data="iris")
        words = ["data sets differ", "iris", "wine"]
    result = invoke("report", run, *([run / "b"] if what == "other data" else []), "-o", out)
    assert result.exit_code == 2
    assert result.exception is None or isinstance(result.exception, SystemExit)
    for word in words:
        assert word in result.output.replace("\n", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--input", "x.npy", "--title", "T"], "Expected no --figures and --title with --input"),
        (["--input", "x.npy", "--figures", "f"], "but got --figures. Leave them out"),
        (["--row", "0"], "Expected no --row and --samples without --input"),
        (["--samples", "3", "--row", "x"], "but got --row and --samples"),
    ],
)
def test_options_without_an_effect_are_refused(tmp_path, options, words):
    run, out = evaluated(tmp_path / "run", "a"), tmp_path / "report.html"
    result = invoke("report", run, "-o", out, *options)
    assert result.exit_code == 2
    assert words in result.output.replace("\n", "")
    assert not out.exists()
