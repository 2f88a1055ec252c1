"""How do many claims, or completions, of one event-loop tick become one script call per partition?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio.abc

from redisworld.keys import Partition

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_ITEMS = 64
"""Measured: a batch of 64 costs 0.6 of single calls, and a script of 64 completions stays below 1 ms."""
MOST_BYTES = 1024 * 1024


class Batcher(Generic[Item, Answer]):
    """Collects items until the loop's current tick ends, then sends them; it never waits for more.

    ``send`` gets the items of one partition and answers each, in order.
    """

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        send: Callable[[Partition, list[Item]], Awaitable[list[Answer]]],
        size: Callable[[Item], int],
    ) -> None:
        self._tasks = tasks
        self._send = send
        self._size = size
        self._waiting: dict[Partition, list[tuple[Item, asyncio.Future[Answer]]]] = {}

    def add(self, partition: Partition, item: Item) -> asyncio.Future[Answer]:
        """Send ``item`` with its neighbours of this tick: the future of its own answer, or of what the call raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        if (waiting := self._waiting.get(partition)) is None:
            self._waiting[partition] = waiting = []
            loop.call_soon(self._flush, partition)
        waiting.append((item, future))
        return future

    def _flush(self, partition: Partition) -> None:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        size = 0
        for pair in self._waiting.pop(partition):
            size += self._size(pair[0])
            if batch and (len(batch) == MOST_ITEMS or size > MOST_BYTES):
                self._tasks.start_soon(self._deliver, partition, batch)
                batch, size = [], self._size(pair[0])
            batch.append(pair)
        self._tasks.start_soon(self._deliver, partition, batch)

    async def _deliver(self, partition: Partition, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send(partition, [item for item, _ in batch])
        except Exception as error:  # each waiter meets it where it can decide
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
