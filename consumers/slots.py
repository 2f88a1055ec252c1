"""How many messages of a kind may this process work on at once?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from redisworld.observe import Saturation, observe


class Slots:
    """A counted limit. ``free`` goes below zero when one blocking read over many streams brought more than asked."""

    def __init__(self, kind: str, limit: int) -> None:
        self.kind = kind
        self.limit = limit
        self.taken = 0
        self._changed = asyncio.Event()

    @property
    def free(self) -> int:
        """Slots nobody has taken."""
        return self.limit - self.taken

    def take(self) -> None:
        """Take a slot, also beyond the limit: the delivery is here already."""
        self._change(1)

    def release(self) -> None:
        """Give a slot back."""
        self._change(-1)

    def _change(self, by: int) -> None:
        self.taken += by
        self._changed.set()
        observe(Saturation(self.kind, self.taken, self.limit))

    async def wait_free(self) -> None:
        """Return when a slot is free, at the latest after a second: the caller has a stop to look at."""
        while self.free <= 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._changed.wait()
            except TimeoutError:
                return

    @contextmanager
    def released(self) -> Iterator[None]:
        """Lend the slot out while the holder waits for something long."""
        self.release()
        try:
            yield
        finally:
            self.take()
