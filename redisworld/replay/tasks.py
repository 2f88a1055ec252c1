"""What must a task and a future do so that a replay repeats, and so that we see who observes them?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import FrameType
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
    """A task that hashes by its sequence number."""

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
        super().__init__(coro, loop=loop, name=name or f"Task-{number}", context=context)
        # A suspended body is dropped with tasks pending; that is no mistake of the user's.
        self._log_destroy_pending = False
        super().add_done_callback(loop.forget)

    def __hash__(self) -> int:
        return self._hash


class StepTask(asyncio.Future[Any]):
    """The task of a *bare* step call: no frame of the user's runs in it, so a future that acts like a task will do.

    Nothing but its observers can notice when the step completes, and it records them. The step is asked for, and a
    cancellation takes effect, one turn of the loop later, as in a task; until then it is its own handle in the loop.
    Cancelled before that turn, it asks for nothing, as the coroutine of such a task never runs.
    """

    _loop: ReplayLoop
    _cancels = 0
    _cancel_message: Any = None

    def __init__(self, call: StepCall[Any], *, loop: ReplayLoop, name: str | None = None) -> None:
        self._hash = loop.hash_base + loop.next_number()
        super().__init__(loop=loop)
        self.observers: list[tuple[Callable[..., object], object | None]] = []
        """Each with what it shares with the others of its join, as the host says, or None."""
        self._call = call
        self._name = name
        call.task = self
        loop.start_soon(self)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._state.lower()} name={self.get_name()!r} coro={self._call!r}>"

    def _run(self) -> None:
        """As a handle's, which the loop calls while this is not cancelled."""
        if self._cancels:
            self._call.close()
            super().cancel(self._cancel_message)
        elif not self.done():
            self._call.ask(self)

    def cancel(self, msg: Any | None = None) -> bool:
        """As a task's; a step that was asked for goes on, and what it gives is dropped."""
        if self.done():
            return False
        self._cancels += 1
        self._cancel_message = msg
        self._loop.call_soon(self._give_up)
        return True

    def _give_up(self) -> None:
        if super().cancel(self._cancel_message):
            self._call.abandon()

    def cancelling(self) -> int:
        """As a task's."""
        return self._cancels

    def uncancel(self) -> int:
        """As a task's."""
        self._cancels = max(0, self._cancels - 1)
        return self._cancels

    def get_name(self) -> str:
        """As a task's."""
        return self._name or f"Task-{self._hash - self._loop.hash_base}"

    def set_name(self, value: object, /) -> None:
        """As a task's."""
        self._name = str(value)

    def get_coro(self) -> StepCall[Any]:
        """The step call."""
        return self._call

    def get_stack(self, *, limit: int | None = None) -> list[FrameType]:
        """No frames."""
        return []

    def add_done_callback(self, fn: Callable[..., object], /, *, context: Context | None = None) -> None:
        """As asyncio's; asyncio registers every await, join and wait through it."""
        super().add_done_callback(fn, context=context)
        self.observers.append((fn, self._loop.host.observed(self._call, fn)))

    def remove_done_callback(self, fn: Callable[..., object], /) -> int:
        """As asyncio's."""
        self.observers = [seen for seen in self.observers if seen[0] != fn]
        self._loop.host.unobserved(self._call)
        return super().remove_done_callback(fn)
