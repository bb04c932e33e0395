"""A table as people have them."""

import datetime
from pathlib import Path

import numpy as np


def messy_csv(folder: Path, rows: int = 200) -> Path:
    """Write houses.csv: dates, categories, codes, missing values, decimal commas, and columns that tell nothing."""
    random = np.random.default_rng(0)
    lines = ["id;sold;size;town;zip;currency;rooms;garden;owner;nothing;price"]
    for row in range(rows):
        day = datetime.date(2020, 1, 1) + datetime.timedelta(int(random.integers(900)))
        size, rooms, garden = random.uniform(20, 200), random.integers(11, 30) / 10, random.random() < 0.5
        town = ("Bath", "York", "Leeds")[row % 3]
        price = size * (2 + (town == "Bath")) + 30 * garden + 5 * random.normal()
        fields = [
            str(row + 1),
            str(day),
            f"{size:.1f}".replace(".", ","),
            "" if row % 20 < 3 else town,
            f"{row % 12:05d}",
            "EUR",
            "NA" if row % 25 == 0 else f"{rooms:.1f}".replace(".", ","),
            str(bool(garden)).lower(),
            f"owner {row}",
            "",
            f"{price:.2f}".replace(".", ","),
        ]
        lines.append(";".join(fields))
    path = folder / "houses.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
