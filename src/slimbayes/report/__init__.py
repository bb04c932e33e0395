"""Reports: a page for one run or a comparison of many, and a page for one prediction."""

from typing import TYPE_CHECKING

from slimbayes._lazy import lazily

if TYPE_CHECKING:
    from slimbayes.report.comparison import Comparison as Comparison
    from slimbayes.report.prediction_page import write_prediction_page as write_prediction_page
    from slimbayes.report.report_page import write_report as write_report

__all__ = ["Comparison", "write_prediction_page", "write_report"]

_PLACES = {"Comparison": "comparison", "write_prediction_page": "prediction_page", "write_report": "report_page"}

__getattr__ = lazily("slimbayes.report", _PLACES)
