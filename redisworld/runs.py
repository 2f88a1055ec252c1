"""What is a run, and a step of it, as a frozen value? Which status may follow which says ``fences.py``."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from redisworld.errors import MalformedMessage


class Status(StrEnum):
    """Status of a run or a step. A step is never ``cancelled``."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether nothing follows this status."""
        return self in TERMINAL


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
OPEN = (Status.PENDING, Status.RUNNING)
"""The statuses of runs that have not ended, in the order they come in."""


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fixed fields of a run row. Times are epoch milliseconds by Redis; 0 where not reached."""

    run_id: str
    status: Status
    workflow: str
    deployment: str = ""
    spec_version: int = 1
    root_run_id: str = ""
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    woken_at: int = 0
    replayed_to: int = 0
    wake: str = ""
    log_length: int = 0
    code: str = ""
    finished_event: int = 0
    """Number of the event that ended the run, from 1."""
    begun_to: int = 0
    """Log length that a pass had consumed of whose commit a chunk is written."""
    patches: tuple[str, ...] = ()
    """Names of the patches the run goes with."""
    start_at: int = 0
    """When a delayed start was to begin; 0 where the run began at once."""
    parked: tuple[str, ...] = ()
    """Names of the dead letters that hold messages the run waits for: it rests until they are redriven or dropped."""
    moved_from: str = ""
    """The deployment it was moved from last. A worker of that one may still hold a message of it."""

    @property
    def passed_to(self) -> int:
        """How far passes have been whose doings the log holds, at least in part: ``patched`` decides by it.

        All of the log of a finished run: nobody comes to any place in it for the first time.
        """
        return self.log_length if self.status.terminal else max(self.replayed_to, self.begun_to)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The compact state of a step, decoded. ``*_event`` are event numbers, from 1; 0 where there is none."""

    status: Status
    attempt: int
    uncharged: int = 0
    """Starts that did not use up the retry budget: handed back at a drain."""
    token: str = ""
    message_id: str = ""
    entry_id: str = ""
    group: str = ""
    input_event: int = 0
    error_event: int = 0
    retry_at: int = 0
    started_event: int = 0

    @classmethod
    def parse(cls, state: str) -> Step:
        """Decode ``status|attempt|uncharged|token|message|entry|group|input|error|retry_at|started``.

        Raises MalformedMessage for a text that is no such state.
        """
        s = state.split("|")
        try:
            return cls(
                status=Status(s[0]), attempt=int(s[1]), uncharged=int(s[2]), token=s[3], message_id=s[4],
                entry_id=s[5], group=s[6], input_event=int(s[7]), error_event=int(s[8]), retry_at=int(s[9]),
                started_event=int(s[10]),
            )  # fmt: skip
        except (ValueError, IndexError) as error:
            raise MalformedMessage(f"{state[:80]!r} is no state of a step") from error
