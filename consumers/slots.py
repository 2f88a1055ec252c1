"""How many messages of a kind may this process work on at once?"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
        self._full: asyncio.Event | None = None
        self._announced = -1

    @property
    def free(self) -> int:
        """How many more deliveries may be read."""
        return self.limit - self.held

    def hold(self) -> None:
        """A delivery is here."""
        self.held += 1

    def release(self) -> None:
        """A delivery is done with."""
        self.held -= 1
        if self._full is not None:
            self._full.set()

    def announce(self) -> None:
        """Tell observers how many are held, and of how many, where that is new. A timer calls this: holds are many."""
        if self.held != self._announced:
            self._announced = self.held
            observe(Saturation(self.kind, self.held, self.limit))

    async def wait_free(self) -> None:
        """Return when a slot is free, at the latest after a second: the caller has a stop to look at."""
        if self.free > 0:
            return
        self._full = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while self.free <= 0:
                    self._full.clear()
                    await self._full.wait()
        self._full = None

    def turn(self) -> _Turn:
        """A slot for the time of a context, beyond the delivery it came with: held at once, at work when it is free."""
        return _Turn(self)

    def enter_now(self) -> bool:
        """Begin a turn if that needs no waiting; whoever does must ``leave``."""
        if self._at_work < self.limit or self._closed:
            self._at_work += 1
            return True
        return False

    async def enter(self) -> None:
        """Begin a turn, maybe later; whoever does must ``leave``."""
        if self.enter_now():
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future  # whoever sets it has counted us in
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """End a turn."""
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

    @property
    def closed(self) -> bool:
        """Whether the worker drains."""
        return self._closed

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
            self.leave()
            self.release()

        return give_back

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the slot of a delivery out while its handler waits for something long."""
        self.leave()
        self.release()
        try:
            yield
        finally:
            self.hold()
            self._at_work += 1


class _Turn:
    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    async def __aenter__(self) -> None:
        self._slots.hold()
        try:
            await self._slots.enter()
        except BaseException:
            self._slots.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._slots.leave()
        self._slots.release()
