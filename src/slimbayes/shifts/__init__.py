"""Shifts of tables, series, records and texts: what corruptions are to images; see ``shifts_for``."""

from slimbayes.shifts.base import CONSTANTS as CONSTANTS
from slimbayes.shifts.base import Shift as Shift
from slimbayes.shifts.choose import shifts_for as shifts_for
