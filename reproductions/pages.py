"""One page for each table and figure, and one that lists them all."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reproductions.facts import Facts, facts_of
from reproductions.item import Item, read_items
from reproductions.show import Kind, Shown
from reproductions.stored import SHOWN_SCALES, Sources
from slimbayes._text_table import as_markdown

__all__ = ["MADE", "Page", "index", "item_page", "rebuild", "shown_part"]


#: Marks pages that are made, and may be made again or removed.
MADE = "<!-- Made by `python -m reproductions --results`: change the YAML, not this page. -->"

PAPERS = {
    "k-tied": "the k-tied paper ([Swiatkowski et al. 2020](https://arxiv.org/abs/2002.02655))",
    "rank-1": "the rank-1 paper ([Dusenberry et al. 2020](https://arxiv.org/abs/2005.07186))",
    "beyond": "",
}

_HEADINGS = {"k-tied": "The k-tied paper", "rank-1": "The rank-1 paper", "beyond": "Beyond the papers"}


class Page(NamedTuple):
    """A page and the figures that it shows, by file name."""

    text: str
    figures: dict[str, bytes]


def shown_part(name: str, item: Item, position: int, sources: Sources) -> Shown:
    """Return one part of an item's page; the paper's numbers alone, and a command, where nothing has been run."""
    part = item.parts[position]
    missing = [study for study in part.needs() if not sources.runs(study)]
    if part.needs() and len(missing) == len(part.needs()):
        command = " && ".join(_commands(part.needs(), sources))
        return Shown("\n\n".join(filter(None, [f"Not run yet: `{command}`.", part.unrun(), part.caption.strip()])))
    shown = part.render(sources, f"{name}-{position + 1}")
    partly = f"Not run yet: {', '.join(missing)}." if missing else ""
    return Shown("\n\n".join(filter(None, [shown.text, part.caption.strip(), partly])), dict(shown.figures))


def item_page(name: str, item: Item, sources: Sources) -> Page:
    """Return the page of an item.

    Args:
        name: Of its file.
        item: What it is.
        sources: Where its numbers come from.
    """
    facts = [one for study in item.studies if (one := facts_of(sources, study))]
    of_paper = PAPERS[item.paper]
    sections = [
        f"# {item.item}: {item.title}" if of_paper else f"# {item.title}",
        MADE,
        f"{item.item}, from {of_paper}. [All results](README.md)"
        if of_paper
        else f"{item.item}. [All results](README.md)",
        f"**Claim.** {item.claim.strip()}",
        f"**Does it hold here?** {_answer(item, sources)}. {item.reading.strip()}".strip(),
    ]
    figures: dict[str, bytes] = {}
    for position, part in enumerate(item.parts):
        shown = shown_part(name, item, position, sources)
        sections += [*_heading(part), shown.text]
        figures |= shown.figures
    if item.notes.strip():
        sections += ["## Notes", item.notes.strip()]
    if item.published:
        sections += ["## As published", _published(item, sources)]
    if item.studies:
        sections += ["## How it was run", *_how(facts), _run_again(name, item, sources)]
    return Page("\n\n".join(sections) + "\n", figures)


def index(items: Mapping[str, Item], sources: Sources) -> str:
    """Return the page that lists all items."""
    sections = [
        "# Results",
        MADE,
        "Every table and figure of both papers, and what goes beyond them. Each page has the paper's numbers beside "
        "ours, what was cut down, and whether the claim holds here. `python -m reproductions NAME` runs one of them, "
        "`python -m reproductions --results` makes these pages from `reproductions/results`.",
    ]
    for paper, heading in _HEADINGS.items():
        rows = [["item", "what", "name", "runs", "does the claim hold here?"]]
        for name, item in items.items():
            if item.paper == paper:
                link = f"[{item.item}]({name}.md)"
                rows.append(
                    [link, item.title, f"`{name}`", runs_in_words(item, sources), _answer(item, sources).lower()]
                )
        if len(rows) > 1:
            sections += [f"## {heading}", as_markdown(rows)]
    return "\n\n".join(sections) + "\n"


def runs_in_words(item: Item, sources: Sources) -> str:
    """Return how many of an item's runs are stored, such as ``9 of 12, small``."""
    counts: dict[str, list[int]] = {}
    for study in item.studies:
        if one := facts_of(sources, study):
            count = counts.setdefault(one.scale, [0, 0])
            count[0] += one.stored
            count[1] += one.planned
    if not item.studies:
        found = _progress(item, sources)
        return f"{sum(found.values())} of {len(found)}" if any(found.values()) else "none" if found else "needs none"
    unrun = sum(not sources.runs(study) for study in item.studies)
    words = [f"{stored} of {planned}, {scale}" for scale, (stored, planned) in counts.items()]
    if unrun and counts:
        words.append(f"{unrun} of {len(item.studies)} studies not run")
    return "; ".join(words) or "none"


def _progress(item: Item, sources: Sources) -> dict[str, bool]:
    """Return the runs that an item needs beside the studies, by name, and whether each is stored."""
    return {name: done for part in item.parts for name, done in part.progress(sources).items()}


def _answer(item: Item, sources: Sources) -> str:
    if item.verdict != "not run":
        return item.verdict.capitalize()
    if all(part.kind == "illustration" for part in item.parts):
        return "Nothing is measured"
    found = _progress(item, sources)
    unrun = not any(map(sources.runs, item.studies)) and not any(found.values())
    return "Not run yet" if unrun and (item.studies or found) else "Not judged yet"


def _heading(part: Kind) -> list[str]:
    return [f"## {part.heading}"] if part.heading else []


def _how(facts: Sequence[Facts]) -> list[str]:
    if not facts:
        return ["Not run yet. This runs it:"]
    rows = [["study", "scale", "runs", "seeds", "epochs", "hours", "cut down"]]
    for one in facts:
        link = f"[{one.study}](../../reproductions/results/{one.study}/{one.scale})"
        runs = f"{one.stored} of {one.planned}"
        rows.append([link, one.scale, runs, str(one.seeds), one.epochs, f"{one.hours:.1f}", one.cut])
    machines = list(dict.fromkeys(machine for one in facts for machine in one.on))
    commits = list(dict.fromkeys(commit for one in facts for commit in one.commits))
    made = f"On {'; '.join(machines)}. Commit{'s' * (len(commits) > 1)} {', '.join(commits)}."
    return [as_markdown(rows), made]


def _published(item: Item, sources: Sources) -> str:
    """Return how to run the paper's own configuration."""
    known = [(name, sources.studies[name]) for name in item.published if name in sources.studies]
    hours = [f"about {one.hours('paper'):,.0f} hours on {one.scale('paper').hardware}" for _, one in known]
    commands = [f"python -m reproductions {name} --scale paper" for name, _ in known]
    what = f"The paper's own configuration has not been run: {'; '.join(hours)}, all its runs one after another."
    return "\n".join([what, "", "```", *commands, "```"])


def _run_again(name: str, item: Item, sources: Sources) -> str:
    commands = _commands(item.studies, sources)
    if len(commands) == 1:
        commands = [f"python -m reproductions {name} --scale {_scale(item.studies[0], sources)}"]
    return "\n".join(["```", *commands, "```"])


def _commands(studies: Sequence[str], sources: Sources) -> list[str]:
    """Return what runs some studies, each at the scale that is shown, or that two cores can do."""
    by_scale: dict[str, list[str]] = {}
    for study in studies:
        by_scale.setdefault(_scale(study, sources), []).append(study)
    return [f"python -m reproductions {' '.join(names)} --scale {scale}" for scale, names in by_scale.items()]


def _scale(study: str, sources: Sources) -> str:
    scales = sources.studies[study].scales if study in sources.studies else {}
    return sources.scale(study) or ("paper" if "paper" in scales and "small" not in scales else "small")


#: ``<!-- results: NAME PART -->``: what stands between is one part of an item's page, the first being 1.
_BLOCK = re.compile(r"(<!-- results: (\w+) (\d+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def rebuild(folder: Path, docs: Path, readme: Path, scales: tuple[str, ...] = SHOWN_SCALES) -> list[Path]:
    """Write what is shown of the stored runs; the same runs give the same bytes.

    Args:
        folder: The folder with ``items``, ``studies`` and ``results``.
        docs: Gets ``results/NAME.md``, ``results/README.md`` and ``results/figures``.
        readme: Its blocks between ``<!-- results: NAME PART -->`` and ``<!-- end of results -->`` are replaced.
        scales: Scales whose runs are shown, the preferred one first.

    Returns:
        The files that have changed; figures that no page shows any more, and pages of no item, are removed.
    """
    items, sources, target = read_items(folder), Sources(folder, scales), docs / "results"
    files: dict[Path, bytes] = {target / "README.md": index(items, sources).encode()}
    for name, item in items.items():
        page = item_page(name, item, sources)
        files[target / f"{name}.md"] = page.text.encode()
        files |= {target / "figures" / figure: content for figure, content in page.figures.items()}
    if readme.exists():
        files[readme] = _with_blocks(readme, items, sources, target).encode()
    changed = [path for path, content in files.items() if _write(path, content)]
    pages = [path for path in sorted(target.glob("*.md")) if MADE in path.read_text()]
    stale = [path for path in [*pages, *sorted((target / "figures").glob("*"))] if path not in files]
    for path in stale:
        path.unlink()
    return changed + stale


def _with_blocks(readme: Path, items: dict[str, Item], sources: Sources, folder: Path) -> str:
    start_of_links = Path(os.path.relpath(folder, readme.parent)).as_posix()

    def block(match: re.Match[str]) -> str:
        start, name, part, end = match.groups()
        if name not in items or not 1 <= int(part) <= len(items[name].parts):
            raise ValueError(f"{readme} asks for part {part} of the item {name!r}, which does not exist.")
        shown = shown_part(name, items[name], int(part) - 1, sources)
        text = shown.text.replace("](figures/", f"]({start_of_links}/figures/")
        return f"{start}{text}\n{end}"

    return _BLOCK.sub(block, readme.read_text())


def _write(path: Path, content: bytes) -> bool:
    """Write a file unless it has this content."""
    if path.exists() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return True
