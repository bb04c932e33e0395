"""Pages say what was claimed, found and run."""

from stored_examples import run_of, write_item, write_reproductions, write_run, write_study

from reproductions.item import read_item, read_items
from reproductions.listing import listing, listing_text
from reproductions.pages import index, item_page
from reproductions.stored import Sources

NAME = "k_tied_table_9"


def page_of(folder, **changes):
    write_item(folder, **changes)
    return item_page(NAME, read_item(folder / "items" / f"{NAME}.yaml"), Sources(folder)).text


def test_a_page_says_how_it_was_run(tmp_path):
    text = page_of(write_reproductions(tmp_path), verdict="yes", reading="It does.", notes="A note.")
    assert text.startswith("# Table 9: Scores\n")
    for words in (
        "**Claim.** Tied ones are as good.",
        "**Does it hold here?** Yes. It does.",
        "## Notes\n\nA note.",
        "| [digits](../../reproductions/results/digits/small) | small | 6 of 6 | 3 | 10 | 3.0 | half the epochs |",
        "On Some CPU, 1 of 2 cores for each run. Commit 0123456789.",
        "python -m reproductions k_tied_table_9 --scale small",
    ):
        assert words in text


def test_a_page_names_the_published_configuration_that_is_not_run_here(tmp_path):
    write_reproductions(tmp_path)
    write_study(tmp_path, "large", scales={"paper": {"minutes": 90, "hardware": "8 cores"}})
    text = page_of(tmp_path, published=["large"])
    assert "has not been run: about 9 hours on 8 cores" in text  # two methods, three seeds
    assert "## As published" in text
    assert "```\npython -m reproductions large --scale paper\n```" in text
    assert "Not run yet" not in text


def test_a_page_without_runs_says_so_and_has_the_command(tmp_path):
    show = [{"kind": "table", "study": "digits", "columns": ["nll"], "paper": {"mean_field": ["0.1 ± 0.01"]}}]
    text = page_of(tmp_path, show=show)
    assert "**Does it hold here?** Not run yet." in text
    assert "Not run yet: `python -m reproductions digits --scale small`." in text
    assert "Not run yet. This runs it:\n\n```\npython -m reproductions k_tied_table_9 --scale small\n```" in text
    assert "| mean-field | 0.1 ± 0.01 |" in text


def test_a_page_shows_the_studies_that_were_run_and_names_the_others(tmp_path):
    write_reproductions(tmp_path)
    show = [{"kind": "curves", "studies": ["digits", "other"]}]
    text = page_of(tmp_path, studies=["digits", "other"], show=show)
    assert "figures/k_tied_table_9-1.svg" in text
    assert "Not run yet: other." in text
    assert "**Does it hold here?** Not judged yet." in text


def test_studies_of_different_scales_have_commands_of_their_own(tmp_path):
    write_reproductions(tmp_path)
    write_study(tmp_path, "large", scales={"paper": {"minutes": 1}})
    text = page_of(tmp_path, studies=["digits", "large"])
    assert "```\npython -m reproductions digits --scale small\npython -m reproductions large --scale paper\n```" in text


def test_larger_scales_are_preferred_and_smoke_is_not_shown(tmp_path):
    write_reproductions(tmp_path)
    small = tmp_path / "results" / "digits" / "small"
    small.rename(small.with_name("smoke"))
    assert Sources(tmp_path).scale("digits") is None
    assert len(Sources(tmp_path, ("paper", "smoke")).runs("digits")) == 2  # the study has one seed there
    small.with_name("smoke").rename(small.with_name("paper"))
    assert Sources(tmp_path).scale("digits") == "paper"


def test_one_run_of_a_larger_scale_does_not_hide_a_whole_smaller_one(tmp_path):
    write_reproductions(tmp_path)
    write_run(tmp_path, run_of("mean_field", scale="paper"))
    assert Sources(tmp_path).scale("digits") == "small"


def test_the_index_links_every_item(tmp_path):
    write_reproductions(tmp_path)
    write_item(tmp_path, verdict="no")
    write_item(
        tmp_path, "beyond_a", paper="beyond", item="A", studies=[], show=[{"kind": "illustration", "text": "No."}]
    )
    text = index(read_items(tmp_path), Sources(tmp_path))
    assert "| [Table 9](k_tied_table_9.md) | Scores | `k_tied_table_9` | 6 of 6, small | no |" in text
    assert "## Beyond the papers" in text
    assert "| [A](beyond_a.md) | Scores | `beyond_a` | needs none | nothing is measured |" in text


def test_the_list_has_data_hours_and_runs(tmp_path):
    write_reproductions(tmp_path, seeds=2)
    write_item(tmp_path)
    (row,) = listing(tmp_path)
    assert row["data"] == ["digits"]
    assert row["hours"] == {"paper": 6 * 30 / 60, "small": 6 * 10 / 60}
    assert row["results"] == "4 of 6, small"
    words = listing_text([row]).splitlines()[1].split()
    assert " ".join(words) == "k_tied_table_9 k-tied, Table 9 digits 3.0 1.0 4 of 6, small"


def test_hours_are_those_of_the_runs_that_would_be_made(tmp_path):
    write_study(tmp_path, "large", scales={"paper": {"minutes": 30}})
    write_study(tmp_path, "own", scales={"small": {"minutes": 10, "hardware": "a GPU"}})
    write_item(tmp_path, studies=["large", "own"], show=[{"kind": "curves", "studies": ["large", "own"]}])
    (row,) = listing(tmp_path)
    assert row["hours"] == dict.fromkeys(("paper", "small"), 6 * (30 + 10) / 60)
    assert row["hardware"] == {scale: ["one CPU core", "a GPU"] for scale in ("paper", "small")}
