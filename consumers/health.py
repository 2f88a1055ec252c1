"""Is this process alive, and may it take messages?"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import anyio

from redisworld.facts import fact
from redisworld.observe import LoopMoved, Reading, observe

_SILENT_S = 5.0
"""A read ends at the latest after ``block_ms`` (5 s); this long without one is a stall, also where that is less."""
_BEYOND_BLOCK_S = 4.0
_TICK_S = 0.05
_FIRST_BLOCK_MS = 1
_DOUBTFUL_BLOCK_MS = 2_000
"""A worker is ready as soon as it has read, and soon again after an outage; who cannot read one node of a cluster still
waits for the others most of the time."""


class LoopHealth:
    """What one loop that reads from Redis says of itself."""

    def __init__(self, name: str, silent_limit_s: float) -> None:
        self.name = name
        self.may_be_silent = silent_limit_s == math.inf
        self._silent_limit = silent_limit_s
        self._made = time.monotonic()
        self._last_read = 0.0
        self._failing: str | None = None

    def read_done(self) -> None:
        """A read has come back."""
        self._last_read = time.monotonic()
        if self._failing is not None:
            fact(logging.INFO, "reading again", loop=self.name)
            self._failing = None
            observe(Reading(self.name, True))

    def read_failed(self, error: Exception) -> None:
        """A read has failed. Whoever says so logs it too."""
        if self._failing is None:
            observe(Reading(self.name, False))
        self._failing = f"cannot read {self.name}: {error}"

    def block_ms(self, longest_ms: int) -> int:
        """How long the next read may wait: ``longest_ms``, or less while nobody knows whether reads come back."""
        if not self._last_read:
            return min(longest_ms, _FIRST_BLOCK_MS)
        return longest_ms if self.problem() is None else min(longest_ms, _DOUBTFUL_BLOCK_MS)

    def silent_s(self) -> float:
        """Since the last read came back, or since there is this loop."""
        return time.monotonic() - max(self._last_read, self._made)

    def problem(self) -> str | None:
        """None while it reads, else why not."""
        if self._failing is not None:
            return self._failing
        silent = time.monotonic() - self._last_read
        return f"{self.name} has not been read for {self._silent_limit:g} s" if silent > self._silent_limit else None


class Health:
    """What the loops report, for /healthz and /readyz. Read from another thread."""

    def __init__(self, *, blocked_limit_s: float, block_s: float = 1.0) -> None:
        self._blocked_limit = blocked_limit_s
        self._silent_limit = max(_SILENT_S, block_s + _BEYOND_BLOCK_S)
        self._last_tick = time.monotonic()
        self._loops: list[LoopHealth] = []
        self.stopping = False

    def loop(self, name: str, *, may_be_silent: bool = False) -> LoopHealth:
        """A loop that has to read for this process to be ready; each speaks for itself alone."""
        self._loops.append(loop := LoopHealth(name, math.inf if may_be_silent else self._silent_limit))
        return loop

    async def run(self, also: Callable[[], None] = lambda: None) -> None:
        """Tick for as long as the worker works, and do ``also`` each time; cancelled at the end of it."""
        while True:
            self.tick()
            also()
            due = time.monotonic() + _TICK_S
            await anyio.sleep(_TICK_S)
            observe(LoopMoved(max(0.0, time.monotonic() - due)))

    def tick(self) -> None:
        """The event loop moves."""
        self._last_tick = time.monotonic()

    def alive(self) -> str | None:
        """None when alive, else why not. Never depends on Redis: a restart would not bring it back."""
        silent = time.monotonic() - self._last_tick
        return f"the event loop has not moved for {silent:.0f} s" if silent > self._blocked_limit else None

    def silences(self) -> dict[str, float]:
        """For how long (s) each loop that must not be silent has been; by name."""
        return {loop.name: loop.silent_s() for loop in self._loops if not loop.may_be_silent}

    def ready(self) -> str | None:
        """None when this process takes messages, else why not."""
        if self.stopping:
            return "shutting down"
        return next((problem for loop in self._loops if (problem := loop.problem())), None)
