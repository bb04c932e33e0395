"""Figures are closed: pyplot warns when many are open."""

import pytest


@pytest.fixture(autouse=True)
def _no_figures_left_open():
    yield
    from matplotlib import pyplot

    pyplot.close("all")
