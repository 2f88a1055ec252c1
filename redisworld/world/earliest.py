"""Which of several blocking reads has something first?

One Redis answers that itself: a blocking read may name many streams. Those of several partitions of a cluster lie in
several slots, so each gets a read of its own, and when one has something the others are ended inside their nodes. They
are never cancelled: what a node has handed out would be held by nobody until its lease ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from redisworld.errors import RedisUnavailable
from redisworld.world.connection import Connection
from redisworld.world.nodes import BlockingRead


async def earliest(
    connection: Connection, op: str, commands: Mapping[str, Sequence[Any]], *, timeout: float | None
) -> list[Any]:
    """The replies that are not empty, as soon as there is one; no read waits any more then. ``commands`` are by key.

    A node that cannot be asked leaves the others waiting: RedisUnavailable is raised if they have nothing either. Any
    other error ends the wait at once, and is raised if there is no reply.
    """
    reads = [_Read(connection, op, key, command, timeout) for key, command in commands.items()]
    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for read in reads:
            tasks.create_task(read.run(over, reads))
        await over.wait()
        for read in reads:
            tasks.create_task(read.end())
    replies = [read.reply for read in reads if read.reply]
    if not replies and (errors := [read.error for read in reads if read.error is not None]):
        raise next((error for error in errors if not isinstance(error, RedisUnavailable)), errors[0])
    return replies


class _Read:
    def __init__(
        self, connection: Connection, op: str, key: str, command: Sequence[Any], timeout: float | None
    ) -> None:
        self._connection, self._op, self._command, self._timeout = connection, op, command, timeout
        self._read: BlockingRead = connection.nodes.reads(key)
        self.reply: Any = None
        self.error: Exception | None = None

    async def run(self, over: asyncio.Event, all_reads: Sequence[_Read]) -> None:
        """Wait for the reply; all are ``over`` when there is one, or when nobody waits any more."""
        try:
            self.reply = await self._connection.wait(self._op, self._read, *self._command, timeout=self._timeout)
        except Exception as error:  # raised by who started all reads
            self.error = error
        gone_wrong = self.error is not None and not isinstance(self.error, RedisUnavailable)
        if self.reply or gone_wrong or all(read._read.over.is_set() for read in all_reads):
            over.set()

    async def end(self) -> None:
        """Return when the read is done, soon."""
        try:
            await self._connection.end_read(self._read)
        except (RedisUnavailable, ResponseError) as error:
            self._connection.faults.warn("redis", "a read cannot be ended and waits its time", error=error)
        await self._read.over.wait()
