"""Compiles the kernels of ``slimbayes.native`` when slimbayes is installed; without a compiler it goes on without."""

import hashlib
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/slimbayes/native")
SOURCES = ("kernels.c", "passes.inc", "laws.inc", "tied.inc", "products.inc", "convolutions.inc")
#: Nothing that changes what an expression means.
FLAGS = "-std=gnu11 -O3 -fPIC -shared -fno-math-errno -fno-trapping-math -fopenmp-simd"


class KernelBuild(BuildHookInterface):
    """Puts a shared library beside its sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this platform."""
        folder = Path(self.root) / FOLDER
        digest = hashlib.sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()[:16]
        library = folder / "kernels.so"
        unfinished = library.with_suffix(f".{os.getpid()}")
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1]
        command = [
            *compiler,
            *FLAGS.split(),
            f'-DSOURCE="{digest}"',
            str(folder / "kernels.c"),
            "-o",
            str(unfinished),
            "-lm",
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            library.unlink(missing_ok=True)
            self.app.display_warning(
                f"slimbayes goes without compiled kernels: {getattr(error, 'stderr', '') or error}"
            )
            return
        unfinished.replace(library)  # at once: somebody may be loading it
        build_data["artifacts"].append(str(FOLDER / library.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
