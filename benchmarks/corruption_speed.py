"""Images a second that each common corruption makes: ``python -m benchmarks.corruption_speed OUT.json``.

CPU time of one thread, all five severities, 32x32 colour images in blocks of 500; the fastest of three rounds.
"""

import sys
import time
from pathlib import Path

import torch

from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes.shifts.corruptions import COMMON, EXTRA, corrupt

IMAGES, ROUNDS = 500, 3


def seconds(name: str, severity: int, images: torch.Tensor) -> float:
    """Return the CPU time of one block; the fastest of a few rounds."""
    corrupt(images[:2], name, severity)  # what is made once, such as frost's photographs
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        corrupt(images, name, severity)
        found.append(time.process_time() - start)
    return min(found)


def main(out: Path) -> None:
    """Measure all corruptions and write images a second by type, and of the 15 common ones together."""
    torch.set_num_threads(1)
    images = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    spent = {name: sum(seconds(name, severity, images) for severity in range(1, 6)) for name in (*COMMON, *EXTRA)}
    rates = {name: 5 * IMAGES / time for name, time in spent.items()}
    together = 5 * IMAGES * len(COMMON) / sum(spent[name] for name in COMMON)
    settings = {"images": IMAGES, "side": 32, "rounds": ROUNDS, "severities": 5, "threads": 1}
    write_json(out, {"settings": settings, **provenance(), "images_per_second": rates, "common": together})
    print(f"{together:.0f} images a second over the common types; slowest {min(rates, key=lambda name: rates[name])}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
