"""How does an outage become one line a second in the log, however many calls and loops meet it?

The same fault reaches the readers, the timers, the sweep, the leases and every call that is repeated. All of them
warn through here, so that each second has one line of a fault, which says how many it stands for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger("redisworld")

_EVERY_S = 1.0
_MOST_FAULTS = 32
"""Faults told apart; beyond it the oldest is forgotten, so that texts which never repeat cannot fill memory."""


class FaultLog:
    """Writes at most one line a second for each fault, from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}

    def warn(self, fault: str, text: str, *, level: int = logging.WARNING, trace: BaseException | None = None) -> None:
        """Log ``text``, unless ``fault`` (a bounded word) has had its line of this second."""
        if (left_out := self._turn(fault)) is None:
            return
        more = f" (and {left_out} more like it)" if left_out else ""
        log.log(level, "%s%s", text, more, exc_info=trace)

    def _turn(self, fault: str) -> int | None:
        now = self._clock()
        with self._lock:
            at, left_out = self._seen.pop(fault, (-_EVERY_S, 0))
            if now - at < _EVERY_S:
                self._seen[fault] = at, left_out + 1
                return None
            while len(self._seen) >= _MOST_FAULTS:
                del self._seen[next(iter(self._seen))]
            self._seen[fault] = now, 0
            return left_out
