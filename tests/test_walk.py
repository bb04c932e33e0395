"""The walk of docs/how-it-works.md: a train step visits few files, and the page names exactly these."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_follows_the_files_of_a_train_step():
    printed = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "walk.py")], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(printed) <= 8
    page = (ROOT / "docs" / "how-it-works.md").read_text()
    assert re.findall(r"^\d+\. `([\w/]+\.py)`", page, re.MULTILINE) == printed
