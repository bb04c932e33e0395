"""From a table to a configuration: what `slimbayes train table.csv` trains and `slimbayes init table.csv` writes."""

import math
import os
from typing import Any

from slimbayes.data.guess import TASK_WORDS, TableGuess

__all__ = ["table_content"]

#: Steps that a table is trained for, within bounds of the epochs.
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 4000, 20, 200
#: Batch sizes, and the rows up to which they are taken.
BATCHES = {32: 2_000, 128: 20_000, 512: math.inf}
#: Share of the rows that the data set `table` trains on if nobody says otherwise.
TRAINED_ON = 0.7


def table_content(guess: TableGuess, target: str) -> dict[str, Any]:
    """Return the keys and values of a configuration for a table; the method and all else are the defaults.

    Args:
        guess: What the table is taken for.
        target: Column to predict.

    Example:
        >>> from pathlib import Path
        >>> content = table_content(TableGuess(Path("/a.csv"), 1000, "classes", (), {"ignore": ["id"]}), "pet")
        >>> content["data"]
        {'name': 'table', 'path': '/a.csv', 'target': 'pet', 'task': 'categorical', 'ignore': ['id']}
        >>> content["epochs"], content["batch_size"]
        (183, 32)
    """
    batch = next(size for size, rows in BATCHES.items() if guess.rows <= rows)
    epochs = math.ceil(STEPS * batch / max(1.0, TRAINED_ON * guess.rows))
    return {
        "data": {
            "name": "table",
            "path": os.path.abspath(guess.path),
            "target": target,
            "task": TASK_WORDS[guess.task],
            **guess.options,
        },
        "net": {"name": "mlp", "hidden": [100, 100]},
        "method": {"name": "rank1"},
        "optimiser": {"name": "adam", "lr": 0.003},
        "epochs": min(max(epochs, FEWEST_EPOCHS), MOST_EPOCHS),
        "batch_size": batch,
    }
