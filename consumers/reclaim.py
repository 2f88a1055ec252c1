"""Who takes over the deliveries of a dead or stuck worker? (design section 11)

One worker per partition sweeps each second, from the cursor where it stopped: a call that always began at the
front would never get behind a window of young entries. It takes no more than its free slots.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from consumers.slots import Slots
from redisworld.errors import MalformedMessage, RedisUnavailable
from redisworld.observe import MessageRead, observe
from redisworld.world import Delivery, Stream, World

log = logging.getLogger("redisworld")

_COUNT = 25
"""XAUTOCLAIM looks at ten times this many entries a call: 0.5 ms of Redis when none is idle."""
_CALLS_PER_STREAM = 40
"""Bound of one sweep: 10,000 pending entries a second and stream."""


_TICKS_PER_ROLL_CALL = 10
"""Dead consumers cost nothing but a line in XINFO; looking for them costs a call per stream."""


class Reclaimer:
    """Sweeps the pending lists, and removes consumers that hold nothing and read nothing."""

    def __init__(self, world: World, streams: dict[Stream, Slots], accept: Callable[[Delivery], None]) -> None:
        self._world = world
        self._streams = streams
        self._accept = accept
        self._ticks = 0
        self._cursors = dict.fromkeys(streams, "0-0")

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Sweep until ``stopping``."""
        while not stopping():
            try:
                await self.tick()
            except (RedisUnavailable, MalformedMessage) as error:
                log.warning("sweep failed, trying again: %s", error)
            await anyio.sleep(self._world.settings.reclaim_every_ms / 1000)

    async def tick(self) -> None:
        """One sweep over all streams. Raises RedisUnavailable."""
        look_for_dead = self._ticks % _TICKS_PER_ROLL_CALL == 0
        self._ticks += 1
        for stream, slots in self._streams.items():
            if await self._sweep(stream, slots) and look_for_dead:
                await self._remove_dead(stream)

    async def _sweep(self, stream: Stream, slots: Slots) -> bool:
        """Take over what is stale; False while another worker has the ticket."""
        for _ in range(_CALLS_PER_STREAM):
            if slots.free <= 0:
                return True
            answer = await self._world.reclaim(stream, self._cursors[stream], min(slots.free, _COUNT))
            if answer is None:
                return False
            self._cursors[stream], taken = answer
            if taken:
                observe(MessageRead(taken[0].kind, "reclaimed", len(taken)))
            for delivery in taken:
                log.info(
                    "reclaimed: run=%s entry=%s deliveries=%d",
                    delivery.text("run"),
                    delivery.entry_id,
                    delivery.deliveries,
                )
                self._accept(delivery)
            if self._cursors[stream] == "0-0":
                return True
        return True

    async def _remove_dead(self, stream: Stream) -> None:
        for consumer in await self._world.queue.idle_consumers(stream, 2 * self._world.settings.lease_ms):
            if consumer != self._world.consumer and await self._world.remove_consumer(stream, consumer):
                log.info("removed dead consumer: %s stream=%s", consumer, stream[1])
