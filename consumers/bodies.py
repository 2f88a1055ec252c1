"""How does the body of a step run: in the loop or in a thread, within its timeout, until a drain wants it back?"""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from redisworld.errors import StepTimeout
from redisworld.metadata import StepInfo, WorkflowInfo, current_step, current_workflow
from redisworld.workflows import Step
from redisworld.world import OwnRun, current_run


class Drained(Exception):
    """The body was cancelled because its worker shuts down."""


class Bodies:
    """The bodies that run in this process. ``threads`` bounds the synchronous ones."""

    def __init__(self, threads: int, max_payload: int) -> None:
        self.modules = frozenset(sys.modules)
        """Loaded before any body ran, as in every process of the application."""
        self._max_payload = max_payload
        self._limiter = anyio.CapacityLimiter(threads)
        self._scopes: set[anyio.CancelScope] = set()
        self._abandoned: set[_Thread] = set()
        self._draining = False
        self._ended = anyio.Event()

    @property
    def running(self) -> int:
        """How many bodies run now."""
        return len(self._scopes)

    @property
    def abandoned(self) -> int:
        """Threads that go on although nobody waits for their result."""
        return len(self._abandoned)

    async def wait_idle(self) -> None:
        """Return when no body runs."""
        while self._scopes:
            self._ended = anyio.Event()
            await self._ended.wait()

    @property
    def draining(self) -> bool:
        """Whether bodies are being handed back."""
        return self._draining

    def drain(self) -> None:
        """Cancel all bodies; each raises Drained where it is awaited."""
        self._draining = True
        for scope in self._scopes:
            scope.cancel()

    async def run(
        self,
        step: Step[..., Any],
        info: StepInfo,
        workflow: str,
        own_run: OwnRun,
        data: bytes,
        keep_slot: Callable[[], Callable[[], None]],
    ) -> bytes:
        """Decode the arguments, run the body once and encode its result.

        Raises what the body raises, InvalidArguments and InvalidValue for what does not fit, StepTimeout, Drained.
        ``keep_slot`` is asked when a timed-out thread goes on; what it returns is called when that thread ends.
        """
        if self._draining:
            raise Drained
        args, kwargs = step.signature.decode_call(data)
        deadline = math.inf if step.timeout_ms is None else anyio.current_time() + step.timeout_ms / 1000
        with _known(info, workflow, own_run):
            with anyio.CancelScope(deadline=deadline) as scope:
                self._scopes.add(scope)
                try:
                    result = await (
                        step.func(*args, **kwargs) if step.is_async else self._in_thread(step, args, kwargs, keep_slot)
                    )
                    return step.signature.encode_result(result, max_bytes=self._max_payload)
                except asyncio.CancelledError as error:
                    if not scope.cancel_called and not _cancelling():
                        raise RuntimeError("the step's body raised CancelledError by itself") from error
                    raise
                finally:
                    self._scopes.discard(scope)
                    self._ended.set()
        if self._draining:
            raise Drained
        raise StepTimeout(f"step {step.name!r} ran longer than its timeout of {(step.timeout_ms or 0) / 1000:g} s")

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
            raise
        # A decorator written with def around an async def: what it gives belongs on the loop.
        return await result if inspect.isawaitable(result) else result

    def _abandon(self, thread: _Thread, give_back: Callable[[], None]) -> None:
        self._abandoned.add(thread)

        def ended() -> None:
            self._abandoned.discard(thread)
            give_back()

        thread.when_done(ended)


class _Thread:
    """A synchronous body that says when it has really ended."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._done = False
        self._when_done: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()

    def run(self) -> Any:
        try:
            return self._call()
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


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextmanager
def _known(info: StepInfo, workflow: str, own_run: OwnRun) -> Iterator[None]:
    """Where the body is, for what it calls."""
    step = current_step.set(info)
    run = current_workflow.set(WorkflowInfo(info.run_id, workflow))
    own = current_run.set(own_run)
    try:
        yield
    finally:
        current_step.reset(step)
        current_workflow.reset(run)
        current_run.reset(own)
