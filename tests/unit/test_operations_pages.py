"""Do the pages on dead letters and doctor name every reason and every finding, as the code does?"""

from __future__ import annotations

import re
from pathlib import Path

from redisworld.world.dead import REASONS
from redisworld.world.findings import KINDS
from tests.conformance.test_burials import BURIALS

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = (DOCS / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_the_page_on_dead_letters_tells_of_each_reason_what_becomes_of_the_run() -> None:
    told = {cells[0].strip("`"): cells[2] for cells in rows("dead-letters.md") if cells[0].strip("`") in REASONS}

    assert set(told) == set(REASONS)
    for reason, outcome, code in BURIALS.values():
        assert told[reason].startswith({"failed": f"fails with `{code}`"}.get(outcome, outcome))


def test_the_page_on_doctor_has_every_code_and_says_which_fix_mends() -> None:
    told = {found[1]: cells[2] for cells in rows("doctor.md") if (found := re.match(r"`(\w+)`", cells[1]))}

    assert set(told) == set(KINDS)
    assert {code for code, remedy in told.items() if "--fix" in remedy} == {
        c for c, kind in KINDS.items() if kind.fixed
    }
