"""Who takes over the deliveries of a dead or stuck worker? (design section 11)

One worker per partition sweeps each second, from the cursor where it stopped: a call that always began at the
front would never get behind a window of young entries. It takes no more than its free slots.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import anyio

from consumers.handback import where
from consumers.health import LoopHealth
from consumers.pauses import Pauses
from consumers.slots import Slots
from redisworld.errors import MalformedMessage
from redisworld.facts import fact
from redisworld.observe import MessageRead, observe
from redisworld.world import Delivery, Stream, World

_COUNT = 25
"""XAUTOCLAIM looks at ten times this many entries a call: 0.5 ms of Redis when none is idle."""
_CALLS_PER_STREAM = 40
"""Bound of one sweep: 10,000 pending entries a second and stream."""

_REST = 5
"""The part of a lease that others have to renew theirs: twice the pause of a renewal that fails."""

_STOOD_STILL = 3
"""The part of a lease in which the others have renewed theirs, unless they stood still, too."""

_DEAD_LEASES = 2
"""A consumer that has not read for so long has gone; nobody looks more often. Dead ones cost nothing but a line in
XINFO, looking for them costs a call per stream."""


class Reclaimer:
    """Sweeps the pending lists, and removes consumers that hold nothing and read nothing."""

    def __init__(
        self, world: World, streams: dict[Stream, Slots], health: LoopHealth, accept: Callable[[list[Delivery]], None]
    ) -> None:
        self._world = world
        self._health = health
        self._streams = streams
        self._accept = accept
        self._disturbed = True  # Redis may have been away until just now
        self._rests_until = 0.0
        self._cursors = dict.fromkeys(streams, "0-0")
        self._due = dict.fromkeys(streams, 0.0)
        self._roll_call = dict.fromkeys(streams, 0.0)

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Sweep until ``stopping``."""
        pauses = Pauses(self._world.connection.faults)
        while not stopping():
            try:
                await self.tick()
                self._health.read_done()
                pauses.over()
            except Exception as error:  # the top of a loop
                self._health.read_failed(error)
                self._disturbed = True
                await pauses.after("sweep failed", error)
            await self.pause()

    async def pause(self) -> None:
        """Until the next sweep. Who wakes up much too late has stood still, perhaps with all others: a paused host."""
        settings = self._world.settings
        planned = time.monotonic() + settings.reclaim_every_ms / 1000
        await anyio.sleep(settings.reclaim_every_ms / 1000)
        if time.monotonic() - planned > settings.lease_ms / 1000 / _STOOD_STILL:
            self._disturbed = True

    async def tick(self) -> None:
        """One sweep over all streams in which something can be stale by now. Raises RedisUnavailable."""
        if self._disturbed:
            await self._let_the_living_renew()
        if time.monotonic() < self._rests_until:
            return
        for stream, slots in self._streams.items():
            if (now := time.monotonic()) < self._due[stream]:
                continue
            try:
                if await self._sweep(stream, slots) and now >= self._roll_call[stream]:
                    self._roll_call[stream] = now + _DEAD_LEASES * self._world.settings.lease_ms / 1000
                    await self._remove_dead(stream)
            except MalformedMessage as error:  # a key there is not ours: the other streams are swept all the same
                self._world.connection.faults.warn("sweep", "sweep failed", level=logging.ERROR, error=error)

    async def _let_the_living_renew(self) -> None:
        """After an outage every delivery looks stale, also those whose bodies run: their owners come first.

        A worker that has just started cannot know whether there was one: it waits once, too.
        """
        # changes nothing, and succeeds where Redis takes writes again
        await self._world.upkeep.remove_consumer(next(iter(self._streams)), f"{self._world.consumer}:nobody")
        self._rests_until = time.monotonic() + self._world.settings.lease_ms / 1000 / _REST
        self._due = dict.fromkeys(self._streams, 0.0)
        self._disturbed = False

    async def _sweep(self, stream: Stream, slots: Slots) -> bool:
        """Take over what is stale; False while another worker has the ticket."""
        for _ in range(_CALLS_PER_STREAM):
            if slots.free <= 0:
                return True
            sweep = await self._world.deliveries.reclaim(stream, self._cursors[stream], min(slots.free, _COUNT))
            self._due[stream] = time.monotonic() + sweep.quiet_ms / 1000
            if sweep.busy:
                return False
            self._cursors[stream] = sweep.cursor
            if sweep.taken:
                observe(MessageRead(sweep.taken[0].kind, "reclaimed", len(sweep.taken)))
                self._accept(list(sweep.taken))
            for delivery in sweep.taken:
                fact(logging.INFO, "reclaimed", where(delivery))
            if self._cursors[stream] == "0-0":
                return True
        return True

    async def _remove_dead(self, stream: Stream) -> None:
        settings = self._world.settings
        silent_ms = _DEAD_LEASES * settings.lease_ms + settings.block_ms  # Redis counts from the begin of a read
        for consumer in await self._world.queue.idle_consumers(stream, silent_ms):
            if consumer != self._world.consumer and await self._world.upkeep.remove_consumer(stream, consumer):
                fact(logging.INFO, "dead consumer removed", consumer=consumer, stream=stream[1])
