"""How data may change after training: corruptions of images, and shifts of tables, series, records and texts.

``slimbayes.shifts.corruptions`` is also ``slimbayes.corruptions``. ``shifts_for`` gives the shifts that fit a data set.
"""

from slimbayes.shifts import corruptions as corruptions
from slimbayes.shifts._choose import shifts_for as shifts_for
from slimbayes.shifts.shift import CONSTANTS as CONSTANTS
from slimbayes.shifts.shift import Shift as Shift
