"""How are streams read so that a fan-out arrives in full batches and no worker hoards? (design section 11)

COUNT is per stream, so streams that had something are polled in rotation with COUNT = free slots, or half of all. Only
when all are empty one blocking read on all of them, with each one's share as COUNT, says which has something next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from consumers.health import LoopHealth
from consumers.pauses import Pauses
from consumers.slots import Slots
from redisworld.world import Delivery, Stream, World

_AT_ONCE = 32
"""Or half of the slots where that is more: Redis looks for the next ones while bodies of the last ones run."""


class Reader:
    """Reads the streams of one kind while slots are free, and hands the deliveries over."""

    def __init__(
        self,
        world: World,
        streams: list[Stream],
        slots: Slots,
        health: LoopHealth,
        accept: Callable[[list[Delivery]], None],
    ) -> None:
        self._world = world
        self._streams = streams
        self._slots = slots
        self._health = health
        self._accept = accept
        self._busy: deque[Stream] = deque()

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Read until ``stopping``; a read that is blocked then runs out by itself, it is never cancelled."""
        pauses = Pauses(self._world.connection.faults)
        while not stopping():
            try:
                await self.tick()
                pauses.over()
            except Exception as error:  # the top of a loop: a reader that ends would leave a worker that looks alive
                self._health.read_failed(error)
                await pauses.after(f"cannot read {self._health.name}", error)

    async def tick(self) -> None:
        """One read. Raises RedisUnavailable."""
        await self._slots.wait_free()
        if (free := self._slots.free) <= 0:
            self._health.read_done()  # saturated is not stuck
            return
        if self._busy:
            stream = self._busy.popleft()
            deliveries = await self._world.queue.read([stream], count=min(free, max(_AT_ONCE, self._slots.limit // 2)))
            if deliveries:
                self._busy.append(stream)
        else:
            count = max(1, free // len(self._streams))
            deliveries = await self._world.queue.read(
                self._streams, count=count, block_ms=self._world.settings.block_ms
            )
            self._busy.extend(dict.fromkeys((delivery.partition, delivery.stream) for delivery in deliveries))
        self._health.read_done()
        if deliveries:
            self._accept(deliveries[:free])
        for delivery in deliveries[free:]:  # one blocking read over many streams brings one of each
            await self._world.give_back(delivery)
