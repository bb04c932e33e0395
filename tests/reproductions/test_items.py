"""Items are read with errors that name the key; those of the repository are whole."""

from pathlib import Path

import pytest
from stored_examples import write_item

from reproductions.item import read_item, read_items
from reproductions.study import read_studies

FOLDER = Path(__file__).parents[2] / "reproductions"
ITEMS, STUDIES = read_items(FOLDER), read_studies(FOLDER)


@pytest.mark.parametrize(("said", "meant"), [("yes", "yes"), ("no", "no"), ("unclear", "unclear"), (True, "yes")])
def test_verdicts_are_words(tmp_path, said, meant):
    write_item(tmp_path, verdict=said)
    assert read_item(tmp_path / "items" / "k_tied_table_9.yaml").verdict == meant


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdct": "yes"}, r"k_tied_table_9.yaml: .*\n.*verdct: there is no such key. Did you mean 'verdict'\?"),
        ({"verdict": "maybe"}, "verdict: input should be 'yes', 'no', 'unclear' or 'not run'"),
        ({"show": []}, "show: list should have at least 1 item"),
        ({"show": [{"kind": "tabel"}]}, r"show\.0 \(tabel\): .*Did you mean 'table'"),
        ({"show": [{"kind": "table", "study": "digits"}]}, r"show\.0 \(table\): .*\n.*columns: it is missing"),
        ({"studies": []}, r"show\.0 \(table\): 'digits' is not among `studies`"),
    ],
)
def test_faults_name_the_file_and_the_key(tmp_path, changes, message):
    write_item(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        read_item(tmp_path / "items" / "k_tied_table_9.yaml")


def test_numbers_are_in_their_own_order(tmp_path):
    for name in ("k_tied_table_10", "k_tied_table_9", "k_tied_figure_2"):
        write_item(tmp_path, name)
    write_item(tmp_path, "beyond_a", paper="beyond")
    assert list(read_items(tmp_path)) == ["k_tied_figure_2", "k_tied_table_9", "k_tied_table_10", "beyond_a"]


def test_every_table_and_figure_of_the_k_tied_paper_is_an_item():
    names = [item.item for item in ITEMS.values() if item.paper == "k-tied"]
    wanted = [f"Table {number}" for number in range(1, 6)] + [f"Figure {number}" for number in range(1, 13)]
    found = [name.partition(",")[0] for name in names]
    assert sorted(set(found)) == sorted(wanted)
    assert [name for name in names if name.startswith("Figure 6")] == [
        "Figure 6, left",
        "Figure 6, bottom right",
        "Figure 6, top right",
    ]


@pytest.mark.parametrize("name", ITEMS)
def test_items_name_studies_that_exist(name):
    assert not set(ITEMS[name].studies) - set(STUDIES)


@pytest.mark.parametrize("name", [name for name, item in ITEMS.items() if item.studies])
def test_all_studies_of_an_item_are_shown(name):
    item = ITEMS[name]
    assert {study for part in item.parts for study in part.needs()} == set(item.studies)
