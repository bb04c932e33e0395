"""One table or figure of a paper as data: what it claims, which studies it reads, how it is shown, what we found.

.. code-block:: yaml

    paper: k-tied                 # or rank-1, or beyond for what no paper has
    item: Table 2
    title: Post-training low-rank approximation
    claim: Ranks above one predict as well as the mean field.
    studies: [mnist_free]         # reproductions/studies/mnist_free.yaml
    show:                         # in this order; reproductions.show.KINDS has all kinds
      - {kind: low_rank_table, study: mnist_free, columns: [nll, accuracy]}
    verdict: not run              # yes, no or unclear
    reading: ""                   # whether the claim holds here, in words
"""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from reproductions.show import Kind, parse_show
from slimbayes.training.config import Section
from slimbayes.training.parsing import parse_config, read_yaml

__all__ = ["Item", "read_item", "read_items"]


def _as_word(value: Any) -> Any:
    """YAML takes yes and no for truth values."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


class Item(Section):
    """What an item's file holds."""

    paper: Literal["k-tied", "rank-1", "beyond"]
    item: str
    """Its number in the paper, such as Table 2; what it is about, if it is in no paper."""
    title: str
    claim: str
    studies: list[str] = Field(default_factory=list)
    """Whose runs it needs."""
    published: list[str] = Field(default_factory=list)
    """Studies that have the paper's own configuration, which no machine here can run."""
    show: list[dict[str, Any]] = Field(min_length=1)
    """Each with `kind` and that kind's own keys."""
    verdict: Annotated[Literal["yes", "no", "unclear", "not run"], BeforeValidator(_as_word)] = "not run"
    """Whether the claim holds here."""
    reading: str = ""
    """What the numbers say; where the paper contradicts itself, which reading was used and why."""
    notes: str = ""

    @cached_property
    def parts(self) -> list[Kind]:
        """What is shown, checked."""
        found = []
        for position, one in enumerate(self.show):
            try:
                part = parse_show(one)
            except ValueError as error:
                raise ValueError(f"show.{position} ({one.get('kind')}): {error}") from None
            for study in part.needs():
                if study not in self.studies:
                    raise ValueError(f"show.{position} ({part.kind}): {study!r} is not among `studies`. Add it there.")
            found.append(part)
        return found


def read_item(path: Path) -> Item:
    """Read one item; every fault is named with the file and its key."""
    try:
        item = parse_config(read_yaml(path), Item)
        _ = item.parts
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return item


def read_items(folder: Path) -> dict[str, Item]:
    """Return all items of ``FOLDER/items`` by name: those of papers first, numbers in their own order."""
    items = {path.stem: read_item(path) for path in sorted((folder / "items").glob("*.yaml"))}
    return dict(sorted(items.items(), key=lambda pair: _order(*pair)))


def _order(name: str, item: Item) -> tuple[int, list[tuple[int, str]]]:
    papers = ["k-tied", "rank-1", "beyond"]
    words = name.removesuffix(".yaml").split("_")
    return papers.index(item.paper), [(int(word), "") if word.isdigit() else (-1, word) for word in words]
