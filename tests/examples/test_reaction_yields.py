"""The example of reaction yields: its words, its scores, and all of it at a tiny scale."""

import importlib.util
import os
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

from examples import reaction_yields
from slimbayes.likelihoods import Gaussian
from slimbayes.prediction import Prediction
from tiny_pretrained import ATOMS, WORDS, write_network, write_reactions

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::accelerate", "ignore:::torch.utils.data")
DATA = Path(os.environ.get("SLIMBAYES_DATA", "nowhere")) / "reactions"


@pytest.fixture
def here(tmp_path, monkeypatch):
    network = write_network(tmp_path / "network", [*WORDS, *ATOMS])
    monkeypatch.setattr(reaction_yields, "pretrained_folder", lambda: network)
    write_reactions(tmp_path / "reactions")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("smiles", "words"),
    [
        ("Brc1ccccn1", ["Br", "c", "1", "c", "c", "c", "c", "n", "1"]),
        ("[nH]1cc1.Cl>>C[C@@H](N)O", ["[nH]", "1", "c", "c", "1", ".", "Cl", ">>", "C", "[C@@H]", "(", "N", ")", "O"]),
        ("C%12CC%12~[Pd+2]", ["C", "%12", "C", "C", "%12", "~", "[Pd+2]"]),
        ("CO/C=C\\F", ["C", "O", "/", "C", "=", "C", "\\", "F"]),
    ],
)
def test_words_of_smiles(smiles, words):
    assert re.findall(reaction_yields.SMILES, smiles) == words


def test_the_tokenizer_has_these_words_and_marks_both_ends(here):
    tokenizer = reaction_yields.smiles_tokenizer(reaction_yields.pretrained_folder() / "vocab.txt")
    batch = tokenizer(["[nH]1cc1.Cl>>CBr", "CX"], padding=True, return_tensors="pt")
    first, second = (tokenizer.convert_ids_to_tokens(row) for row in batch["input_ids"])
    assert first == ["[CLS]", "[nH]", "1", "c", "c", "1", ".", "Cl", ">>", "C", "Br", "[SEP]"]
    assert second[:5] == ["[CLS]", "C", "[UNK]", "[SEP]", "[PAD]"]
    assert batch["attention_mask"].sum(1).tolist() == [12, 4]


@pytest.mark.skipif(not DATA.is_dir(), reason="the reactions are not there")
@pytest.mark.parametrize("name", ["buchwald_hartwig", "suzuki_miyaura"])
def test_all_reactions_are_read_whole_and_in_known_words(name):
    split = "FullCV_01" if name == "buchwald_hartwig" else "random_0"
    parts = reaction_yields.read_reactions(DATA, name, split)
    texts = [text for part in parts for text in part.reactions]
    assert len(texts) == len(set(texts)) == {"buchwald_hartwig": 3955, "suzuki_miyaura": 5760}[name]
    words = [re.findall(reaction_yields.SMILES, text) for text in texts]
    assert ["".join(row) for row in words] == texts
    if importlib.util.find_spec("rxnfp"):
        file = reaction_yields.pretrained_folder() / "vocab.txt"
        assert {word for row in words for word in row} <= set(file.read_text().splitlines())
        tokenizer = reaction_yields.smiles_tokenizer(file)
        ids = tokenizer(texts[:200])["input_ids"]
        assert [tokenizer.convert_ids_to_tokens(row)[1:-1] for row in ids] == words[:200]


def test_splits_are_row_numbers(here):
    train, test = reaction_yields.read_reactions(here / "reactions", "suzuki_miyaura", "random_0", 100.0)
    assert len(train.reactions) == 14
    assert test.reactions == ["CCBr.[nH]1cc1>>CCN", "CBr.[nH]1cc1>>CN"]
    torch.testing.assert_close(test.yields, torch.tensor([20.0, 0.0], dtype=torch.float64))


# ---------------------------------------------------------------------- scores


def prediction(means, stds):
    """Return draws ``(draws, batch)`` as a network with predicted noise puts them out."""
    rho = torch.log(torch.expm1(torch.as_tensor(stds, dtype=torch.float64) - 1e-7))
    outputs = torch.stack([torch.as_tensor(means, dtype=torch.float64), rho], -1)
    return Prediction(outputs, Gaussian(noise="predicted"))


def test_scores_are_those_of_scipy_in_per_cent():
    source = np.random.default_rng(0)
    means, stds, yields = source.normal(size=(3, 40)), source.uniform(0.2, 0.9, (3, 40)), source.normal(30, 20, 40)
    shift, scale = 30.0, 20.0
    found = reaction_yields.scores(prediction(means, stds), torch.tensor(yields), shift, scale)
    center, width = shift + scale * means, scale * stds
    mixture = center.mean(0)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((mixture - yields) ** 2)))
    assert found["r2"] == pytest.approx(1 - np.mean((mixture - yields) ** 2) / np.var(yields))
    density = scipy.stats.norm(center, width).pdf(yields).mean(0)
    assert found["nll"] == pytest.approx(-np.log(density).mean())
    grid = np.linspace(-300, 400, 20_001)
    cdf = scipy.stats.norm(center[..., None], width[..., None]).cdf(grid).mean(0)
    squares = (cdf - (grid >= yields[:, None])) ** 2
    assert found["crps"] == pytest.approx(np.trapezoid(squares, grid, axis=1).mean(), rel=1e-3)
    low, high = (np.array([np.interp(q, row, grid) for row in cdf]) for q in (0.05, 0.95))
    assert found["coverage"] == pytest.approx(np.mean((low <= yields) & (yields <= high)))
    assert found["width"] == pytest.approx(np.mean(high - low), rel=1e-3)
    assert found["aleatoric"] == pytest.approx(np.sqrt((width**2).mean(0)).mean(), rel=1e-5)
    assert found["epistemic"] == pytest.approx(center.std(0).mean(), rel=1e-5)


def test_of_one_gaussian_they_have_closed_forms():
    mean, std = torch.zeros(1, 1001), torch.full((1, 1001), 0.5)
    quantiles = scipy.stats.norm.ppf((np.arange(1001) + 0.5) / 1001)
    found = reaction_yields.scores(prediction(mean, std), torch.tensor(50 + 10 * 0.5 * quantiles), 50.0, 10.0)
    assert found["nll"] == pytest.approx(0.5 * np.log(2 * np.pi * 25) + 0.5, rel=1e-2)
    assert found["width"] == pytest.approx(2 * 5 * scipy.stats.norm.ppf(0.95), rel=1e-5)
    assert found["coverage"] == pytest.approx(0.9, abs=1e-3)
    assert found["crps"] == pytest.approx(5 / np.sqrt(np.pi), rel=1e-3)  # E|y - y'| / 2 of a calibrated normal
    assert found["epistemic"] == 0


def test_bare_errors():
    yields = torch.tensor([1.0, 2.0, 4.0, 9.0])
    assert reaction_yields.r2(yields, yields) == 1
    assert reaction_yields.r2(torch.full((4,), 4.0), yields) == 0
    errors = torch.tensor([3.0, 1.0, 2.0, 50.0, 4.0])
    kept = reaction_yields.rmse_of_surest(errors, errors, torch.zeros(5))
    assert kept == pytest.approx(np.sqrt((9 + 1 + 4 + 16) / 4))


# ---------------------------------------------------------------------- all of it


@pytest.mark.parametrize("method", reaction_yields.METHODS)
def test_it_runs(here, method, capsys):
    reaction_yields.main(here / "reactions", method, "Test1", epochs=1)
    shown = capsys.readouterr().out
    assert "'coverage'" in shown
    assert shown.count("expected ") == 2


def test_predictions_are_in_the_order_of_the_reactions(here):
    tokenizer = reaction_yields.smiles_tokenizer(reaction_yields.pretrained_folder() / "vocab.txt")
    model = reaction_yields.METHODS["plain"].convert(reaction_yields.pretrained())
    texts = ["CCCCBr>>N", "CN", "CCc1cc1.O", "C"]
    one = [reaction_yields.predict(model, tokenizer, [text], 1).outputs for text in texts]
    whole = reaction_yields.predict(model, tokenizer, texts, 1, batch_size=2).outputs
    torch.testing.assert_close(whole, torch.cat(one, 1), rtol=0, atol=0.02)  # of bfloat16


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps rxnfp==0.1.0"):
        reaction_yields.pretrained_folder()
