"""The README is true: its code runs, its table is that of the stored results."""

import json
import re
from pathlib import Path

import pytest

from slimbayes.demo.table import table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_code_blocks_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), namespace)
    assert (tmp_path / "adapted" / "model.safetensors").stat().st_size < 50_000


def test_hello_world_has_at_most_eight_lines_and_fits_its_data(tmp_path):
    lines = [line for line in BLOCKS[0].splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 8
    namespace: dict[str, object] = {}
    exec(compile(BLOCKS[0].replace("range(100)", "range(300)"), "README.md", "exec"), namespace)
    p, y = namespace["p"], namespace["y"]
    assert (p.label == y).float().mean() > 0.8  # random labels: better than chance is memory, which is training
    assert (p.mutual_information > 0).all()


def test_the_demo_table_is_that_of_the_stored_run():
    results = json.loads((ROOT / "experiments" / "results" / "demo.json").read_text())
    assert results["commit"]
    assert results["hardware"]["processor"]
    assert results["settings"]["seeds"] >= 3
    assert table(results, markdown=True) in README


def test_exactly_two_commands():
    block = re.search(r"## Two commands\n\n```\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block.group(1).splitlines()] == ["make demo", "make test"]


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!http)[^)]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
