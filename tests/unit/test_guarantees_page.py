"""Does each line of docs/guarantees.md name a test that exists?"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = re.findall(r"`([\w/]+): (test_\w+)`", PAGE)


def test_every_test_the_page_names_exists() -> None:
    for file, name in NAMED:
        path = ROOT / "tests" / f"{file if '/' in file else f'chaos/{file}'}.py"
        assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE), f"{file}: {name}"


def test_every_promise_names_a_test_but_the_one_that_promises_nothing() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 4]
    promises = [row for row in rows if "what is promised" not in row]
    assert len(promises) > 20
    assert [row for row in promises if ": test_" not in row] == [
        "| any other `maxmemory-policy` | **nothing**: Redis deletes keys of runs and tells nobody | |"
    ]
