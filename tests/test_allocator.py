"""Memory that is freed stays with the process: counted by the pages that the system has to bring."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource, sys
import torch
from slimbayes._allocator import keep_freed_memory

asked = sys.argv[1] == "keep" and keep_freed_memory()

def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        torch.ones(2**24)  # 64 MiB, more than the C library keeps by itself
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count

faults(40)  # small pieces settle into the first few holes, which then no longer hold 64 MiB
print(json.dumps([asked, faults(20), resource.getpagesize()]))
"""


def run(how):
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other allocators")
def test_freed_memory_is_used_again():
    asked, kept, page = run("keep")
    if not asked:
        pytest.skip("the C library is not GNU's")
    _, returned, _ = run("leave")
    pages = 2**26 // page
    assert kept < 0.02 * pages
    assert returned > 10 * kept + 20  # even where the system brings huge pages
