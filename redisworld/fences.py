"""Which event may be written in which state, and what does it answer? The transition table (design section 7).

One row for each state an event can meet, one cell for a run that is open (pending or running) and one for a run that is
terminal. The Lua scripts each guard themselves; ``tests/conformance/test_matrix.py`` fires every event in every state
at a real Redis and compares word, row and log with this table, and ``docs/fences.md`` is made from it.

The words are those of a single event (``World.events``, ``World.hooks``, and ``claim`` and ``complete`` of
``World.deliveries``). A replay pass commits many at once and skips what would answer ``conflict``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from redisworld.events import EventKind
from redisworld.runs import Status

Subject = Literal["run", "attributes", "patch", "step", "wait", "hook"]


class Cell(msgspec.Struct, frozen=True):
    """What an event does in one state: the word it answers and, where it writes, the events and the state after."""

    answer: str
    writes: tuple[EventKind, ...] = ()
    becomes: str = ""


class Row(msgspec.Struct, frozen=True):
    """The cells of one state. ``pending`` and ``cancelled`` are given where these statuses differ from their kind."""

    open: Cell
    terminal: Cell
    pending: Cell | None = None
    cancelled: Cell | None = None

    def cell(self, status: Status) -> Cell:
        """The cell for a run of this status."""
        if status is Status.PENDING and self.pending:
            return self.pending
        if status is Status.CANCELLED and self.cancelled:
            return self.cancelled
        return self.terminal if status.terminal else self.open


class Fence(msgspec.Struct, frozen=True):
    """The fence of one kind of event: its rows by the state of its subject.

    ``observed``: the body can see the event, so the run is woken. ``bounded``: a log at its ceiling refuses it with
    ``full`` and the run ends. ``absent`` is the answer where the run does not exist; no key is written then.
    """

    subject: Subject
    rows: dict[str, Row]
    observed: bool = False
    bounded: bool = True
    absent: Cell = Cell("not_found")


def _says(answer: str) -> Cell:
    return Cell(answer)


def _writes(answer: str, kind: EventKind, becomes: str = "") -> Cell:
    return Cell(answer, (kind,), becomes)


_GONE = _says("gone")
_CONFLICT = _says("conflict")
_STALE = Row(_says("stale"), _says("stale"))
_SKIPPED = Row(_says("skipped"), _says("skipped"))
_MISSING = Row(_says("missing"), _GONE)
_INVALID = Row(_says("invalid"), _GONE)


def _same(answer: str) -> Row:
    """A repeat: the first answer, whatever the run has come to."""
    return Row(_says(answer), _says(answer))


def _end(kind: EventKind, status: Status) -> Fence:
    return Fence("run", {"any": Row(_writes("ended", kind, status), _CONFLICT)}, bounded=False)


def _outcome(kind: EventKind, status: Status) -> Fence:
    recorded = _writes(status, kind, status)  # the step was in flight: also on a finished run
    rows = {
        "missing": _MISSING,
        "pending": _INVALID,
        "pending after a retry of this token": _INVALID,
        "running under this token": Row(recorded, recorded),
        "running under another token": _STALE,
        "completed under this token": _same("completed"),
        "failed under this token": _same("failed"),
        "completed under another token": _SKIPPED,
        "failed under another token": _SKIPPED,
    }
    return Fence("step", rows, observed=True, bounded=False)


_STEP_STARTED = _writes("started", EventKind.STEP_STARTED, "running")


def _wait_end(kind: EventKind, status: str, *, observed: bool) -> Fence:
    rows = {
        "missing": Row(_says("not_found"), _GONE),
        "waiting": Row(_writes(status, kind, status), _GONE),
        "completed": Row(_CONFLICT, _GONE),
        "cancelled": Row(_CONFLICT, _GONE),
    }
    return Fence("wait", rows, observed=observed)


FENCES: dict[EventKind, Fence] = {
    EventKind.RUN_CREATED: Fence(
        "run",
        {"any": Row(_CONFLICT, _CONFLICT)},
        bounded=False,
        absent=_writes("created", EventKind.RUN_CREATED, Status.PENDING),
    ),
    EventKind.RUN_STARTED: Fence(
        "run",
        {"any": Row(_says("started"), _GONE, pending=_writes("started", EventKind.RUN_STARTED, Status.RUNNING))},
        bounded=False,
    ),
    EventKind.RUN_COMPLETED: _end(EventKind.RUN_COMPLETED, Status.COMPLETED),
    EventKind.RUN_FAILED: _end(EventKind.RUN_FAILED, Status.FAILED),
    EventKind.CANCEL_REQUESTED: Fence(
        "run",
        {
            "any": Row(_writes("requested", EventKind.CANCEL_REQUESTED), _CONFLICT),
            "asked to cancel before": Row(_says("requested"), _CONFLICT),
        },
        observed=True,
        bounded=False,
    ),
    EventKind.RUN_CANCELLED: Fence(
        "run",
        {
            "any": Row(
                _writes("cancelled", EventKind.RUN_CANCELLED, Status.CANCELLED), _CONFLICT, cancelled=_says("cancelled")
            )
        },
        bounded=False,
    ),
    EventKind.ATTR_SET: Fence(
        "attributes",
        {
            "new": Row(_writes("created", EventKind.ATTR_SET), _GONE),
            "written under this correlation id": Row(_CONFLICT, _GONE),
            "64 others": Row(_says("invalid"), _GONE),
        },
    ),
    EventKind.PATCHED: Fence(
        "patch",
        {
            "new": Row(_writes("created", EventKind.PATCHED), _GONE),
            "recorded before": Row(_CONFLICT, _GONE),
        },
    ),
    EventKind.STEP_CREATED: Fence(
        "step",
        {
            "missing": Row(_writes("created", EventKind.STEP_CREATED, "pending"), _GONE),
            "pending": Row(_CONFLICT, _GONE),
            "running": Row(_CONFLICT, _GONE),
            "completed": Row(_CONFLICT, _GONE),
            "failed": Row(_CONFLICT, _GONE),
            "created under another name": Row(_says("diverged"), _GONE),
        },
    ),
    EventKind.STEP_STARTED: Fence(
        "step",
        {
            "missing": _MISSING,
            "missing, its input at hand": Row(
                Cell("started", (EventKind.STEP_CREATED, EventKind.STEP_STARTED), "running"), _GONE
            ),
            "pending": Row(_STEP_STARTED, _GONE),
            "pending, retry time ahead": Row(_says("too_early"), _GONE),
            "pending, attempts used up": Row(_writes("exhausted", EventKind.STEP_FAILED, "failed"), _GONE),
            "running under this token": Row(_says("started"), _GONE),
            "running, redelivered to the caller": Row(_STEP_STARTED, _GONE),
            "running, redelivered, attempts used up": Row(_writes("exhausted", EventKind.STEP_FAILED, "failed"), _GONE),
            "running elsewhere": Row(_says("stale"), _GONE),
            "completed": _SKIPPED,
            "failed": _SKIPPED,
        },
    ),
    EventKind.STEP_RETRYING: Fence(
        "step",
        {
            "missing": _MISSING,
            "pending": _INVALID,
            "pending after a retry of this token": Row(_says("retrying"), _GONE),
            "running under this token": Row(_writes("retrying", EventKind.STEP_RETRYING, "pending"), _GONE),
            "running under another token": _STALE,
            "completed under this token": _same("completed"),
            "failed under this token": _same("failed"),
            "completed under another token": _SKIPPED,
            "failed under another token": _SKIPPED,
        },
        bounded=False,
    ),
    EventKind.STEP_COMPLETED: _outcome(EventKind.STEP_COMPLETED, Status.COMPLETED),
    EventKind.STEP_FAILED: _outcome(EventKind.STEP_FAILED, Status.FAILED),
    EventKind.HOOK_CREATED: Fence(
        "hook",
        {
            "missing": Row(_writes("created", EventKind.HOOK_CREATED, "open"), _GONE),
            "missing, token held by a living hook": Row(
                _writes("hook_conflict", EventKind.HOOK_CONFLICT, "conflict"), _GONE
            ),
            "missing, token held by a hook that is over": Row(
                _writes("created", EventKind.HOOK_CREATED, "open"), _GONE
            ),
            "claiming": Row(_writes("created", EventKind.HOOK_CREATED, "open"), _GONE),
            "open": Row(_CONFLICT, _GONE),
            "conflict": Row(_CONFLICT, _GONE),
            "disposed": Row(_CONFLICT, _GONE),
        },
    ),
    EventKind.HOOK_RECEIVED: Fence(
        "hook",
        {
            "missing": Row(_says("not_found"), _GONE),
            "claiming": Row(_says("not_found"), _GONE),
            "open": Row(_writes("received", EventKind.HOOK_RECEIVED, "open"), _GONE),
            "conflict": Row(_says("not_found"), _GONE),
            "disposed": Row(_says("not_found"), _GONE),
            "resumed under this id": _same("received"),
            "resumed under this id, then disposed": _same("received"),
            "resumed under this id with another payload": _same("conflict"),
        },
        observed=True,
    ),
    EventKind.HOOK_DISPOSED: Fence(
        "hook",
        {
            "missing": Row(_says("not_found"), _GONE),
            "claiming": Row(_says("not_found"), _GONE),
            "open": Row(_writes("disposed", EventKind.HOOK_DISPOSED, "disposed"), _GONE),
            "conflict": Row(_says("not_found"), _GONE),
            "disposed": Row(_CONFLICT, _GONE),
        },
    ),
    EventKind.WAIT_CREATED: Fence(
        "wait",
        {
            "missing": Row(_writes("created", EventKind.WAIT_CREATED, "waiting"), _GONE),
            "waiting": Row(_CONFLICT, _GONE),
            "completed": Row(_CONFLICT, _GONE),
            "cancelled": Row(_CONFLICT, _GONE),
        },
    ),
    EventKind.WAIT_COMPLETED: _wait_end(EventKind.WAIT_COMPLETED, "completed", observed=True),
    EventKind.WAIT_CANCELLED: _wait_end(EventKind.WAIT_CANCELLED, "cancelled", observed=False),
}
"""Every kind but ``hook_conflict``, which ``hook_created`` writes."""


def transitions(subject: Subject) -> list[tuple[str, EventKind, str]]:
    """Every change of state the table allows for a subject: state before, event, state after."""
    found: dict[tuple[str, EventKind, str], None] = {}
    for fence in FENCES.values():
        if fence.subject != subject:
            continue
        for written in fence.absent.writes:
            found["absent", written, fence.absent.becomes] = None
        for state, row in fence.rows.items():
            for status in Status:
                cell = row.cell(status)
                if cell.writes and cell.becomes:
                    before = status if subject == "run" else state.partition(" ")[0].rstrip(",")
                    found[before, cell.writes[-1], cell.becomes] = None
    return list(found)
