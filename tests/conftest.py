"""Shared fixtures."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

# Some virtual machines announce AMX and then stop the process for using it, in plain torch too: bfloat16
# convolutions, recurrences and attention die in backward with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import pytest
import torch

from compiled_kernels import needs_kernels, without_kernels


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_figures_left_open():
    """Pyplot warns when many figures are open."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def golden():
    """Arrays that edward2 and TensorFlow Probability computed."""
    with np.load(Path(__file__).parent / "golden" / "edward2.npz") as arrays:
        return dict(arrays)


@pytest.fixture(params=[pytest.param("compiled", marks=needs_kernels), "torch"])
def _each_way(request):
    """Run a test with the compiled kernels, and with torch's operations in their place."""
    with nullcontext() if request.param == "compiled" else without_kernels():
        yield
