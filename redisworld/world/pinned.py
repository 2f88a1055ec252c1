"""What waits in the streams that a deployment has of its own, and who takes it where its workers are gone?

Messages in a stream are taken as a worker takes them: an undelivered entry is never deleted, or its group would lose
count. What a live worker holds it finishes; that of dead ones is taken over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from redisworld.keys import GROUP
from redisworld.world.deliveries import Delivery
from redisworld.world.queue import Stream, fields_of, key_of
from redisworld.world.replies import text_of
from redisworld.world.serving import Serving

if TYPE_CHECKING:
    from redisworld.world.world import World

_PAGE = 100
"""Messages that are taken at once."""


def pinned_to(stream: str) -> str:
    """The deployment that a stream belongs to, or ``""`` for one that all workers read."""
    return stream.partition("@")[2]


class Pinned:
    """The streams of one deployment's own."""

    def __init__(self, world: World, deployment: str) -> None:
        self._world = world
        self._deployment = deployment

    async def waiting(self, serving: Serving) -> dict[Stream, int]:
        """How many messages each of them holds, where any: unread ones and those that some consumer holds.

        Of each queue that any deployment has.
        """
        queues = {"steps", "workflows"} | {name.partition("@")[0] for name in serving.streams}
        names = [f"{queue}@{self._deployment}" for queue in sorted(queues)]
        streams = [(partition, name) for partition in self._world.partitions for name in names]
        lengths = await self._world.connection.pipe(
            "count_waiting", lambda pipe: [pipe.xlen(key_of(stream)) for stream in streams]
        )
        return {stream: length for stream, length in zip(streams, lengths, strict=True) if length}

    async def held(self, streams: Iterable[Stream], serving: Serving) -> Counter[str]:
        """How many messages each live worker holds."""
        connection = self._world.connection
        found: Counter[str] = Counter()
        for stream in streams:
            look = partial(connection.commands.xinfo_consumers, key_of(stream), GROUP)
            try:
                consumers = await connection.run("look_at_consumers", look)
            except ResponseError:  # nobody has ever read it, so it has no group
                continue
            found.update({text_of(each["name"]): each["pending"] for each in consumers if each["pending"]})
        return Counter({name: count for name, count in found.items() if name in serving.workers})

    async def take(self, streams: Iterable[Stream], serving: Serving) -> AsyncIterator[list[Delivery]]:
        """What waits in these streams, page by page: what dead workers hold, and what nobody has read.

        What this process was given and has not settled comes again. At the end it is no consumer any more.
        """
        others = serving.workers.keys() - {self._world.consumer}
        for stream in streams:
            await self._world.queue.ensure_groups([stream])
            after = "-"
            while page := await self._pending(stream, after):
                after = f"({text_of(page[-1]['message_id'])}"
                yield await self._take_over(
                    stream, [entry for entry in page if text_of(entry["consumer"]) not in others]
                )
            while read := await self._world.queue.read([stream], count=_PAGE):
                yield read
            await self._world.upkeep.remove_consumer(stream, self._world.consumer)

    async def _pending(self, stream: Stream, after: str) -> list[dict[str, Any]]:
        connection = self._world.connection
        pending: list[dict[str, Any]] = await connection.run(
            "page_pending", lambda: connection.commands.xpending_range(key_of(stream), GROUP, after, "+", _PAGE)
        )
        return pending

    async def _take_over(self, stream: Stream, pending: list[dict[str, Any]]) -> list[Delivery]:
        """Those that nobody has renewed or taken over meanwhile: their idle time has only grown."""

        def claim(pipe: Any) -> None:
            for entry in pending:
                idle_ms = entry["time_since_delivered"]
                pipe.xclaim(key_of(stream), GROUP, self._world.consumer, idle_ms, [entry["message_id"]])

        claimed = await self._world.connection.pipe("take_over", claim) if pending else []
        return [
            Delivery(*stream, text_of(entry), fields_of(pairs)) for found in claimed for entry, pairs in found if pairs
        ]
