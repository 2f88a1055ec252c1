"""Which workers live, and which streams are there? What workers say about themselves in Redis.

A worker writes one key with a time to live, so that the end of a worker needs nobody who notices it: a process that
was killed is gone from the list when its key is. The streams stay listed when all workers are gone; without the list
only a scan of all keys could find them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from redisworld.errors import MalformedMessage, RedisUnavailable
from redisworld.keys import Partition, listed_streams, listed_workers, worker_key
from redisworld.state import WorkerState
from redisworld.world.connection import Connection
from redisworld.world.replies import text_of

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

        def say(pipe: Any) -> None:
            pipe.set(worker_key(self._namespace, worker.consumer), msgspec.json.encode(worker), px=LIVES_MS)
            pipe.sadd(listed_workers(self._namespace), worker.consumer)
            if listed:
                pipe.zadd(listed_streams(self._namespace), listed)

        await self._listing(self._connection.pipe("beat", say, patience_ms=0))

    async def beat_again(self, worker: WorkerState) -> bool:
        """Say that ``worker`` still lives; False where Redis has not heard of it lately. Raises RedisUnavailable."""
        key, said = worker_key(self._namespace, worker.consumer), msgspec.json.encode(worker)
        commands = self._connection.commands
        return bool(
            await self._connection.run("beat", lambda: commands.set(key, said, px=LIVES_MS, xx=True), patience_ms=0)
        )

    async def list_streams(self, streams: Iterable[str], now_ms: int) -> None:
        """Say that these streams may hold messages, where no worker may be there to say it.

        What cannot be said now, as to a full Redis, is warned of and left to the first worker: it keeps nobody out.
        """
        key, listed = listed_streams(self._namespace), dict.fromkeys(streams, now_ms)
        commands = self._connection.commands
        try:
            await self._connection.run("list_streams", lambda: commands.zadd(key, listed), patience_ms=0)
        except (RedisUnavailable, ResponseError) as error:
            self._connection.faults.warn("redis", "streams not listed, so no exporter sees them yet", error=error)

    async def leave(self, consumer: str) -> None:
        """Say that a worker has ended. Raises as ``beat``."""
        key, listed = worker_key(self._namespace, consumer), listed_workers(self._namespace)
        await self._listing(
            self._connection.pipe("leave", lambda pipe: (pipe.delete(key), pipe.srem(listed, consumer)), patience_ms=0)
        )

    async def _listing(self, replies: Awaitable[Any]) -> Any:
        try:
            return await replies
        except ResponseError as error:
            lists = f"{listed_workers(self._namespace)} and {listed_streams(self._namespace)}"
            raise MalformedMessage(f"the lists of workers and streams, {lists}, cannot be kept: {error}") from error

    async def prune(self, now_ms: int) -> None:
        """Take workers off the list that have no key, and empty streams that nobody reads. Raises as ``beat``.

        Somebody who comes back meanwhile is on the list again with the next beat.
        """
        await self._prune_workers()
        await self._prune_streams(now_ms)

    async def _prune_workers(self) -> None:
        run, commands, key = self._connection.run, self._connection.commands, listed_workers(self._namespace)
        names = [text_of(name) for name in await self._listing(run("listed_workers", lambda: commands.smembers(key)))]
        if not names:
            return
        keys = [worker_key(self._namespace, name) for name in names]
        lives = await self._listing(run("look_at_workers", lambda: commands.mget(keys)))
        if gone := [name for name, beat in zip(names, lives, strict=True) if beat is None]:
            await self._listing(run("forget_workers", lambda: commands.srem(key, *gone)))

    async def _prune_streams(self, now_ms: int) -> None:
        run, commands, key = self._connection.run, self._connection.commands, listed_streams(self._namespace)
        unread = partial(commands.zrange, key, "-inf", now_ms - _UNREAD_MS, byscore=True, offset=0, num=100)
        old = [text_of(name) for name in await self._listing(run("listed_streams", unread))]
        if not old:
            return

        def look(pipe: Any) -> None:
            for name in old:
                for partition in self._partitions:
                    pipe.exists(partition.tag + name)
                    pipe.xlen(partition.tag + name)

        answers = await self._listing(self._connection.pipe("look_at_streams", look, raises="none"))
        each = 2 * len(self._partitions)
        empty = [name for at, name in enumerate(old) if not any(answers[at * each + 1 : (at + 1) * each : 2])]
        if empty:
            await self._listing(run("forget_streams", lambda: commands.zrem(key, *empty)))
