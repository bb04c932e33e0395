"""Tiny stand-ins for the packages of weights and for the data: the examples read them as they read the real ones."""

import io
import json
import tarfile
from pathlib import Path

import torch
import transformers

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
ATOMS = ["C", "c", "N", "O", "(", ")", "1", "=", ">>", "Br", "Cl", ".", "[nH]", "[Pd]"]
FILM = ["good", "bad", "film", "the", "a"]
TINY = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip


def write_network(folder: Path, words: list[str]) -> Path:
    """Write a BERT with random weights and its vocabulary."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    config = transformers.BertConfig(vocab_size=len(words), **TINY)
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder


def write_tokenizer(folder: Path) -> None:
    """Write the tokenizer that ``AutoTokenizer`` finds."""
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)


def write_reactions(folder: Path, count: int = 16) -> Path:
    """Write both sets and a split of each; the more carbons, the more comes out."""
    folder.mkdir(parents=True)
    sets = {
        "buchwald_hartwig": (100.0, ["FullCV_01", "FullCV_02", "FullCV_03", "Test1", "Test2"]),
        "suzuki_miyaura": (1.0, ["random_0"]),
    }
    for name, (whole, splits) in sets.items():
        rows = [f"{'C' * (1 + i % 5)}Br.[nH]1cc1>>{'C' * (1 + i % 5)}N\t{whole * (i % 5) / 5}" for i in range(count)]
        (folder / f"{name}.tsv").write_text("\n".join(["reaction\tyield", *rows]) + "\n")
        part = {"train": list(range(2, count)), "test": [1, 0]}
        (folder / f"{name}_splits.json").write_text(json.dumps(dict.fromkeys(splits, part)))
    return folder


def write_reviews(archive: Path, count: int = 8) -> Path:
    """Write an archive of reviews; the good ones say so."""
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        for part in ("train", "test"):
            for number in range(count):
                side = "pos" if number % 2 else "neg"
                text = f"the film<br />a {'good' if number % 2 else 'bad'} film" + " the" * number
                content = text.encode()
                member = tarfile.TarInfo(f"aclImdb/{part}/{side}/{number}_1.txt")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return archive
