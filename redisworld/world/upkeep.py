"""What must be done in a partition from time to time, whoever does it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redisworld.keys import Partition
from redisworld.world.promoting import tell_trouble
from redisworld.world.queue import Stream
from redisworld.world.replies import word_of

if TYPE_CHECKING:
    from redisworld.world.world import World


class Upkeep:
    """Timers, retention and consumers that have gone. One script each; any number of processes may do it at once."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def promote(self, partition: Partition, limit: int = 100) -> tuple[int | None, list[int]]:
        """Make due timers happen: ms until the next one (None: there is none), and how late each was.

        What could not be promoted is told to observers and logged.
        """
        reply = await self._world.call("promote_due", partition, self._world.clock(), limit)
        word_of(reply)
        for trouble, member in [item for item in reply[2:] if isinstance(item, list)]:
            tell_trouble(self._world.connection.faults, trouble.decode(), member.decode("utf-8", "replace"))
        lates = [int(item) for item in reply[2:] if not isinstance(item, list)]
        return (int(reply[1]) if reply[1] else None), lates

    async def reap(self, partition: Partition, limit: int) -> int:
        """Delete at most ``limit`` finished runs whose retention is over; how many. Rows of many fields take calls."""
        reaped = 0
        while True:
            most = limit - reaped if reaped else limit  # what is no number, the script refuses
            reply = await self._world.call("reap_expired", partition, self._world.clock(), most)
            word_of(reply)
            reaped += int(reply[1])
            if not int(reply[2]):
                return reaped

    async def remove_consumer(self, stream: Stream, consumer: str) -> bool:
        """Remove a consumer that holds nothing; False if it does."""
        return word_of(await self._world.call("remove_consumer", stream[0], consumer, stream[1])) == "removed"
