"""The tables of docs/bench*.md from the stored runs: ``python -m benchmarks.pages``, which ``make results`` calls."""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.growth import growth_points_table, growth_table, splitting_table
from benchmarks.price_table import peers, peers_table, price_table, profile_table
from benchmarks.service import service_table
from benchmarks.suite_run import table

__all__ = ["with_tables"]

ROOT = Path(__file__).parent.parent
PAGES = ("bench.md", "bench-growth.md", "bench-service.md")
#: ``<!-- table: NAME -->``: what stands between this and the end is made from a stored run.
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def _stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    return found


def _table(name: str) -> str:
    """Return what a block of this name holds."""
    if name == "price":
        return price_table(_stored("bench"), markdown=True)
    if name == "profile":
        return f"```\n{profile_table(_stored('bench'))}\n```"
    if name == "peers":
        return "\n".join(peers_table(peers() or {"results": {}}))
    if name == "growth":
        run = _stored("bench-growth")
        return f"{growth_table(run, markdown=True).split(chr(10) * 2)[0]}\n\n{growth_points_table(run, markdown=True)}"
    if name == "splitting":
        return splitting_table(_stored("bench-growth"), markdown=True)
    if name == "service":
        return service_table(_stored("bench-service"), markdown=True)
    return table(_stored(f"bench-{name}"), markdown=True)


def with_tables(page: str) -> str:
    """Return a page with every table made anew.

    Example:
        >>> with_tables("Nothing to replace.")
        'Nothing to replace.'
    """
    return BLOCK.sub(lambda block: f"{block[1]}{_table(block[2])}\n{block[3]}", page)


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / "docs" / name
        path.write_text(with_tables(path.read_text()))
