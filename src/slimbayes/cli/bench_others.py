"""What ``slimbayes bench`` measures beside its table and its suites: growth and service."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from slimbayes._files import write_json
from slimbayes.cli.output import check_out, progress_bar

__all__ = ["OTHERS", "describe", "draw_growth"]

#: Takes cases, networks, rounds, threads and the file to write; returns the results and what is shown of them.
Other = Callable[[list[str] | None, list[str] | None, int | None, int, Path], tuple[dict[str, Any], str]]


def growth(
    cases: list[str] | None, networks: list[str] | None, rounds: int | None, threads: int, out: Path
) -> tuple[dict[str, Any], str]:
    """Measure how a train step grows; cases are axes, networks those on which splitting is measured."""
    from slimbayes.bench.growth import SPLITTING_NETWORKS, run_growth
    from slimbayes.bench.growth_table import growth_table

    check_out(out, "bench-growth.json")
    results = run_growth(
        cases,
        rounds=rounds,
        splitting=SPLITTING_NETWORKS if networks is None else networks,
        threads=threads,
        progress=progress_bar("measuring", "round"),
        save=partial(write_json, out),
    )
    return results, growth_table(results)


def service(
    cases: list[str] | None, networks: list[str] | None, rounds: int | None, threads: int, out: Path
) -> tuple[dict[str, Any], str]:
    """Measure single requests; cases are forms, rounds are requests."""
    from slimbayes.bench.service import SERVED_NETWORKS, run_service
    from slimbayes.bench.service_table import service_table

    check_out(out, "bench-service.json")
    results = run_service(
        SERVED_NETWORKS if networks is None else networks,
        forms=cases,
        requests=rounds,
        threads=threads,
        progress=progress_bar("measuring", "batch"),
        save=partial(write_json, out),
    )
    return results, service_table(results)


#: By name.
OTHERS: dict[str, Other] = {"growth": growth, "service": service}


def describe() -> str:
    """Return a line on each and its cases, for ``--list``."""
    from slimbayes.bench.growth_points import AXES
    from slimbayes.bench.service_forms import FORMS

    return (
        f"growth: time and memory of a train step along axes\n  cases: {', '.join(AXES)}\n"
        f"service: latency and rows per second of predictions\n  cases: {', '.join(FORMS)}"
    )


def draw_growth(results: dict[str, Any], folder: Path) -> None:
    """Write a drawing of what ``growth`` returned."""
    from slimbayes.bench.growth_figure import growth_figure
    from slimbayes.report.svg import save

    save(growth_figure(results), folder)
