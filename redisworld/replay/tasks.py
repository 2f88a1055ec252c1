"""What must a task and a future do so that a replay repeats, and so that we see who observes them?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from redisworld.replay.calls import StepCall

if TYPE_CHECKING:
    from redisworld.replay.loop import ReplayLoop


class ReplayFuture(asyncio.Future[Any]):
    """A future that hashes by its sequence number: sets of futures iterate alike in every process."""

    def __init__(self, *, loop: ReplayLoop) -> None:
        self._hash = loop.hash_base + loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._hash


class ReplayTask(asyncio.Task[Any]):
    """A task that hashes by its sequence number and records who observes it.

    ``call`` is the step call it wraps when it is *bare*: no frame of the user's runs in it, so nothing but its
    observers can notice when the step completes.
    """

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: ReplayLoop,
        name: str | None = None,
        context: Context | None = None,
    ) -> None:
        number = loop.next_number()
        self._hash = loop.hash_base + number
        self.call = coro if isinstance(coro, StepCall) else None
        self.observers: list[Callable[..., object]] = []
        self._replay_loop = loop
        super().__init__(coro, loop=loop, name=name or f"Task-{number}", context=context)
        # A suspended body is dropped with tasks pending; that is no mistake of the user's.
        self._log_destroy_pending = False
        super().add_done_callback(loop.forget)
        if self.call is not None:
            self.call.task = self

    def __hash__(self) -> int:
        return self._hash

    def add_done_callback(self, fn: Callable[..., object], /, *, context: Context | None = None) -> None:
        """As asyncio's; asyncio registers every await, join and wait through it."""
        super().add_done_callback(fn, context=context)
        if self.call is not None:
            self.observers.append(fn)
            self._replay_loop.host.observed(self.call, fn)

    def remove_done_callback(self, fn: Callable[..., object], /) -> int:
        """As asyncio's."""
        if self.call is not None:
            self.observers = [observer for observer in self.observers if observer != fn]
            self._replay_loop.host.unobserved(self.call)
        return super().remove_done_callback(fn)
