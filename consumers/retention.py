"""When do finished runs go, and tokens of hooks that are over? Runs after their retention, with all that is theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from consumers.pauses import Pauses, rest
from redisworld.errors import MalformedMessage
from redisworld.world import World

_BATCH = 200
"""Runs a call: below 2 ms of Redis, since UNLINK frees in the background."""


class Retention:
    """Reaps expired runs in all partitions; every worker does, and a repeat finds nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._faults = world.connection.faults

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Reap until ``stopping``."""
        pauses = Pauses(self._faults)
        while not stopping():
            try:
                await self.tick()
                pauses.over()
            except Exception as error:  # the top of a loop
                await pauses.after("finished runs not reaped", error)
            await rest(self._world.settings.reap_every_ms / 1000, stopping)

    async def tick(self) -> int:
        """Delete what has expired by now; how many runs. Raises RedisUnavailable.

        A key that is not ours is told, and keeps neither the other partitions nor the other work in its own.
        """
        total = 0
        for partition in self._world.partitions:
            try:
                await self._world.hooks.release(partition)
            except MalformedMessage as error:
                self._faults.warn("releases", "hook tokens not let go", level=logging.ERROR, error=error)
            try:
                while reaped := await self._world.upkeep.reap(partition, _BATCH):
                    total += reaped
            except MalformedMessage as error:
                self._faults.warn("retention", "finished runs not reaped", level=logging.ERROR, error=error)
        return total
