"""All pages, figures and the README's block, made again from the stored runs."""

import os
import re
from pathlib import Path

from slimbayes.experiments.item import Item, read_items
from slimbayes.experiments.page import MADE, index, item_page, shown_part
from slimbayes.experiments.sources import SHOWN_SCALES, Sources

__all__ = ["rebuild"]

#: ``<!-- results: NAME PART -->``: what stands between is one part of an item's page, the first being 1.
_BLOCK = re.compile(r"(<!-- results: (\w+) (\d+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def rebuild(experiments: Path, docs: Path, readme: Path, scales: tuple[str, ...] = SHOWN_SCALES) -> list[Path]:
    """Write what is shown of the stored runs; the same runs give the same bytes.

    Args:
        experiments: The folder with the items (``*.yaml``), ``studies`` and ``results``.
        docs: Gets ``results/NAME.md``, ``results/README.md`` and ``results/figures``.
        readme: Its blocks between ``<!-- results: NAME PART -->`` and ``<!-- end of results -->`` are replaced.
        scales: Scales whose runs are shown, the preferred one first.

    Returns:
        The files that have changed; figures that no page shows any more, and pages of no item, are removed.
    """
    items, sources, folder = read_items(experiments), Sources(experiments, scales), docs / "results"
    files: dict[Path, bytes] = {folder / "README.md": index(items, sources).encode()}
    for name, item in items.items():
        page = item_page(name, item, sources)
        files[folder / f"{name}.md"] = page.text.encode()
        files |= {folder / "figures" / figure: content for figure, content in page.figures.items()}
    if readme.exists():
        files[readme] = _with_blocks(readme, items, sources, folder).encode()
    changed = [path for path, content in files.items() if _write(path, content)]
    pages = [path for path in sorted(folder.glob("*.md")) if MADE in path.read_text()]
    stale = [path for path in [*pages, *sorted((folder / "figures").glob("*"))] if path not in files]
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
