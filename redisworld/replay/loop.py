"""How does a body's asyncio run without a clock, a selector or threads?

The loop keeps a queue of ready handles and nothing else. Time is the body time that the engine sets; a timer is
a durable wait that the engine fires. It runs *inside* a worker's running loop, from event to event.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import math
import sys
import warnings
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager
from contextvars import Context
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack, cast

from redisworld.durations import MAX_MS
from redisworld.errors import ForbiddenInWorkflow
from redisworld.replay.calls import StepCall
from redisworld.replay.forbidden import (
    FORBIDDEN_LOOP_CALLS,
    refuse_call,
    refuse_spinning,
    refuse_unordered_start,
)
from redisworld.replay.place import edge
from redisworld.replay.tasks import ReplayFuture, ReplayTask, StepTask

_enter_task: Callable[[asyncio.AbstractEventLoop, asyncio.Task[Any]], None] = getattr(asyncio.tasks, "_enter_task")  # noqa: B009
_leave_task: Callable[[asyncio.AbstractEventLoop, asyncio.Task[Any]], None] = getattr(asyncio.tasks, "_leave_task")  # noqa: B009

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

MAX_HANDLES = 1_000_000
"""Callbacks in a row without a suspension: about a second of CPU. More is a body that spins for ever."""

MAX_CLOSES = 100
"""How often a dropped coroutine that insists on awaiting is closed again."""

MAX_REFUSALS = 1_000
"""How often a dropped task is told so at what it tries; one that catches that and tries on is left waiting then."""


class InstanceDropped(BaseException):
    """Raised into what a dropped body still tries to do while it is torn down; nobody ever sees it."""


class LoopHost(Protocol):
    """Who the loop tells about timers and observers: the engine."""

    def start_wait(self, timer: DurableTimer, due_ms: int) -> None:
        """A timer was made."""

    def drop_wait(self, timer: DurableTimer) -> None:
        """A timer was cancelled before it fired."""

    def observed(self, call: StepCall[Any], observer: Callable[..., object]) -> object | None:
        """A bare step's task got an observer: what it shares with the others of its join, or None."""

    def unobserved(self, call: StepCall[Any]) -> None:
        """A bare step's task lost an observer."""


class DurableTimer(asyncio.TimerHandle):
    """The handle of a timer that is a wait in the log."""

    wait_id = ""
    """The wait's correlation id; empty while there is none, because it was due at once, or has fired."""


class ReplayLoop(asyncio.AbstractEventLoop):
    """The deterministic loop of one instance of a body."""

    def __init__(self, host: LoopHost, *, hash_base: int = 0) -> None:
        self.host = host
        self.hash_base = hash_base
        """What hashes of tasks and futures count from."""
        self.now_ms = 0
        """Body time in epoch milliseconds."""
        self.unhandled: deque[dict[str, Any]] = deque(maxlen=100)
        """What asyncio reported to the loop's exception handler: errors nobody awaited."""
        self.piece = 0
        """The number of the piece of the body that runs, or ran last."""
        self._ready: deque[asyncio.Handle | StepTask] = deque()
        self._next: list[asyncio.Handle] = []  # for the next piece
        self._reached = -math.inf
        self._numbers = 0
        # asyncio holds tasks weakly; a forgotten one must not end when the garbage collector happens to run.
        self._tasks: dict[ReplayTask, None] = {}
        self._running = False
        self._closed = False
        self._refusals = 0

    def next_number(self) -> int:
        """The next number of a task, a future or what else is put into sets, for hashes and names."""
        self.check_alive()
        self._numbers += 1
        return self._numbers

    def run_dry(self) -> None:
        """Run ready callbacks until none is left. Raises ForbiddenInWorkflow after a million of them."""
        if self._running:
            self._run_ready()
        else:
            with _Running(self):
                self._run_ready()

    def running(self) -> AbstractContextManager[None]:
        """Be the running loop for several pieces of the body in a row: to begin and to end that costs most of one."""
        return _Running(self)

    def fire(self, timer: DurableTimer) -> None:
        """Make a timer's callback ready."""
        timer.wait_id = ""
        self._reach(timer)

    def put_off(self, handle: asyncio.Handle) -> None:
        """Let a callback that is ready wait for the next piece of the body."""
        self._ready.remove(handle)
        self._next.append(handle)

    def start_soon(self, task: StepTask) -> None:
        """Ask for a step in this piece of the body."""
        if not self._closed:
            self._ready.append(task)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not done, and those of steps that have not been asked for yet."""
        return [*self._tasks, *(cast("asyncio.Task[Any]", it) for it in self._ready if type(it) is StepTask)]

    def forget(self, task: asyncio.Task[Any]) -> None:
        """A task is done."""
        if isinstance(task, ReplayTask):
            self._tasks.pop(task, None)

    @edge
    def inside(self, at: int, func: Callable[[Unpack[Ts]], R], *args: *Ts) -> R:
        """Call what belongs to the body but is not a callback, such as the decoding of what it is given, at ``at``."""
        self.now_ms = max(self.now_ms, at)
        with _Running(self):
            return func(*args)

    def drop(self) -> None:
        """Tear the suspended body down: nothing it still tries takes effect, and nothing is reported."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._next.clear()
        with _Running(self), warnings.catch_warnings():
            # A list of coroutines the body had not come to await yet is no mistake here.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in tuple(self._tasks):
                self._refusals = 0
                _enter_task(self, task)  # TaskGroup and timeout ask which one they are in, before they try anything
                _close(task)
                _leave_task(self, task)
            self._tasks.clear()

    def check_alive(self) -> None:
        """Raise InstanceDropped when the instance has been dropped."""
        if self._closed:
            self._refusals += 1
            if self._refusals <= MAX_REFUSALS:
                raise InstanceDropped

    # --- what asyncio asks of a loop -------------------------------------------------------------------------

    def time(self) -> float:
        """Body time in seconds, and never before a timer that fired: what polls a deadline would set it for ever."""
        return max(self.now_ms / 1_000, self._reached)

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in this piece of the body."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback after a durable wait."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback after a durable wait until ``when``, in seconds of body time; never, if infinite."""
        if when == math.inf:
            return DurableTimer(when, callback, args, self, context)  # anyio.sleep_forever(): nothing to wait for
        if not math.isfinite(when) or when * 1_000 > self.now_ms + MAX_MS:
            raise ForbiddenInWorkflow(f"a timer at {when} seconds is out of range: at most 100 years ahead")
        # Doubles near today hold a quarter of a microsecond; rounding hides that before rounding up.
        due_ms = math.ceil(round(when * 1_000, 3))
        return self._start(DurableTimer(when, callback, args, self, context), due_ms)

    def wait_until(
        self, due_ms: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> DurableTimer:
        """Run the callback after a durable wait until ``due_ms``, at once when that has passed."""
        return self._start(DurableTimer(due_ms / 1_000, callback, args, self, context), due_ms)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, DurableTimer) and handle.wait_id and not self._closed:
            self.host.drop_wait(handle)

    def create_future(self) -> asyncio.Future[Any]:
        """A future with a repeatable hash."""
        return ReplayFuture(loop=self)

    def create_task(  # type: ignore[override]  # typeshed also names 3.14's eager_start
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """A task that repeats; for a bare step call one whose observers are recorded."""
        if self._closed:
            coro.close()
        if type(coro) is StepCall:
            return StepTask(coro, loop=self, name=name)  # type: ignore[return-value]  # it acts like one
        refuse_unordered_start(coro)
        return self.start(coro, context, name=name)

    def start(
        self, coro: Coroutine[Any, Any, Any], context: Context | None, *, name: str | None = None
    ) -> asyncio.Task[Any]:
        """A task that repeats."""
        task = ReplayTask(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        return task

    def get_task_factory(self) -> None:
        """None: tasks are this loop's own. anyio asks before it starts one."""

    def get_debug(self) -> bool:
        """Debug mode would measure wall time."""
        return False

    def is_running(self) -> bool:
        """Whether the body is running right now."""
        return self._running

    def is_closed(self) -> bool:
        """Whether the instance has been dropped."""
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody awaited, for the engine's logs; a dropped instance must not print it."""
        if not self._closed:
            self.unhandled.append(context)

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators end with the body."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is no executor."""

    # --- inside ----------------------------------------------------------------------------------------------

    def _start(self, timer: DurableTimer, due_ms: int) -> DurableTimer:
        self.check_alive()
        if due_ms <= self.now_ms:
            self._reach(timer)
        else:
            self.host.start_wait(timer, due_ms)
        return timer

    def _reach(self, timer: DurableTimer) -> None:
        self._reached = max(self._reached, timer.when())
        self._ready.append(timer)

    @edge
    def _run_ready(self) -> None:
        ready = self._ready
        ready.extend(self._next)
        self._next.clear()
        self.piece += 1
        for _ in range(MAX_HANDLES):
            if not ready:
                return
            handle = ready.popleft()
            if not handle.cancelled():
                try:  # noqa: SIM105  # suppress() costs as much as a handle
                    handle._run()
                except (SystemExit, KeyboardInterrupt):
                    pass  # asyncio raises these past the loop; they also ended their task, and must not end the worker
        refuse_spinning(handle, MAX_HANDLES)

    def _finish_asyncgen(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._running and not self._closed:
            self.create_task(generator.aclose())


class _Running:
    """While it is open, the loop is the running one of its thread. One inside another of the same loop does nothing."""

    __slots__ = ("_collects", "_hooks", "_loop", "_nested", "_outer")

    def __init__(self, loop: ReplayLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._nested = self._loop._running
        if self._nested:
            return
        self._outer = events._get_running_loop()
        self._hooks = sys.get_asyncgen_hooks()
        self._collects = gc.isenabled()
        # A collection now would finish abandoned generators and foreign bodies at a moment no replay repeats,
        # and their clean-up would find *this* loop running.
        gc.disable()
        events._set_running_loop(self._loop)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._loop._finish_asyncgen)
        self._loop._running = True

    def __exit__(self, *_: object) -> None:
        if self._nested:
            return
        self._loop._running = False
        sys.set_asyncgen_hooks(*self._hooks)
        events._set_running_loop(self._outer)
        if self._collects:
            gc.enable()


@edge
def _close(task: ReplayTask) -> None:
    coro = task.get_coro()
    for _ in range(MAX_CLOSES):
        try:
            if coro is not None:
                coro.close()
            return
        except RuntimeError:
            continue  # "coroutine ignored GeneratorExit": it awaits in a finally block
        except BaseException:
            # Raised by the clean-up; the coroutine has ended. A TaskGroup gives a group of GeneratorExit, and a
            # sys.exit() in a finally must not end a worker that makes room for another body.
            return
    # It catches everything, again and again. Python would close it once more where it is forgotten, and there nothing
    # that it calls would let it wait.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))


for _name in FORBIDDEN_LOOP_CALLS:
    setattr(ReplayLoop, _name, refuse_call(_name))
