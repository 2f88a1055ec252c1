"""How do due timers and delayed messages happen on time without polling?

The promotion says when the next one is due, and a nudge tells when something becomes due earlier: the loop sleeps
exactly until then. Every worker does this; the script makes a repeat harmless.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import anyio

from consumers.health import LoopHealth
from consumers.pauses import Pauses
from redisworld.errors import MalformedMessage
from redisworld.observe import TimersPromoted, observe
from redisworld.world import World

_BATCH = 100
_AGAIN_MS = 1_000
"""When a partition is asked again whose keys cannot be read."""


class Timers:
    """Promotes what is due in all partitions."""

    def __init__(self, world: World, health: LoopHealth) -> None:
        self._world = world
        self._health = health
        self._due = dict.fromkeys(world.partitions, 0.0)
        self._nudged = anyio.Event()

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Promote until ``stopping``."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, stopping)
            pauses = Pauses(self._world.connection.faults)
            while not stopping():
                try:
                    await self.tick()
                    pauses.over()
                except Exception as error:  # the top of a loop
                    await pauses.after("timers not promoted", error)
                # our own clock wakes to the millisecond; a blocking read's timeout is up to 100 ms late
                with anyio.move_on_after(min(self._due.values()) - time.monotonic()):
                    await self._nudged.wait()

    async def tick(self) -> None:
        """Promote what is due now, a batch of each partition: however much one has, the others are not late.

        Raises RedisUnavailable.
        """
        self._nudged = anyio.Event()
        for partition in self._world.partitions:
            if self._due[partition] > time.monotonic():
                continue
            self._due[partition] = math.inf  # a nudge that comes while we ask puts 0 here, and is newer than the answer
            wait_ms: int | None = _AGAIN_MS
            try:
                wait_ms, late = await self._world.upkeep.promote(partition, _BATCH)
                if late:
                    observe(TimersPromoted(tuple(late)))
            except MalformedMessage as error:  # a key there is not ours: the timers of the others go on
                self._world.connection.faults.warn("timers", "timers not promoted", level=logging.ERROR, error=error)
            except BaseException:
                self._due[partition] = 0.0  # ask again: nobody nudges for what is overdue already
                raise
            longest = self._world.settings.timer_poll_ms
            asleep = min(longest if wait_ms is None else wait_ms, longest) / 1000
            self._due[partition] = min(self._due[partition], time.monotonic() + asleep)

    async def _listen(self, stopping: Callable[[], bool]) -> None:
        """It reads whether or not a slot is free, so it is also how a busy worker learns that Redis is away."""
        seen, pauses = dict.fromkeys(self._world.partitions, "0-0"), Pauses(self._world.connection.faults)
        while not stopping():
            before = dict(seen)
            try:
                await self._world.queue.wait_nudge(seen, self._health.block_ms(self._world.settings.block_ms))
                self._health.read_done()
                pauses.over()
            except Exception as error:  # the top of a loop
                self._health.read_failed(error)
                before = dict.fromkeys(seen, "")  # a nudge may have been missed: look at everything
                await pauses.after("cannot read timers", error)
            for partition, last in seen.items():
                if last != before[partition]:
                    self._due[partition] = 0.0
                    self._nudged.set()
        self._nudged.set()  # the loop above has a stop to see
