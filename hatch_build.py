"""Compiles the C kernels when slimbayes is built; without a compiler, or with SLIMBAYES_PURE=1, the wheel is pure."""

import hashlib
import json
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Where the C sources are.
FOLDER = "src/slimbayes/_fast/native"
#: Set to 1, it makes a wheel without compiled kernels.
PURE = "SLIMBAYES_PURE"
#: Nothing here changes what an expression means.
FLAGS = "-std=gnu11 -O3 -fPIC -shared -fno-math-errno -fno-trapping-math -fopenmp-simd"


def source_hash(folder: Path) -> str:
    """Return a hash of the C sources in the order of their names; slimbayes computes the same when it is used."""
    sources = sorted([*folder.glob("*.c"), *folder.glob("*.inc")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


class KernelBuild(BuildHookInterface):
    """Puts a shared library and its hash beside the sources, and names the wheel's platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel ``py3-none-PLATFORM``: a library called through ctypes fits any Python."""
        folder = Path(self.root) / FOLDER
        if not folder.is_dir():
            return
        library, hashes = folder / "kernels.so", folder / "kernels.json"
        if os.environ.get(PURE, "0") not in ("", "0"):
            # A library from an earlier build stays where it is, for those who work in this tree; Git ignores it, and
            # so does the wheel, which takes only what is named an artifact.
            return
        unfinished = library.with_suffix(f".{os.getpid()}")
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1]
        command = [*compiler, *FLAGS.split(), str(folder / "kernels.c"), "-o", str(unfinished)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            library.unlink(missing_ok=True)
            hashes.unlink(missing_ok=True)
            unfinished.unlink(missing_ok=True)
            self.app.display_warning(
                f"slimbayes goes without compiled kernels: {getattr(error, 'stderr', '') or error}"
            )
            return
        # slimbayes compares both before it loads the library.
        digest = hashlib.sha256(unfinished.read_bytes()).hexdigest()
        hashes.write_text(json.dumps({"library": digest, "sources": source_hash(folder)}, indent=2) + "\n")
        unfinished.replace(library)  # at once: somebody may be loading it
        build_data["artifacts"] += [path.relative_to(self.root).as_posix() for path in (library, hashes)]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
