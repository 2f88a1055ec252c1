"""What does a worker do that knows no application? It keeps the time of a namespace, and takes no message.

It promotes what is due, deletes finished runs after their retention, and sends again a wake that somebody has deleted.
So runs go on sleeping where no other worker is: what it promotes stands in the streams, where an autoscaler sees it.
The messages of a dead worker are not its business: whoever reads the stream takes them over.
"""

from __future__ import annotations

import logging

import anyio

from consumers.health import Health
from consumers.presence import Presence
from consumers.recovery import Recovery
from consumers.retention import Retention
from consumers.slots import Slots
from consumers.timers import Timers
from redisworld.facts import fact
from redisworld.workflows import Workflows
from redisworld.world import World

_END_S = 4.0
"""Longest way from a stop to the end, with a Redis that does not answer or ends no read: a nudge that is lost harms no
one."""
_LEAVING_S = 1.0


class Timekeeper:
    """Keeps the time of a namespace until ``stop`` is called. Any number of them, beside any workers, does no harm."""

    abandoned = 0
    """Threads that go on at the end, as of ``Worker``: it runs no bodies."""
    ends_within_s = _END_S + _LEAVING_S
    """As of ``Worker``."""

    def __init__(self, world: World) -> None:
        settings = world.settings
        self._world = world
        self._stopping = False
        self._stopped = anyio.Event()
        self.health = Health(blocked_limit_s=settings.max_blocked_loop_ms / 1000, block_s=settings.block_ms / 1000)

    def stop(self) -> None:
        """Begin to end. A repeat changes nothing."""
        self._stopping = self.health.stopping = True
        self._stopped.set()

    async def run(self) -> None:
        """Work until ``stop``."""
        world, nothing = self._world, (Slots("step", 0), Slots("workflow", 0))
        loops = (Timers(world, self.health.loop("timers")), Retention(world), Recovery.of_wakes(world))
        presence = Presence(world, Workflows(), self.health, slots=nothing, streams=())
        fact(logging.INFO, "worker started", consumer=world.consumer, concurrency=0)
        async with anyio.create_task_group() as background:
            background.start_soon(self.health.run)
            background.start_soon(presence.run)
            async with anyio.create_task_group() as working:
                for loop in loops:
                    working.start_soon(loop.run, lambda: self._stopping)
                await self._stopped.wait()
                working.start_soon(world.queue.end_reads)
                world.connection.hurry()
                working.cancel_scope.deadline = anyio.current_time() + _END_S
            background.cancel_scope.cancel()
        with anyio.move_on_after(_LEAVING_S):
            await presence.leave()
        fact(logging.INFO, "worker stopped", consumer=world.consumer)
