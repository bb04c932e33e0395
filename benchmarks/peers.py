"""The price of a train step with other libraries' layers, in one interleaved run with ours.

``python -m benchmarks.peers``, with any Python, makes an environment for the peers on first use and runs there.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import peer_environment

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "benchmarks" / "results" / "peers.json"

#: The cases of ``run_price`` that peers are compared with.
OURS = ("batch_ensemble", "rank1 shared", "rank1 per example")


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", help="only these, separated by commas, such as mlp_512,conv_16")
    parser.add_argument("--rounds", type=int, default=30, help="timings of each case (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-peers.json"), help="JSON to write (%(default)s)")
    parser.add_argument(
        "--store", action="store_const", dest="out", const=STORED, help="write what python -m benchmarks shows instead"
    )
    parser.add_argument(
        "--venv", type=Path, default=ROOT / "benchmarks" / ".venv", help="the peers' environment (benchmarks/.venv)"
    )
    options = parser.parse_args(words)
    if options.out == STORED and options.networks:
        parser.error("--store is for a run of all networks")
    return options


def measure(networks: Sequence[Any], rounds: int) -> dict[str, Any]:
    """Return the results of all peers on all networks, as JSON values.

    Args:
        networks: Their names, or the networks themselves.
        rounds: Timings of each case.
    """
    from functools import partial
    from importlib.metadata import version

    from benchmarks.networks import BenchNetwork
    from benchmarks.peer_cases import PACKAGES, PEERS, peer_step
    from benchmarks.price import run_price
    from slimbayes.cli.output import progress_bar

    failed: dict[str, dict[str, str]] = {}

    def peers_on(network: BenchNetwork) -> dict[str, Any]:
        cases = {}
        for name, build in PEERS.items():
            try:
                peer_step(network, build)
            except Exception as error:  # whatever a peer raises is what is stored
                failed.setdefault(network.name, {})[name] = f"{type(error).__name__}: {error}"
            else:
                cases[name] = partial(peer_step, network, build)
        return cases

    report = progress_bar("measuring", "%")
    results = run_price(networks, rounds, progress=report, extra_cases=peers_on, cases=OURS, profile="none")
    results.pop("profiles")
    columns = ("seconds", "ratio", "quartiles", "interval")
    return {
        **results,
        "suite": "peers",
        "versions": {**results["versions"], **{package: version(package) for package in PACKAGES}},
        "results": {
            network: {case: {column: row[column] for column in columns} for case, row in cases.items()}
            for network, cases in results["results"].items()
        },
        "failed": failed,
    }


def table(results: dict[str, Any]) -> str:
    """Return the ratios as text: a row for each case, a column for each network."""
    from slimbayes._text_table import aligned

    networks = results["results"]
    cases = dict.fromkeys(case for rows in networks.values() for case in rows)
    body = [
        [case, *(f"{rows[case]['ratio']:.2f}" if case in rows else "" for rows in networks.values())] for case in cases
    ]
    return aligned([["train step, ratio to plain", *networks], *body])


def main() -> None:
    """Measure, print and write."""
    options = arguments()
    if not peer_environment.is_inside(options.venv):
        peer_environment.enter(options.venv, "benchmarks.peers")
    from benchmarks.networks import PLAIN_NETWORKS
    from slimbayes._checks import check_choice
    from slimbayes._files import write_json

    names = options.networks.split(",") if options.networks else list(PLAIN_NETWORKS)
    try:
        for name in names:
            check_choice("--networks", name, PLAIN_NETWORKS)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    results = measure(names, options.rounds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.out, results)
    print(table(results))
    for network, reasons in results["failed"].items():
        for case, reason in reasons.items():
            print(f"{network}: {case} was not measured. {reason}")
    if results["warning"]:
        print(results["warning"], file=sys.stderr)
    print(f"Settings, versions and hardware: {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
