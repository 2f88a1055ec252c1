"""Which workers live, and which streams are there? What workers say about themselves in Redis.

A worker writes one key with a time to live, so that the end of a worker needs nobody who notices it: a process that
was killed is gone from the list when its key is. The streams stay listed when all workers are gone; without the list
only a scan of all keys could find them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from redisworld.errors import MalformedMessage, RedisUnavailable
from redisworld.keys import Partition, listed_streams, listed_workers, worker_key
from redisworld.state import WorkerState
from redisworld.world.connection import Connection

BEAT_S = 5.0
"""How often a worker says that it lives: one command, a third of what its reading costs when idle."""

LIVES_MS = 15_000
"""How long one beat counts: two may be lost, and a worker that was killed is missed within a scrape or two."""

_UNREAD_MS = 7 * 24 * 3_600_000
"""A stream that no worker has read for so long and that holds nothing is an old deployment's."""


class Heartbeats:
    """The heartbeats of one namespace. For World's owner; each method is one or two round trips."""

    def __init__(self, connection: Connection, partitions: Sequence[Partition]) -> None:
        self._connection = connection
        self._namespace = connection.settings.namespace
        self._partitions = partitions

    async def beat(self, worker: WorkerState, streams: Iterable[str]) -> None:
        """Put ``worker`` on the list, and these streams, which may hold messages.

        Raises RedisUnavailable, and MalformedMessage where a key of another type lies in the place of a list.
        """
        listed = dict.fromkeys(streams, worker.beat_at)

        async def call() -> Any:
            pipeline = self._connection.commands.pipeline(transaction=False)
            pipeline.set(worker_key(self._namespace, worker.consumer), msgspec.json.encode(worker), px=LIVES_MS)
            pipeline.sadd(listed_workers(self._namespace), worker.consumer)
            if listed:
                pipeline.zadd(listed_streams(self._namespace), listed)
            return await pipeline.execute()

        await self._listing("beat", call, patience_ms=0)

    async def beat_again(self, worker: WorkerState) -> bool:
        """Say that ``worker`` still lives; False where Redis has not heard of it lately. Raises RedisUnavailable."""
        key, said = worker_key(self._namespace, worker.consumer), msgspec.json.encode(worker)

        async def call() -> Any:
            return await self._connection.commands.set(key, said, px=LIVES_MS, xx=True)

        return bool(await self._connection.run("beat", call, patience_ms=0))

    async def list_streams(self, streams: Iterable[str], now_ms: int) -> None:
        """Say that these streams may hold messages, where no worker may be there to say it.

        What cannot be said now, as to a full Redis, is warned of and left to the first worker: it keeps nobody out.
        """
        listed = dict.fromkeys(streams, now_ms)

        async def call() -> Any:
            return await self._connection.commands.zadd(listed_streams(self._namespace), listed)

        try:
            await self._connection.run("list_streams", call, patience_ms=0)
        except (RedisUnavailable, ResponseError) as error:
            self._connection.faults.warn("redis", "streams not listed, so no exporter sees them yet", error=error)

    async def leave(self, consumer: str) -> None:
        """Say that a worker has ended. Raises as ``beat``."""

        async def call() -> Any:
            pipeline = self._connection.commands.pipeline(transaction=False)
            pipeline.delete(worker_key(self._namespace, consumer))
            pipeline.srem(listed_workers(self._namespace), consumer)
            return await pipeline.execute()

        await self._listing("leave", call, patience_ms=0)

    async def _listing(self, op: str, call: Callable[[], Awaitable[Any]], *, patience_ms: int | None = None) -> Any:
        try:
            return await self._connection.run(op, call, patience_ms=patience_ms)
        except ResponseError as error:
            lists = f"{listed_workers(self._namespace)} and {listed_streams(self._namespace)}"
            raise MalformedMessage(f"the lists of workers and streams, {lists}, cannot be kept: {error}") from error

    async def prune(self, now_ms: int) -> None:
        """Take workers off the list that have no key, and empty streams that nobody reads. Raises as ``beat``.

        Somebody who comes back meanwhile is on the list again with the next beat.
        """
        await self._prune_workers()
        await self._prune_streams(now_ms)

    async def longest_lease_ms(self) -> int:
        """The longest lease that a live worker works with; 0 where none says. Raises as ``beat``."""
        longest = 0
        for beat in (await self._beats()).values():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # somebody else's
                longest = max(longest, msgspec.json.decode(beat or b"", type=WorkerState).lease_ms)
        return longest

    async def _beats(self) -> dict[str, bytes | None]:
        """The last beat of each worker on the list, None of one that has gone."""

        async def read() -> Any:
            return await self._connection.commands.smembers(listed_workers(self._namespace))

        listed = [name.decode("utf-8", "replace") for name in await self._listing("listed_workers", read)]
        if not listed:
            return {}

        async def look() -> Any:
            return await self._connection.commands.mget([worker_key(self._namespace, name) for name in listed])

        return dict(zip(listed, await self._listing("look_at_workers", look), strict=True))

    async def _prune_workers(self) -> None:
        if gone := [name for name, beat in (await self._beats()).items() if beat is None]:

            async def remove() -> Any:
                return await self._connection.commands.srem(listed_workers(self._namespace), *gone)

            await self._listing("forget_workers", remove)

    async def _prune_streams(self, now_ms: int) -> None:
        key, before = listed_streams(self._namespace), now_ms - _UNREAD_MS

        async def read() -> Any:
            return await self._connection.commands.zrange(key, "-inf", before, byscore=True, offset=0, num=100)

        old = [name.decode("utf-8", "replace") for name in await self._listing("listed_streams", read)]
        if not old:
            return

        async def look() -> Any:
            pipeline = self._connection.commands.pipeline(transaction=False)
            for name in old:
                for partition in self._partitions:
                    pipeline.exists(partition.tag + name)
                    pipeline.xlen(partition.tag + name)
            return await pipeline.execute(raise_on_error=False)

        answers = await self._listing("look_at_streams", look)
        each = 2 * len(self._partitions)
        empty = [name for at, name in enumerate(old) if not any(answers[at * each + 1 : (at + 1) * each : 2])]
        if empty:

            async def remove() -> Any:
                return await self._connection.commands.zrem(key, *empty)

            await self._listing("forget_streams", remove)
