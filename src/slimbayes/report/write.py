"""Reports: one page for one run or many, and its figures and tables as files."""

import os
from collections.abc import Sequence
from pathlib import Path

from slimbayes._files import replacing
from slimbayes.evaluation.record import Evaluation
from slimbayes.report.comparison import Comparison
from slimbayes.report.export import write_table
from slimbayes.report.figures import drawings
from slimbayes.report.page import Markup, render
from slimbayes.report.sections import context
from slimbayes.report.svg import save, themed_svg
from slimbayes.report.tables import main_tables

__all__ = ["write_report"]


def write_report(
    evaluations: Sequence[Evaluation],
    out: str | os.PathLike[str],
    figures: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Path:
    """Write a page that holds everything it shows, and return its path.

    Args:
        evaluations: Of runs on one data set; those of the same title are the seeds of one method.
        out: The file to write, such as ``report.html``.
        figures: A folder for the figures as SVG and PDF and the tables as CSV, LaTeX and Markdown.
        title: The heading; by default what is compared.
    """
    comparison = Comparison(evaluations)
    tables, drawn = main_tables(comparison), drawings(comparison)
    page = render(
        "report.html.j2",
        **context(comparison, tables, [(drawing, Markup(themed_svg(drawing))) for drawing in drawn], title),
    )
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as (temporary,):
        temporary.write_text(page, encoding="utf-8")
    if figures is not None:
        folder = Path(figures)
        folder.mkdir(parents=True, exist_ok=True)
        for drawing in drawn:
            save(drawing, folder, ("svg", "pdf"))
        for table in tables.values():
            write_table(table, folder)
    return path
