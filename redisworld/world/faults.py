"""How does an outage become one line a second in the log, however many calls and loops meet it?

The same fault reaches the readers, the timers, the sweep, the leases and every call that is repeated. All of them
warn through here, so that each second has one line of a fault, which says how many it stands for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from redisworld.facts import fact

_EVERY_S = 1.0
_MOST_FAULTS = 32
"""Faults told apart; beyond it the oldest is forgotten, so that texts which never repeat cannot fill memory."""


class FaultLog:
    """Writes at most one line a second for each fault, from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}

    def warn(
        self,
        fault: str,
        what: str,
        where: Mapping[str, object] | None = None,
        *,
        level: int = logging.WARNING,
        trace: BaseException | None = None,
        **fields: object,
    ) -> None:
        """Log ``what`` with its fields, unless ``fault`` (a bounded word) has had its line of this second.

        ``more`` is how many lines of that fault were left out since the one before.
        """
        if (left_out := self._turn(fault)) is not None:
            fact(level, what, where or {}, trace=trace, **fields, more=left_out or None)

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
