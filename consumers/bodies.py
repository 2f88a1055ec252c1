"""How does the body of a step run: in the loop or in a thread, within its timeout, until a drain wants it back?"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import coroutine
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from consumers.forked import EndsForked
from redisworld.begun import Work
from redisworld.errors import StepTimeout
from redisworld.facts import fact
from redisworld.metadata import StepScope, current_step
from redisworld.workflows import Step
from redisworld.world import Delivery

_AGAIN_S = 1.0
"""A body that is still there so long after its cancellation is cancelled again: it may have swallowed it."""
_DRAINS = 3
"""A body that waits for something after so many cancellations by a drain is given up: the process is to end."""


class Drained(Exception):
    """The body was cancelled because its worker shuts down. What its clean-up raised is the cause."""


class Stopped(Exception):
    """The body was cancelled because its run was. What its clean-up raised is the cause."""


class _Running(msgspec.Struct, eq=False):
    """A body that runs, and how often we have cancelled it."""

    task: asyncio.Task[Any]
    delivery: Delivery
    is_async: bool
    cancels: int = 0
    why: Exception | None = None

    def cancel(self, why: Exception) -> None:
        self.cancels += 1
        self.why = self.why or why  # what came first is the outcome: a drain makes no timeout undone
        self.task.cancel()


class Bodies:
    """The bodies that run in this process. ``threads`` bounds the synchronous ones."""

    def __init__(self, threads: int, max_payload: int) -> None:
        self.modules = frozenset(sys.modules)
        """Loaded before any body ran, as in every process of the application."""
        self._max_payload = max_payload
        self._limiter = anyio.CapacityLimiter(threads)
        self._running: set[_Running] = set()
        self._abandoned: set[_Thread] = set()
        self._drains = 0
        self._ended = anyio.Event()

    @property
    def running(self) -> int:
        """How many bodies run now."""
        return len(self._running)

    @property
    def abandoned(self) -> int:
        """Threads that go on although nobody waits for their result."""
        return len(self._abandoned)

    async def wait_idle(self) -> None:
        """Return when no body runs."""
        while self._running:
            self._ended = anyio.Event()
            await self._ended.wait()

    @property
    def draining(self) -> bool:
        """Whether bodies are being handed back."""
        return self._drains > 0

    def drain(self) -> None:
        """Cancel all bodies; each raises Drained where it is awaited. One that goes on is cancelled again."""
        self._drains += 1
        for body in self._running:
            body.cancel(Drained())
        if self._running:
            asyncio.get_running_loop().call_later(_AGAIN_S, self.drain)

    def stop(self, delivery: Delivery) -> None:
        """Cancel the body that this delivery runs: its run was cancelled. A thread cannot be stopped and goes on."""
        for body in self._running:
            if body.delivery == delivery and body.is_async:
                body.cancel(Stopped())

    async def run(
        self,
        step: Step[..., Any],
        scope: StepScope,
        data: bytes,
        delivery: Delivery,
        keep_slot: Callable[[], Callable[[], None]],
    ) -> bytes:
        """Decode the arguments, run the body once and encode its result.

        ``scope`` is what the body may learn. Raises what the body raises, InvalidArguments and InvalidValue for what
        does not fit, StepTimeout, Drained, Stopped.
        ``keep_slot`` is asked when a timed-out thread goes on; what it returns is called when that thread ends.
        """
        if self.draining:
            raise Drained
        args, kwargs = step.signature.decode_call(data)
        body = _Running(_current_task(), delivery, step.is_async)
        before = body.task.cancelling()
        self._running.add(body)
        known = current_step.set(scope)
        timer = None if step.timeout_ms is None else _limited(body, step, step.timeout_ms)
        try:
            if step.is_async:
                result = await _apart(step.func(*args, **kwargs), self._gives_up)
            else:
                result = await self._in_thread(step, args, kwargs, keep_slot)
            return step.signature.encode_result(result, max_bytes=self._max_payload)
        except asyncio.CancelledError as error:
            if _ends(body.task):
                raise
            if body.why is not None:
                raise body.why from None
            raise RuntimeError("the step's body raised CancelledError by itself") from error
        except BaseException as error:
            if _ends(body.task) and not isinstance(error, GeneratorExit):
                raise asyncio.CancelledError from error
            if body.why is None or isinstance(error, GeneratorExit) or _own(step, body.why, error):
                raise
            raise body.why from error
        finally:
            if timer is not None:
                timer.cancel()
            current_step.reset(known)
            self._running.remove(body)
            self._ended.set()
            if not isinstance(sys.exception(), GeneratorExit):
                await _take_back(body.task, before)

    async def _in_thread(
        self,
        step: Step[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        keep_slot: Callable[[], Callable[[], None]],
    ) -> Any:
        thread = _Thread(partial(step.func, *args, **kwargs))
        try:
            result = await anyio.to_thread.run_sync(thread.run, limiter=self._limiter, abandon_on_cancel=True)
        except asyncio.CancelledError:
            self._abandon(thread, keep_slot())
            if not self.draining:
                threads = len(self._abandoned)
                fact(logging.WARNING, "its thread goes on, and keeps a slot", name=step.name, threads=threads)
            raise
        # A decorator written with def around an async def: what it gives belongs on the loop.
        return await _apart(_awaited(result), self._gives_up) if inspect.isawaitable(result) else result

    def _gives_up(self) -> bool:
        return self._drains >= _DRAINS

    def _abandon(self, thread: _Thread, give_back: Callable[[], None]) -> None:
        self._abandoned.add(thread)

        def ended() -> None:
            self._abandoned.discard(thread)
            give_back()

        thread.when_done(ended)


class _Timer:
    """Calls something after a time, and every second from then on, until it is cancelled."""

    def __init__(self, after_s: float, call: Callable[[], None]) -> None:
        self._call = call
        self._handle = asyncio.get_running_loop().call_later(after_s, self._fire)

    def _fire(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(_AGAIN_S, self._fire)
        self._call()

    def cancel(self) -> None:
        self._handle.cancel()


def _limited(body: _Running, step: Step[..., Any], timeout_ms: int) -> _Timer:
    """Cancels the body when its timeout is over, and again and again while it goes on."""
    timeout_s = timeout_ms / 1000
    over = StepTimeout(f"step {step.name!r} ran longer than its timeout of {timeout_s:g} s")
    return _Timer(timeout_s, lambda: body.cancel(over))


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given


@coroutine
def _apart(body: Coroutine[Any, Any, Any], gives_up: Callable[[], bool]) -> Generator[Any, Any, Any]:
    """Run a coroutine in this task, but in a copy of its context: what a body sets must not reach the next one.

    One that waits on after it was cancelled is closed when ``gives_up`` says so.
    """
    run, child = copy_context().run, EndsForked(waits=True)

    def go(resume: Callable[[Any], Any], value: Any) -> Any:
        with child:
            return run(resume, value)

    try:
        waits_for = go(body.send, None)
        while True:
            try:
                given = yield waits_for
            except GeneratorExit:
                run(body.close)
                raise
            except BaseException as error:
                waits_for = go(body.throw, error)
                if gives_up():
                    with suppress(RuntimeError):  # it ignores that, too
                        run(body.close)
                    raise
            else:
                waits_for = go(body.send, given)
    except StopIteration as end:
        return end.value


class _Thread:
    """A synchronous body that says when it has really ended."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._done = False
        self._when_done: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()

    def run(self) -> Any:
        try:
            with EndsForked():
                return self._call()
        except GeneratorExit as error:  # thrown into a coroutine that waits, it would close the coroutine instead
            raise RuntimeError("the step's body raised GeneratorExit") from error
        finally:
            with suppress(RuntimeError):  # the worker has stopped without waiting for us
                self._loop.call_soon_threadsafe(self._finish)

    def when_done(self, call: Callable[[], None]) -> None:
        """Call ``call`` on the loop once the thread has returned."""
        if self._done:
            call()
        else:
            self._when_done = call

    def _finish(self) -> None:
        self._done = True
        if self._when_done:
            self._when_done()


def _own(step: Step[..., Any], why: Exception, error: BaseException) -> bool:
    """Whether an error after a drain's cancellation is still the body's own outcome: it forbids another attempt, or
    its time was over. Any other is how its clean-up, or a library, puts the cancellation.
    """
    return isinstance(why, Drained) and (
        isinstance(error, StepTimeout) or (isinstance(error, Exception) and not step.retries.allow(error))
    )


async def _take_back(task: asyncio.Task[Any], before: int) -> None:
    """Undo cancellations beyond so many: ours, and those of a body that cancelled its own task, as some libraries do
    for a timeout. One that has not been raised yet would be raised in whatever the worker awaits next.
    """
    if _ends(task) or task.cancelling() <= before:
        return
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    if _ends(task):
        raise asyncio.CancelledError
    while task.cancelling() > before:
        task.uncancel()


def _ends(task: asyncio.Task[Any]) -> bool:
    """Whether the task that runs the body is being ended; a body may also have cancelled it by itself."""
    return isinstance(task, Work) and task.ended


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a step's body needs a task of asyncio to run in")
    return task
