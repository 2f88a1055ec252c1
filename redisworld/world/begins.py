"""What does it take to start a run, and when does it begin?"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import msgspec

from redisworld.durations import named_ms
from redisworld.errors import InvalidInput
from redisworld.settings import SPEC_VERSION


class Begins(msgspec.Struct, frozen=True):
    """``delay_ms`` after Redis has the start, or at ``at_ms`` (epoch) by the clock of Redis where that is given."""

    delay_ms: int = 0
    at_ms: int | None = None

    @classmethod
    def of(cls, delay: timedelta | float | str | None, at: datetime | None) -> Begins:
        """As ``World.start`` takes it. Raises InvalidInput."""
        if at is None:
            return AT_ONCE if delay is None else cls(named_ms("start(): delay", delay))
        if delay is not None:
            raise InvalidInput("start(): give delay= or at=, not both")
        if not isinstance(at, datetime):
            raise InvalidInput(f"start(): at= takes an aware datetime, not {at!r}; a length of time is delay=")
        if at.utcoffset() is None:
            raise InvalidInput(f"start(): at={at!r} has no zone and means another moment on every host; add a tzinfo")
        since_epoch = (at - datetime.fromtimestamp(0, UTC)) / timedelta(milliseconds=1)
        return cls(at_ms=max(0, math.ceil(since_epoch)))

    def args(self) -> tuple[int, int | str]:
        """As start_many takes it."""
        return self.delay_ms, "" if self.at_ms is None else self.at_ms


AT_ONCE = Begins()


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One run to be created; ``created`` is the payload of run_created, ``message`` the first message."""

    run_id: str
    workflow: str
    deployment: str
    pin: str
    root: str
    created: bytes
    message: bytes
    begins: Begins

    def args(self) -> list[str | bytes | int]:
        """As start_many takes it."""
        return [
            self.run_id,
            self.workflow,
            self.deployment,
            self.pin,
            SPEC_VERSION,
            self.root,
            self.created,
            self.message,
            *self.begins.args(),
        ]
