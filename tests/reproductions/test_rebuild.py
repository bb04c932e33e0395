"""Rebuilding is repeatable, and touches only what has changed."""

import shutil
from pathlib import Path

import pytest
from stored_examples import run_of, write_item, write_reproductions, write_run

from reproductions.pages import rebuild

ROOT = Path(__file__).parents[2]
README = "# Name\n\n<!-- results: k_tied_table_9 {} -->\nold\n<!-- end of results -->\nrest\n"


@pytest.fixture
def folder(tmp_path):
    write_reproductions(tmp_path / "reproductions")
    show = [
        {"kind": "table", "study": "digits", "columns": ["nll"]},
        {"kind": "curves", "studies": ["digits"]},
        {"kind": "heat_maps", "study": "digits"},
    ]
    write_item(tmp_path / "reproductions", show=show)
    (tmp_path / "README.md").write_text(README.format(2))
    return tmp_path


def rebuilt(folder):
    changed = rebuild(folder / "reproductions", folder / "docs", folder / "README.md")
    return sorted(str(path.relative_to(folder)) for path in changed)


def test_the_second_time_nothing_changes(folder):
    assert rebuilt(folder) == [
        "README.md",
        "docs/results/README.md",
        "docs/results/figures/k_tied_table_9-2.svg",
        "docs/results/figures/k_tied_table_9-3.png",
        "docs/results/k_tied_table_9.md",
    ]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert rebuilt(folder) == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_new_number_changes_its_page_alone(folder):
    rebuilt(folder)
    run = run_of()
    run["test"]["nll"]["value"] = 2.0
    write_run(folder / "reproductions", run)
    assert rebuilt(folder) == ["docs/results/k_tied_table_9.md"]


def test_the_readme_shows_one_part_with_links_from_its_own_folder(folder):
    rebuilt(folder)
    text = (folder / "README.md").read_text()
    assert text.startswith("# Name\n\n<!-- results: k_tied_table_9 2 -->\n![")
    assert "(docs/results/figures/k_tied_table_9-2.svg)" in text
    assert text.endswith("<!-- end of results -->\nrest\n")
    assert "old" not in text


def test_a_readme_that_asks_for_what_is_not_there_is_an_error(folder):
    (folder / "README.md").write_text(README.format(4))
    with pytest.raises(ValueError, match="asks for part 4 of the item 'k_tied_table_9'"):
        rebuilt(folder)


def test_figures_that_no_page_shows_are_removed(folder):
    rebuilt(folder)
    old = folder / "docs" / "results" / "figures" / "old.svg"
    old.write_text("")
    assert rebuilt(folder) == ["docs/results/figures/old.svg"]
    assert not old.exists()


def test_pages_of_items_that_are_gone_are_removed_and_others_left(folder):
    rebuilt(folder)
    pages = folder / "docs" / "results"
    (pages / "own.md").write_text("Written by hand.\n")
    write_item(folder / "reproductions", "k_tied_table_8", show=[{"kind": "illustration", "text": "No."}], studies=[])
    rebuilt(folder)
    (folder / "reproductions" / "items" / "k_tied_table_8.yaml").unlink()
    assert rebuilt(folder) == ["docs/results/README.md", "docs/results/k_tied_table_8.md"]
    assert sorted(path.name for path in pages.glob("*.md")) == ["README.md", "k_tied_table_9.md", "own.md"]


def test_the_pages_of_the_repository_are_those_of_its_runs(tmp_path):
    shutil.copy(ROOT / "README.md", tmp_path)
    rebuild(ROOT / "reproductions", tmp_path / "docs", tmp_path / "README.md")
    folder = tmp_path / "docs" / "results"
    for page in [*folder.glob("*.md"), tmp_path / "README.md"]:
        assert page.read_text() == (ROOT / page.relative_to(tmp_path)).read_text(), "run `make results`"
    # Bytes of figures depend on the version of matplotlib.
    names = {path.name for path in (folder / "figures").glob("*")}
    assert names == {path.name for path in (ROOT / "docs" / "results" / "figures").glob("*")}, "run `make results`"
