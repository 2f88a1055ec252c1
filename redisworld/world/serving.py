"""Which streams are there, which live workers read them, and who holds what has been delivered?

What workers say about themselves (``heartbeats``) and what Redis knows of consumers, put together: a worker that was
killed says nothing any more and is still a consumer for as long as it holds something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from redisworld.keys import GROUP, Partition, listed_streams, listed_workers, worker_key
from redisworld.state import WorkerState, worker_in
from redisworld.world.replies import text_of

if TYPE_CHECKING:
    from redisworld.world.world import World


class Serving(msgspec.Struct, frozen=True):
    """``streams`` are names within each partition; ``workers`` are the live ones by consumer."""

    streams: tuple[str, ...]
    workers: dict[str, WorkerState]

    def readers(self, stream: str) -> int:
        """How many live workers read a stream."""
        return sum(stream in worker.streams for worker in self.workers.values())

    @property
    def lease_ms(self) -> int | None:
        """After how long without renewal some live worker takes a delivery over; None where none says so."""
        return min((worker.lease_ms for worker in self.workers.values() if worker.lease_ms), default=None)


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of the group, over all streams. ``worker`` is None where nobody says that it lives."""

    name: str
    holds: int
    """Messages that are delivered to it and not settled."""
    idle_ms: int
    """Since it has last read, taken over or renewed anything."""
    worker: WorkerState | None


async def read_serving(world: World) -> Serving:
    """Three commands, whatever there is."""
    connection, namespace = world.connection, world.settings.namespace
    streams, consumers = await connection.pipe(
        "read_listed",
        lambda pipe: (pipe.zrange(listed_streams(namespace), 0, -1), pipe.smembers(listed_workers(namespace))),
    )
    keys = [worker_key(namespace, text_of(name)) for name in consumers]
    beats = await connection.run("read_workers", lambda: connection.commands.mget(keys)) if keys else []
    workers = [worker for beat in beats if beat and (worker := worker_in(beat)) is not None]
    names = {"steps", "workflows", *map(text_of, streams)}
    return Serving(tuple(sorted(names)), {worker.consumer: worker for worker in workers})


async def read_consumers(world: World) -> list[Consumer]:
    """The live workers and whoever else holds messages, by name. One command for each stream of each partition."""
    serving = await read_serving(world)
    holds: dict[str, int] = dict.fromkeys(serving.workers, 0)
    idle: dict[str, int] = {}
    for found in await _consumers(world, [(p, stream) for p in world.partitions for stream in serving.streams]):
        name = text_of(found["name"])
        holds[name] = holds.get(name, 0) + found["pending"]
        idle[name] = min(idle.get(name, found["idle"]), found["idle"])
    return [
        Consumer(name=name, holds=held, idle_ms=idle.get(name, 0), worker=serving.workers.get(name))
        for name, held in sorted(holds.items())
        if held or name in serving.workers
    ]


async def _consumers(world: World, streams: Sequence[tuple[Partition, str]]) -> list[dict[str, Any]]:
    def look(pipe: Any) -> None:
        for partition, stream in streams:
            pipe.xinfo_consumers(partition.tag + stream, GROUP)

    answers = await world.connection.pipe("read_consumers", look, raises="none")
    return [found for answer in answers if not isinstance(answer, Exception) for found in answer]
