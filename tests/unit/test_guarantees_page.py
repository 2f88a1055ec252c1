"""Does each line of docs/guarantees.md name a test that exists?"""

from __future__ import annotations

import re
from pathlib import Path

from consumers import recovery
from redisworld import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = re.findall(r"`([\w/]+): (test_\w+)`", PAGE)


def test_every_test_the_page_names_exists() -> None:
    for file, name in NAMED:
        path = ROOT / "tests" / f"{file if '/' in file else f'chaos/{file}'}.py"
        assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE), f"{file}: {name}"


def test_every_promise_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 4]
    promises = [row for row in rows if "what is promised" not in row]
    assert len(promises) > 20
    assert [row for row in promises if ": test_" not in row] == []


def test_how_long_recovery_takes_is_told_with_the_numbers_of_the_code() -> None:
    assert f"{recovery.PAGE * recovery.LOOKS:,} open runs or {400 * recovery.LOOKS:,} fields" in PAGE
    assert f"each {recovery.ENTRIES_PER_QUIET_TICK} messages in its streams, {recovery.MOST_QUIET_TICKS} T" in PAGE
    assert f"each {recovery.ENTRIES:,} messages" in PAGE
    assert f"each {recovery.SENT:,} lost messages" in PAGE
    assert f"Suspects beyond {recovery.REMEMBERED:,}" in PAGE
    assert f"`recover_every_ms` ({Settings().recover_every_ms // 1000} s)" in PAGE
