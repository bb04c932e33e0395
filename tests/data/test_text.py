"""Texts to tokens and back from files, against tokens worked out by hand."""

import json

import pytest
import torch

from slimbayes.data.preparation import get_preparation
from slimbayes.data.text import Text, rank_words, words_of

# Ranks 1 to 4, so tokens 4 to 7; a vocabulary of 7 makes "rare" token 2.
TEXT = Text(words="the film it's rare", vocabulary=7, length=4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The FILM.", ["the", "film"]),
        ("it's 'good'", ["it's", "'good'"]),
        ("a-b_c/d\te\nf<br />g", ["a", "b", "c", "d", "e", "f", "br", "g"]),
        ("  ", []),
        ("Café… naïve", ["café…", "naïve"]),  # only ASCII punctuation separates
        ('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~', []),
    ],
)
def test_words(text, words):
    assert words_of(text) == words


def test_ranks_are_by_frequency_and_ties_by_appearance():
    assert rank_words([["c", "b"], ["a", "b"]]) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the film", [0, 1, 4, 5]),  # padding, start
        ("the film it's the film", [5, 6, 4, 5]),  # the last ones
        ("the unseen rare film", [1, 4, 2, 5]),  # rare is 2, what training never had is skipped
        ("", [0, 0, 0, 1]),
    ],
)
def test_tokens(text, tokens):
    encoded = TEXT.encode([words_of(text)])
    assert encoded.dtype == torch.int64
    assert encoded.tolist() == [tokens]


def test_files(tmp_path):
    expected = [[0, 0, 1, 4], [0, 1, 5, 4], [0, 0, 0, 1]]
    lines = tmp_path / "reviews.txt"
    lines.write_text("the\nfilm the\n\n")
    table = tmp_path / "reviews.csv"
    table.write_text('id,text\n1,the\n2,"film, ""the"""\n3,\n')
    folder = tmp_path / "reviews"
    folder.mkdir()
    for name, text in (("a", "the"), ("b", "film\nthe"), ("c", "")):
        (folder / f"{name}.txt").write_text(text)
    for path, names in ((lines, ["0", "1", "2"]), (table, ["0", "1", "2"]), (folder, ["a", "b", "c"])):
        raw = TEXT.read(path)
        assert raw.names == names
        assert TEXT(*raw.inputs)[0].tolist() == expected


def test_a_text_in_a_table_may_have_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,score\n"the\nfilm",1\nfilm,2\n')
    assert TEXT.read(path).inputs[0].tolist() == [[0, 1, 4, 5], [0, 0, 1, 5]]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"id,review\n1,x\n", ["a.csv", "`text`", "id, review"]),
        ("a.csv", b"", ["a.csv", "`text`", "none"]),
        ("a.csv", b"text\n", ["a.csv", "no text"]),
        ("a.csv", b"text\n" + b"film " * 30_000, ["a.csv, after line 1", "field larger", "folder of .txt"]),
        ("a.txt", b"caf\xe9\n", ["a.txt", "UTF-8"]),
        ("a.pdf", b"x", ["a.pdf", ".csv"]),
    ],
)
def test_files_that_cannot_be_read(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=".") as error:
        TEXT.read(tmp_path / name)
    for word in words:
        assert word in str(error.value)


def test_it_comes_back_from_json():
    again = get_preparation(json.loads(json.dumps(TEXT.spec())))
    assert again.spec() == TEXT.spec()
    assert again.encode([["film", "rare"]]).tolist() == TEXT.encode([["film", "rare"]]).tolist()


@pytest.mark.parametrize(("vocabulary", "length", "word"), [(4, 5, "`vocabulary`"), (10, 0, "`length`")])
def test_arguments_that_make_no_sense(vocabulary, length, word):
    with pytest.raises(ValueError, match=word):
        Text("a", vocabulary, length)
