"""Is the transition table whole, and does the page that people read say the same?"""

from __future__ import annotations

from pathlib import Path

import pytest

from redisworld.events import EventKind
from redisworld.fences import FENCES, transitions
from redisworld.runs import Status
from tests.conformance import fence_page

PAGE = Path(__file__).parents[2] / "docs" / "fences.md"


def test_every_kind_of_event_has_a_fence_or_is_written_by_one() -> None:
    written = {kind for fence in FENCES.values() for row in fence.rows.values() for kind in row.open.writes}
    assert set(EventKind) == set(FENCES) | {EventKind.HOOK_CONFLICT}
    assert written | {EventKind.RUN_CREATED, EventKind.RUN_STARTED} == set(EventKind)


def test_nothing_starts_or_is_created_on_a_terminal_run() -> None:
    written = {
        (kind, written)
        for kind, fence in FENCES.items()
        for row in fence.rows.values()
        for status in Status
        if status.terminal
        for written in row.cell(status).writes
    }
    assert written == {(EventKind.STEP_COMPLETED,) * 2, (EventKind.STEP_FAILED,) * 2}


def test_no_status_of_a_run_comes_back_and_nothing_follows_a_terminal_one() -> None:
    after = [(before, status) for before, _, status in transitions("run")]
    assert {before for before, _ in after} == {"absent", Status.PENDING, Status.RUNNING}
    order = ["absent", "pending", "running", "completed", "failed", "cancelled"]
    assert all(order.index(before) < order.index(status) for before, status in after)


@pytest.mark.parametrize("subject", ["step", "wait", "hook"])
def test_what_has_ended_stays_so(subject: str) -> None:
    ended = {"completed", "failed", "cancelled", "disposed", "conflict"}
    assert not {before for before, _, _ in transitions(subject)} & ended  # type: ignore[arg-type]


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text() == fence_page.render(), "run `python -m tests.conformance.fence_page`"
