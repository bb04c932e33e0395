"""The README and the pages of docs are true: their code runs, the demo's table is that of the stored results."""

import json
import re
from pathlib import Path

import pytest
import torch

from reproductions.study import read_study
from slimbayes.demo import table
from slimbayes.methods import registry
from slimbayes.training._cells import cells_of
from slimbayes.training._grid_file import is_grid, read_grid
from slimbayes.training.parsing import load_config, read_yaml

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DEMO = (ROOT / "docs" / "demo.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_code_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    try:
        for block in blocks(page):
            exec(compile(block, page.name, "exec"), namespace)
    finally:  # what a page registers ends with it
        for name in set(registry.method_names()) - set(registry.BUILT_IN):
            del registry._REGISTERED[name]
    if page.name == "adapters.md":
        assert (tmp_path / "adapted" / "model.safetensors").stat().st_size < 50_000


def test_hello_world_has_at_most_eight_lines_and_learns():
    hello = blocks(PAGES[0])[1]
    lines = [line for line in hello.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 8
    namespace: dict[str, object] = {}
    exec(compile(hello, "README.md", "exec"), namespace)
    model = namespace["model"]
    x = torch.randn(1000, 8)
    p = model.predict(x, samples=4, seed=0)
    right = p.label == x[:, :3].argmax(1)
    assert right.float().mean() > 0.85
    assert p.entropy[~right].mean() > 2 * p.entropy[right].mean()  # it knows where it is wrong
    assert p.mutual_information[~right].mean() > 2 * p.mutual_information[right].mean()


def test_the_first_example_is_three_lines_on_a_table():
    data, *lines = [line for line in blocks(PAGES[0])[0].splitlines() if line.strip()]
    assert "# your table" in data
    assert len(lines) <= 3
    assert "return_std=True" in lines[-1]


def test_the_demo_table_is_that_of_the_stored_run():
    results = json.loads((ROOT / "reproductions" / "results" / "demo.json").read_text())
    assert results["commit"]
    assert results["hardware"]["processor"]
    assert results["settings"]["seeds"] >= 3
    assert table(results, markdown=True) in DEMO


def test_the_readme_is_short_and_every_page_is_in_the_index():
    assert len(README.splitlines()) <= 120
    index = (ROOT / "docs" / "index.md").read_text()
    assert not [
        page.name for page in PAGES if f"{page.name})" not in index and page.name not in ("README.md", "index.md")
    ]


def test_exactly_two_commands():
    block = re.search(r"## Two commands\n\n```\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block.group(1).splitlines()] == ["make demo", "make test"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(((?!http)[^)]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configurations_are_right(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```yaml\n# (?:\S+/)?(\S+?\.yaml).*?\n(.*?)```", page.read_text(), re.DOTALL):
        name, text = block
        Path(name).write_text(text)
        content = read_yaml(Path(name))
        if "scales" in content:
            assert len(read_study(Path(name)).cells("small")) > 1
        elif is_grid(content):
            assert len(cells_of(read_grid(name))) > 1
        else:
            assert load_config(name).data.name == content["data"]


def test_both_kinds_of_configuration_are_shown():
    text = (ROOT / "docs" / "training.md").read_text()
    assert "# digits.yaml" in text
    assert "# grid.yaml" in text
