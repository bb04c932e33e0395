"""Where a number comes from: commit, versions and hardware, for every result that is written to a file."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import slimbayes


def provenance() -> dict[str, Any]:
    """Return the commit, versions, hardware and time as JSON values.

    Example:
        >>> sorted(provenance())
        ['commit', 'hardware', 'time', 'versions']
    """
    return {
        "commit": _commit(),
        "versions": {
            "slimbayes": slimbayes.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """Return the commit of the source tree, marked if it has been changed; None outside a checkout."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        tracked = git("ls-files", "--", str(Path(__file__).resolve()))
        return (
            git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ".") else "")
            if tracked
            else None
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
