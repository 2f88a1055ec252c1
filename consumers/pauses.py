"""How long does a loop wait, between its rounds and after it has failed, and what does it say?"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import anyio

from redisworld.backoff import Backoff
from redisworld.errors import RedisUnavailable, RedisworldError
from redisworld.facts import named
from redisworld.world import FaultLog

_GROWING = Backoff(first_ms=100, cap_ms=1_000, jitter=0.5)
"""Short, so that work goes on within 2 s of a Redis that is back; with jitter, so that workers come one by one."""


_LOOK_S = 1.0
"""A stop is seen so soon."""


async def rest(seconds: float, stopping: Callable[[], bool]) -> bool:
    """Wait so long, or until ``stopping``; whether to go on."""
    until = anyio.current_time() + seconds
    while not stopping():
        if (left := until - anyio.current_time()) <= 0:
            return True
        await anyio.sleep(min(_LOOK_S, left))
    return False


class Pauses:
    """The pauses of one loop; they grow while it fails."""

    def __init__(self, faults: FaultLog) -> None:
        self._faults = faults
        self._failures = 0
        self._random = random.Random()

    def over(self) -> None:
        """The loop has gone round once without a failure."""
        self._failures = 0

    async def after(self, what: str, error: Exception) -> None:
        """Warn and wait. A Redis that is away is one fault for all loops; what nobody expected comes with its trace."""
        self._failures += 1
        if isinstance(error, RedisUnavailable):
            self._faults.warn("redis", what, error=error)
        elif isinstance(error, RedisworldError):
            self._faults.warn(what, what, level=logging.ERROR, error=error)
        else:
            self._faults.warn(what, what, level=logging.ERROR, trace=error, error=named(error))
        await anyio.sleep(_GROWING.delay_ms(self._failures, self._random) / 1000)
