"""slimbayes --version."""

import subprocess
import sys

from command_line import invoke

import slimbayes


def test_version():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.output == f"slimbayes {slimbayes.__version__}\n"


def test_version_does_not_wait_for_torch():
    code = (
        "import sys; from slimbayes.cli.app import app; app(['--version'], standalone_mode=False); print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith("slimbayes 0.")
    assert "torch" not in out.split()
