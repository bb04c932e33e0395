"""The example of film reviews: its data, its scores, and all of it at a tiny scale."""

import pytest
import torch

from examples import imdb_minilm
from slimbayes.prediction import Prediction
from tiny_pretrained import FILM, WORDS, write_network, write_reviews, write_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::accelerate", "ignore:::torch.utils.data")


@pytest.fixture
def here(tmp_path, monkeypatch):
    network = write_network(tmp_path / "network", [*WORDS, *FILM])
    write_tokenizer(network)
    monkeypatch.setattr(imdb_minilm, "pretrained_folder", lambda: network)
    write_reviews(tmp_path / "imdb" / "aclImdb_v1.tar.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_reviews_are_the_same_each_time_and_have_their_labels(here):
    train, test = imdb_minilm.read_reviews(here / "imdb" / "aclImdb_v1.tar.gz", 5)
    again, _ = imdb_minilm.read_reviews(here / "imdb" / "aclImdb_v1.tar.gz", 5)
    assert train.texts == again.texts
    assert len(train.texts) == len(set(train.texts)) == len(test.texts) == 5
    assert [int("good" in text) for text in train.texts] == train.labels.tolist()
    assert not any("<br" in text for text in train.texts)


def test_scores_have_closed_forms():
    logits = torch.tensor([0.9, 0.6, 0.6, 0.2]).logit()
    draws = torch.stack([torch.zeros(4), logits], -1)[None].expand(3, -1, -1)
    found = imdb_minilm.scores(Prediction(draws, members=3), torch.tensor([1, 1, 0, 0]))
    assert found["accuracy"] == 0.75
    assert found["nll"] == pytest.approx(-torch.tensor([0.9, 0.6, 0.4, 0.8]).log().mean().item(), rel=1e-5)
    assert found["ece"] == pytest.approx((0.1 + 2 * 0.1 + 0.2) / 4, rel=1e-5)
    assert found["aurc"] == pytest.approx((0 + 0 + 0.5 / 3 + 1 / 4) / 4)  # the two of 0.6 share an error


@pytest.mark.parametrize("method", imdb_minilm.METHODS)
def test_it_runs(here, method, capsys):
    imdb_minilm.main(here / "imdb" / "aclImdb_v1.tar.gz", method, count=6, epochs=1)
    shown = capsys.readouterr().out
    assert "256 tokens: {'accuracy'" in shown
    assert "32 tokens: {'accuracy'" in shown
    assert shown.count("% good") == 3


def test_a_frozen_base_is_not_in_the_file(here):
    imdb_minilm.main(here / "imdb" / "aclImdb_v1.tar.gz", "rank1_frozen", count=6, epochs=1)
    file = here / "runs" / "imdb_minilm" / "model" / "model.safetensors"
    whole = sum(tensor.numel() for tensor in imdb_minilm.pretrained().parameters())
    model = imdb_minilm.METHODS["rank1_frozen"].convert(imdb_minilm.pretrained())
    trained = sum(tensor.numel() for tensor in model.parameters() if tensor.requires_grad)
    assert 4 * trained < file.stat().st_size < 4 * trained + 20_000
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert sum(p.numel() for p in model.parameters() if not p.requires_grad) > whole / 2
    assert not any("classifier.weight" in name for name in frozen)
