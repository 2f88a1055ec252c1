"""Is this process alive, and may it take messages?"""

from __future__ import annotations

import logging
import time

log = logging.getLogger("redisworld")

_READY_AFTER_READ_S = 5.0
"""A read ends at the latest after ``block_ms`` (1 s); five times that without one is a stall."""


class Health:
    """What the loops report, for /healthz and /readyz. Read from another thread."""

    def __init__(self, *, blocked_limit_s: float) -> None:
        self._blocked_limit = blocked_limit_s
        self._last_read = 0.0
        self._last_tick = time.monotonic()
        self._failing: str | None = None
        self.stopping = False

    def tick(self) -> None:
        """The event loop moves."""
        self._last_tick = time.monotonic()

    def read_done(self) -> None:
        """A read of the streams has come back."""
        self._last_read = time.monotonic()
        if self._failing is not None:
            log.info("reading again")
            self._failing = None

    def read_failed(self, error: Exception) -> None:
        """A read of the streams has failed."""
        if self._failing is None:
            log.warning("cannot read: %s", error)
        self._failing = str(error)

    def alive(self) -> str | None:
        """None when alive, else why not. Never depends on Redis: a restart would not bring it back."""
        silent = time.monotonic() - self._last_tick
        return f"the event loop has not moved for {silent:.0f} s" if silent > self._blocked_limit else None

    def ready(self) -> str | None:
        """None when this process takes messages, else why not."""
        if self.stopping:
            return "shutting down"
        if self._failing is not None:
            return self._failing
        if time.monotonic() - self._last_read > _READY_AFTER_READ_S:
            return "the streams have not been read for 5 s"
        return None
