"""What the document on corruptions says of their speed is what is stored."""

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_document_says_how_fast_corruptions_were():
    stored = json.loads((ROOT / "benchmarks" / "results" / "corruption-speed.json").read_text())
    rates = stored["images_per_second"]
    slowest = min(rates, key=rates.get)
    page = (ROOT / "docs" / "corruptions.md").read_text()
    assert f"{stored['common']:,.0f} images a second over the 15 common types" in page
    assert f"{rates[slowest]:,.0f} of the slowest\n(`{slowest}`)" in page
    assert "dirty" not in stored["commit"]
