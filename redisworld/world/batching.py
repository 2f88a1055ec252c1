"""How do many claims, or completions, of one event-loop tick become one script call per partition?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

import anyio.abc

from redisworld.keys import Partition

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_ITEMS = 64
"""Measured: a batch of 64 costs 0.6 of single calls, and a script of 64 completions stays below 1 ms."""
MOST_BYTES = 1024 * 1024


Done = Callable[[Answer | BaseException], None]
"""Called with the answer to an item, or with what the call raised. It raises nothing."""


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
        self._waiting: dict[Partition, list[tuple[Item, Done[Answer]]]] = {}

    def ask(self, partition: Partition, item: Item) -> asyncio.Future[Answer]:
        """As ``add``: the future of the answer, or of what the call raised."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.add(partition, item, partial(_settle, future))
        return future

    def add(self, partition: Partition, item: Item, done: Done[Answer]) -> None:
        """Send ``item`` with its neighbours of this tick."""
        if (waiting := self._waiting.get(partition)) is None:
            self._waiting[partition] = waiting = []
            asyncio.get_running_loop().call_soon(self._flush, partition)
        waiting.append((item, done))

    def _flush(self, partition: Partition) -> None:
        batch: list[tuple[Item, Done[Answer]]] = []
        size = 0
        for pair in self._waiting.pop(partition):
            size += self._size(pair[0])
            if batch and (len(batch) == MOST_ITEMS or size > MOST_BYTES):
                self._tasks.start_soon(self._deliver, partition, batch)
                batch, size = [], self._size(pair[0])
            batch.append(pair)
        self._tasks.start_soon(self._deliver, partition, batch)

    async def _deliver(self, partition: Partition, batch: list[tuple[Item, Done[Answer]]]) -> None:
        try:
            answers = await self._send(partition, [item for item, _ in batch])
        except BaseException as error:  # each meets it where it can decide
            for _, done in batch:
                done(error)
            if not isinstance(error, Exception):
                raise
        else:
            for (_, done), answer in zip(batch, answers, strict=True):
                done(answer)


def _settle(future: asyncio.Future[Answer], answer: Answer | BaseException) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    elif isinstance(answer, BaseException):
        future.cancel()
    else:
        future.set_result(answer)
