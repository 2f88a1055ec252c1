"""How are streams read so that a fan-out arrives in full batches, nothing waits behind it, and no worker hoards?

COUNT is per stream (design section 11). One that gave as many as were asked for has more: it is busy, and polled with
COUNT = free slots, or half of all, in rotation with the others, of which neighbours share a read. Only when no stream
is busy one blocking read on all of them, with each one's share as COUNT, says which has something next.
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
        self._rotation = deque(streams)
        self._busy: set[Stream] = set()

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Read until ``stopping``; a read that is blocked then is ended by whoever stops, it is never cancelled."""
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
        if (free := self._slots.free) <= 0 or self._slots.closed:
            self._health.read_done()  # saturated is not stuck
            return
        if self._busy:
            streams, block_ms = self._next(free), None
        else:
            streams, block_ms = list(self._rotation), self._health.block_ms(self._world.settings.block_ms)
        batch = min(free, max(_AT_ONCE, self._slots.limit // 2))
        count = batch if streams[0] in self._busy else max(1, free // len(streams))
        deliveries = await self._world.queue.read(streams, count=count, block_ms=block_ms)
        self._note(streams, deliveries, count)
        self._health.read_done()
        if deliveries:
            self._accept(deliveries[:free])
        for delivery in deliveries[free:]:  # one blocking read over many streams brings one of each
            await self._world.deliveries.give_back(delivery)

    def _note(self, streams: list[Stream], deliveries: list[Delivery], count: int) -> None:
        """Which of the streams that were read are busy now."""
        came = dict.fromkeys(streams, 0)
        for delivery in deliveries:
            came[delivery.partition, delivery.stream] += 1
        for stream, number in came.items():
            if number < count:
                self._busy.discard(stream)
            else:
                self._busy.add(stream)

    def _next(self, free: int) -> list[Stream]:
        """The next in rotation: a busy stream, or as many neighbours as there are slots, none of them busy."""
        streams: list[Stream] = []
        while len(streams) < min(free, len(self._rotation)):
            stream = self._rotation[0]
            if streams and stream in self._busy:
                break
            self._rotation.rotate(-1)
            streams.append(stream)
            if stream in self._busy:
                break
        return streams
