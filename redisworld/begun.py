"""How does work go on that nobody waits for?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


class Work(asyncio.Task[None]):
    """A task that knows whether whoever has begun it ends it, or it was cancelled by what runs in it."""

    ended = False


class Begun:
    """Tasks that raise nothing and that nobody waits for. Leaving it as a context cancels what still goes on.

    A task of a TaskGroup costs as much again as the task itself.
    """

    def __init__(self) -> None:
        self._tasks: set[Work] = set()

    async def __aenter__(self) -> Begun:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        await self.done()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with it in a task of its own; on Python 3.12 and later it has begun when this returns."""
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):
            task = Work(work, loop=loop, eager_start=True)
        else:
            task = Work(work, loop=loop)
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancel what goes on."""
        for task in self._tasks:
            task.ended = True
            task.cancel()

    async def done(self) -> None:
        """Wait until nothing goes on."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
