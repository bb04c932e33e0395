"""Matplotlib, asked for only when something is drawn."""

from typing import Any


def new_axes(columns: int = 1, rows: int = 1, width: float = 4.2, height: float = 3.2, **options: Any) -> Any:
    """Return new axes of matplotlib, one or an array of them, or raise an error that names the extra.

    Example:
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> new_axes(2).shape
        (2,)
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('Drawing needs matplotlib. Install it with: pip install "slimbayes[report]"') from error
    return pyplot.subplots(rows, columns, figsize=(width * columns, height * rows), layout="constrained", **options)[1]
