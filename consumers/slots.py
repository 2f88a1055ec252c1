"""How many messages of a kind may this process work on at once?"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from redisworld.observe import Saturation, observe


class Slots:
    """A counted limit with two counts: deliveries that are held, and those at work.

    One blocking read over many streams can bring more than was asked for. Those are held beyond the limit and wait
    for their turn, so ``free`` can be below zero but never more than ``limit`` bodies run.
    """

    def __init__(self, kind: str, limit: int) -> None:
        self.kind = kind
        self.limit = limit
        self.held = 0
        self._at_work = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def free(self) -> int:
        """How many more deliveries may be read."""
        return self.limit - self.held

    def hold(self) -> None:
        """A delivery is here."""
        self._count(1)

    def release(self) -> None:
        """A delivery is done with."""
        self._count(-1)

    def _count(self, by: int) -> None:
        self.held += by
        self._changed.set()
        self.announce()

    def announce(self) -> None:
        """Tell observers how many are held, and of how many."""
        observe(Saturation(self.kind, self.held, self.limit))

    async def wait_free(self) -> None:
        """Return when a slot is free, at the latest after a second: the caller has a stop to look at."""
        while self.free <= 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._changed.wait()
            except TimeoutError:
                return

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Be at work; waits while ``limit`` others are, but no longer once the slots are closed."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        if self._at_work < self.limit or self._closed:
            self._at_work += 1
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future  # whoever sets it has counted us in
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        self._at_work -= 1
        if self._at_work < self.limit:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                self._at_work += 1
                future.set_result(None)
                return

    def close(self) -> None:
        """Let everybody through who waits: the worker drains, and they go back."""
        self._closed = True
        while self._waiting:
            self._let_in()

    def keep(self) -> Callable[[], None]:
        """Occupy a slot beyond the delivery it came with, until the returned function is called."""
        self.hold()
        self._at_work += 1

        def give_back() -> None:
            self._leave()
            self.release()

        return give_back

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the slot of a delivery out while its handler waits for something long."""
        self._leave()
        self.release()
        try:
            yield
        finally:
            self.hold()
            self._at_work += 1
