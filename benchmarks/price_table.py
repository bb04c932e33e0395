"""The price table, for people."""

import json
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

from benchmarks.lstm import LSTM, LSTM_ROWS
from benchmarks.networks import NETWORKS
from benchmarks.price_rows import ROWS
from slimbayes._text_table import aligned, as_markdown

__all__ = ["misses", "peers", "peers_table", "price_table", "profile_table"]

MISSED = "*"


def price_table(results: dict[str, Any], markdown: bool = False, stored_peers: dict[str, Any] | None = None) -> str:
    """Return the price of every method on every network as text.

    Args:
        results: What ``run_price`` returned.
        markdown: Write Markdown tables instead of aligned columns.
        stored_peers: What other libraries cost, from ``peers()``; None to leave them out.

    Example:
        >>> plain = {"seconds": 0.01, "ratio": 1.0, "quartiles": [1.0, 1.0], "interval": [1.0, 1.0]}
        >>> shared = {**plain, "ratio": 1.2, "interval": [1.1, 1.3], "target": 1.15, "met": False}
        >>> settings = {"networks": {"conv_16": {"title": "conv 16", "rows": 128}}, "threads": 1, "members": 4}
        >>> print(price_table({"settings": settings, "results": {"conv_16": {"plain": plain, "rank1 shared": shared}}}))
                                        conv 16
        plain network, train step       10.0 ms
        rank1, shared draw, train step  1.20 (1.15) *
        Ratio to the plain network on as many rows, median of interleaved rounds; expected in brackets, * exceeds it.
        4 members, 1 thread; rows: conv 16 128.
        Above what was expected:
        - rank1, shared draw, train step on conv 16: 1.20 (95% interval 1.10 to 1.30), expected 1.15
    """
    networks = {name: one for name, one in results["settings"]["networks"].items() if name != LSTM.name}
    measured = {name: results["results"].get(name, {}) for name in networks}
    titles = {row.name: row.title for row in ROWS.values()}
    titles |= {name: name for one in measured.values() for name in one if name not in titles}
    lines = []
    rows = _rows(titles, networks, measured)
    if len(rows) > 1:
        lines += [_laid_out(rows, markdown), *([""] if markdown else [])]
        lines.append(
            "Ratio to the plain network on as many rows, median of interleaved rounds; expected in brackets, "
            f"{MISSED} exceeds it."
        )
    settings = results["settings"]
    count = ", ".join(f"{one['title']} {one['rows']}" for one in settings["networks"].values())
    threads = f"{settings['threads']} thread{'s' if settings['threads'] > 1 else ''}"
    lines.append(f"{settings['members']} members, {threads}; rows: {count}.")
    if sentence := _lstm(results["results"].get(LSTM.name, {}), LSTM.title):
        lines.append(sentence)
    if missed := misses(results):
        lines += ["Above what was expected:", *([""] if markdown else []), *(f"- {words}" for words in missed)]
    if stored_peers is not None:
        lines += ["", *peers_table(stored_peers, networks, markdown)]
    return "\n".join(lines)


def misses(results: dict[str, Any]) -> list[str]:
    """Return what costs more than expected, each in words.

    Args:
        results: What ``run_price`` returned.

    Example:
        >>> misses({"settings": {"networks": {}}, "results": {}})
        []
    """
    found = []
    for network, cases in results["results"].items():
        title = results["settings"]["networks"][network]["title"]
        for name, one in cases.items():
            if one.get("met") is False:
                low, high = one.get("interval", (None, None))
                spread = "" if low is None else f" (95% interval {low:.2f} to {high:.2f})"
                found.append(f"{ROWS[name].title} on {title}: {one['ratio']:.2f}{spread}, expected {one['target']:.2f}")
    return found


def profile_table(results: dict[str, Any], top: int = 5) -> str:
    """Return where time and memory go in the cases that were profiled, a line each; empty if none was.

    Args:
        results: What ``run_price`` returned.
        top: Operators to name.

    Example:
        >>> mm, mul = ({"operator": name, "milliseconds": ms} for name, ms in (("aten::mm", 6.5), ("aten::mul", 1.3)))
        >>> profiles = {"mlp_512": {"plain": [mm], "rank1 split": [{**mm, "milliseconds": 7.0}, mul]}}
        >>> settings = {"networks": {"mlp_512": {"title": "MLP 512"}}}
        >>> print(profile_table({"settings": settings, "profiles": profiles}))
        network  case         ms of a step by operator: the plain network's, and what a method adds to them
        MLP 512  plain        aten::mm 6.5
        MLP 512  rank1 split  aten::mul +1.3, aten::mm +0.5
    """
    headings = {
        "milliseconds": "ms of a step by operator: the plain network's, and what a method adds to them",
        "bytes": "MiB held at the peak, by the operator that made it: the plain network's, and what a method adds",
    }
    tables = []
    for unit, heading in headings.items():
        rows = [row for network in results["profiles"] for row in _profile_rows(results, network, unit, top)]
        tables += [aligned([["network", "case", heading], *rows])] if rows else []
    return "\n\n".join(tables)


def _profile_rows(results: dict[str, Any], network: str, unit: str, top: int) -> Iterator[list[str]]:
    title, plain = results["settings"]["networks"][network]["title"], {}
    for case, spots in results["profiles"][network].items():
        share = 2**20 if unit == "bytes" else 1
        costs = {one["operator"]: one[unit] / share for one in spots if unit in one}
        if not costs:
            continue
        if case.startswith("plain"):  # comes before what is divided by it
            plain, shown, sign = costs, costs, ""
        else:
            shown, sign = {name: cost - plain.get(name, 0.0) for name, cost in costs.items()}, "+"
        most = sorted(shown, key=shown.__getitem__, reverse=True)[:top]
        yield [title, case, ", ".join(f"{name} {shown[name]:{sign}.1f}" for name in most)]


def peers() -> dict[str, Any] | None:
    """Return what other libraries cost, as ``benchmarks.peers`` measured it; None if it has not been stored.

    Example:
        >>> stored = peers()
        >>> stored is None or "results" in stored
        True
    """
    path = files("benchmarks") / "results" / "peers.json"
    return json.loads(path.read_text()) if path.is_file() else None


def _rows(titles: dict[str, str], networks: dict[str, Any], measured: dict[str, Any]) -> list[list[str]]:
    heading = ["", *(one["title"] for one in networks.values())]
    rows = [
        [title, *(_cell(name, measured[network].get(name)) for network in networks)] for name, title in titles.items()
    ]
    return [heading, *(row for row in rows if any(row[1:]))]


def _cell(name: str, one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    if name.startswith("plain"):
        return f"{1000 * one['seconds']:.1f} ms" if "seconds" in one else f"{one['bytes'] / 2**20:.1f} MiB"
    target = one.get("target")
    ratio = f"{one['ratio']:.2f}"
    return ratio if target is None else f"{ratio} ({target:.2f}){'' if one['met'] else ' ' + MISSED}"


def _laid_out(rows: list[list[str]], markdown: bool) -> str:
    return as_markdown(rows) if markdown else aligned(rows)


def _lstm(cases: dict[str, Any], title: str) -> str:
    ratios = [
        f"{ratio:.2f} times {words}"
        for name, words in {"rank1 loop": "our plain loop", "rank1 loop against nn.LSTM": "nn.LSTM"}.items()
        if (ratio := cases.get(name, {}).get("ratio")) is not None
    ]
    what = LSTM_ROWS["rank1 loop"].title
    return f"{title}, {what}: {' and '.join(ratios)} (stated, no target)." if ratios else ""


def peers_table(stored: dict[str, Any], networks: Iterable[str] | None = None, markdown: bool = True) -> list[str]:
    """Return what other libraries cost, in lines: when and where it was measured, and the table.

    Args:
        stored: What ``peers()`` returned.
        networks: Names, in order; None for all that were measured.
        markdown: Write a Markdown table instead of aligned columns.

    Example:
        >>> peers_table({"results": {}})
        []
    """
    titles_of = {name: NETWORKS[name].title if name in NETWORKS else name for name in networks or stored["results"]}
    measured = {network: stored["results"].get(network, {}) for network in titles_of}
    titles = {
        name: f"slimbayes {name}" if name in ROWS else name
        for cases in measured.values()
        for name, one in cases.items()
        if not name.startswith("plain") and "quartiles" in one
    }
    hardware = stored.get("hardware", {})
    when = f"measured {stored.get('time', 'at an unknown time')[:10]} on {hardware.get('processor', 'another machine')}"
    rows = _rows(titles, {name: {"title": title} for name, title in titles_of.items()}, measured)
    if len(rows) == 1:
        return []
    line = f"Peers, train step, ratio to the plain network in one interleaved run, {when}:"
    return [line, *([""] if markdown else []), _laid_out(rows, markdown)]
