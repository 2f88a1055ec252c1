"""How does a waiting caller hear at once that a run has ended?

The script that ends a run publishes its id on the partition's channel. A channel forgets, so this only saves
waiting: whoever waits looks at the row again after a second in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.abc

from redisworld.keys import Partition
from redisworld.world.connection import Connection
from redisworld.world.refusals import RAISED, is_of_redis
from redisworld.world.replies import text_of

_LOOK_AGAIN_S = 1.0


class Ended:
    """Set when the run may have ended."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> bool:
        """Return when the run may have ended, at the latest after a second; whether somebody has said so."""
        with anyio.move_on_after(_LOOK_AGAIN_S):
            await self._event.wait()
        told = self._event.is_set()
        self._event.clear()
        return told

    def set(self) -> None:
        """Let the waiter look."""
        self._event.set()


class Endings:
    """One subscription for all waiters of a World, made when the first one comes."""

    def __init__(self, connection: Connection, partitions: tuple[Partition, ...], tasks: anyio.abc.TaskGroup) -> None:
        self._connection = connection
        self._channels = [partition.ended for partition in partitions]
        self._tasks = tasks
        self._waiting: dict[str, list[Ended]] = {}
        self._listening = False

    @contextmanager
    def watch(self, run_id: str) -> Iterator[Ended]:
        """Something to wait on while the context is open."""
        self._connection.check_place()
        if not self._listening:
            self._listening = True
            self._tasks.start_soon(self._listen)
        ended = Ended()
        self._waiting.setdefault(run_id, []).append(ended)
        try:
            yield ended
        finally:
            self._waiting[run_id].remove(ended)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

    async def _listen(self) -> None:
        while True:
            try:
                async with self._connection.followers.pubsub() as channel:
                    await channel.subscribe(*self._channels)
                    for waiters in list(self._waiting.values()):  # who ended before we listened
                        for ended in waiters:
                            ended.set()
                    while True:
                        message = await channel.get_message(ignore_subscribe_messages=True, timeout=_LOOK_AGAIN_S)
                        if message:
                            for ended in self._waiting.get(text_of(message["data"]), ()):
                                ended.set()
            except RAISED as error:
                if not is_of_redis(error):
                    raise
                await anyio.sleep(_LOOK_AGAIN_S)
