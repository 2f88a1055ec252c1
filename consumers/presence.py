"""How do others know that this worker lives, and what it does? It says so in Redis every few seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import anyio

from consumers.health import Health
from consumers.pauses import Pauses
from consumers.slots import Slots
from redisworld.errors import MalformedMessage, RedisUnavailable
from redisworld.state import WorkerState
from redisworld.version import VERSION
from redisworld.workflows import Workflows
from redisworld.world import BEAT_S, Stream, World

_BEATS_A_LISTING = 12
"""Each minute it comes back to lists that somebody has taken it off; Redis forgetting its beat it notices at once."""
_BEATS_A_PRUNE = 60
"""The lists in Redis are short, and a dead worker's name in one only costs its bytes."""
_LOOK_S = 0.25
"""So often it looks whether the state has changed, which is said at once: a drain is over in seconds."""


class Presence:
    """The heartbeat of one worker, which reads ``streams``."""

    def __init__(
        self, world: World, app: Workflows, health: Health, *, slots: tuple[Slots, Slots], streams: Iterable[Stream]
    ) -> None:
        self._world = world
        self._health = health
        self._steps, self._replays = slots
        self._streams = tuple(sorted({name for _, name in streams}))
        self._listed = {*self._streams, *_streams_of(app, world)}
        self._started_at = world.now_ms()
        self._beats = 0

    async def run(self) -> None:
        """Beat for as long as the worker works, a drain included; cancelled at the end of it."""
        pauses = Pauses(self._world.connection.faults)
        said, due = None, 0.0
        while True:
            if (state := self._state()) != said or anyio.current_time() >= due:
                try:
                    await self.tick()
                    said, due = state, anyio.current_time() + BEAT_S
                    pauses.over()
                except Exception as error:  # the top of a loop
                    await pauses.after("no heartbeat", error)
            await anyio.sleep(_LOOK_S)

    async def tick(self) -> None:
        """One beat, and now and then a look at what others have left on the lists. Raises as ``Heartbeats.beat``."""
        state, reason = self._state()
        now_ms = self._world.now_ms()
        beat = WorkerState(
            consumer=self._world.consumer,
            state=state,
            reason=reason,
            version=VERSION,
            deployment=self._world.settings.deployment,
            streams=self._streams,
            started_at=self._started_at,
            beat_at=now_ms,
            steps=self._steps.held,
            steps_limit=self._steps.limit,
            replays=self._replays.held,
            replays_limit=self._replays.limit,
            lease_ms=self._world.settings.lease_ms,
        )
        if self._beats % _BEATS_A_LISTING == 0 or not await self._world.heartbeats.beat_again(beat):
            await self._world.heartbeats.beat(beat, self._listed)
        if self._beats % _BEATS_A_PRUNE == 0:
            await self._world.heartbeats.prune(now_ms)
        self._beats += 1
        if self._beats % _BEATS_A_LISTING == 0:
            await self._world.read_clock()  # a run that begins takes its time from it

    async def leave(self) -> None:
        """Say that this worker has ended; what cannot be said now, time says."""
        try:
            await self._world.heartbeats.leave(self._world.consumer)
        except RedisUnavailable as error:
            self._world.connection.faults.warn("redis", "heartbeat not removed, it ends by itself", error=error)
        except MalformedMessage as error:
            what = "heartbeat not removed, it ends by itself"
            self._world.connection.faults.warn("presence", what, level=logging.ERROR, error=error)

    def _state(self) -> tuple[str, str]:
        problem = self._health.ready()
        if self._health.stopping:
            return "draining", ""
        return ("ready", "") if problem is None else ("unready", problem)


def _streams_of(app: Workflows, world: World) -> Iterable[str]:
    """The streams that steps of the application are sent to: somebody else may serve them, or nobody."""
    settings, partition = world.settings, world.partitions[0]
    for pin in ("", settings.deployment) if settings.affinity else ("",):
        for queue in {step.queue for step in app.steps.values()}:
            yield partition.short(partition.steps(queue, pin))
