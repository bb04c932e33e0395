"""The inputs that are worth looking at: the most uncertain, and the most confidently wrong."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from slimbayes.evaluation.record import Evaluation
from slimbayes.report._wording import number
from slimbayes.report.comparison import Comparison

#: Characters of all pictures in a page: a page of ten runs stays below 5 MB.
PICTURE_BUDGET = 2_000_000
#: Characters of a text, and values of a table, that a card has room for.
TEXT, VALUES = 400, 8


class Shelf(NamedTuple):
    """Examples of one kind.

    Attributes:
        title: What they have in common.
        cards: An example each, ready to show.
        wide: Whether they need room: texts and values do.
    """

    title: str
    cards: list[dict[str, Any]]
    wide: bool


class Picks(NamedTuple):
    """The examples of one run.

    Attributes:
        title: The method.
        seed: Of the run.
        shelves: By kind.
    """

    title: str
    seed: int | None
    shelves: list[Shelf]


def galleries(comparison: Comparison) -> list[Picks]:
    """Return the examples of the first seed of each method, fewer of each kind if their pictures are too large."""
    firsts = {title: group[0] for title, group in comparison.groups.items()}
    for most in range(12, 0, -1):
        picks = [_picks(title, one, most) for title, one in firsts.items()]
        if _size(picks) <= PICTURE_BUDGET:
            break
    return [one for one in picks if one.shelves]


def _picks(title: str, one: Evaluation, most: int) -> Picks:
    found = one.result()["clean"].get("gallery") or {}
    titles = {
        "uncertain": "Most uncertain",
        "wrong": "Largest errors for their standard deviation" if one.regression else "Most confidently wrong",
    }
    cards = {name: [_card(item) for item in (found.get(kind) or [])[:most]] for kind, name in titles.items()}
    shelves = [Shelf(name, own, not any(card["picture"] for card in own)) for name, own in cards.items() if own]
    return Picks(title, one.content.get("seed"), shelves)


def _card(item: dict[str, Any]) -> dict[str, Any]:
    picture = item.get("picture")
    text = item.get("text")
    return {
        "name": item.get("name", item.get("index")),
        "picture": picture if isinstance(picture, str) and picture.startswith("data:image/") else None,
        "text": text if text is None or len(text) <= TEXT else text[:TEXT].rsplit(" ", 1)[0] + " …",
        "values": {name: _text(value) for name, value in list((item.get("values") or {}).items())[:VALUES]},
        "facts": _facts(item),
        "bars": _bars(item),
    }


def _facts(item: dict[str, Any]) -> list[tuple[str, str]]:
    if "mean" in item:
        names = {"target": "Target", "mean": "Predicted", "aleatoric_std": "Noise", "epistemic_std": "Not known"}
        facts = [(words, _text(item.get(name))) for name, words in names.items()]
        return [
            (words, f"{text} ± {_text(item.get('std'))}" if words == "Predicted" else text) for words, text in facts
        ]
    return [
        ("Target", _text(item.get("target"))),
        ("Predicted", _text(item.get("label"))),
        ("Entropy", _text(item.get("entropy"))),
    ]


def _bars(item: dict[str, Any]) -> list[dict[str, Any]]:
    probs: dict[str, float] = item.get("probs") or {}
    return [
        {
            "name": name,
            "percent": _percent(share),
            "width": f"{100 * min(max(share, 0), 1):.1f}",
            "target": name == item.get("target"),
        }
        for name, share in probs.items()
        if share is not None
    ]


def _percent(share: float) -> str:
    """Return a share that only certainty rounds to 100%."""
    return "> 99.9%" if 0.9995 <= share < 1 else f"{100 * share:.1f}%"


def _text(value: object) -> str:
    return number(value) if isinstance(value, int | float | None) else str(value)


def _size(picks: Sequence[Picks]) -> int:
    return sum(len(card["picture"] or "") for one in picks for shelf in one.shelves for card in shelf.cards)
