"""Compiles the kernels of ``slimbayes._fast`` when slimbayes is installed; without a compiler it goes on without."""

import hashlib
import json
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/slimbayes/_fast/native")
#: Nothing that changes what an expression means.
FLAGS = "-std=gnu11 -O3 -fPIC -shared -fno-math-errno -fno-trapping-math -fopenmp-simd"


class KernelBuild(BuildHookInterface):
    """Puts a shared library beside its sources, and its hash beside it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this platform."""
        folder = Path(self.root) / FOLDER
        sources = sorted([*folder.glob("*.c"), *folder.glob("*.inc")])
        library, hashes = folder / "kernels.so", folder / "kernels.json"
        unfinished = library.with_suffix(f".{os.getpid()}")
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1]
        command = [*compiler, *FLAGS.split(), str(folder / "kernels.c"), "-o", str(unfinished)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            library.unlink(missing_ok=True)
            hashes.unlink(missing_ok=True)
            self.app.display_warning(
                f"slimbayes goes without compiled kernels: {getattr(error, 'stderr', '') or error}"
            )
            return
        found = {
            "library": hashlib.sha256(unfinished.read_bytes()).hexdigest(),
            "sources": hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest(),
        }
        hashes.write_text(json.dumps(found, indent=2) + "\n")
        unfinished.replace(library)  # at once: somebody may be loading it
        build_data["artifacts"] += [str(FOLDER / library.name), str(FOLDER / hashes.name)]
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
