"""What is the awaitable that calling a step in a workflow body returns?"""

from __future__ import annotations

import warnings
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redisworld.values import Signature

if TYPE_CHECKING:
    import asyncio

    from redisworld.replay.groups import Join
    from redisworld.replay.tasks import StepTask

_REUSED = "cannot reuse already awaited {!r}: keep its result, or make a task of it"

R_co = TypeVar("R_co", covariant=True)


class StepLike(Protocol):
    """What the engine needs to know of a registered step."""

    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def queue(self) -> str: ...


class CallHost(Protocol):
    """Who takes a step call's commands: the engine."""

    @property
    def dropped(self) -> bool:
        """Whether the body has been torn down, and what it left unawaited is no mistake."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of the body's loop."""

    def emit(self, call: StepCall[Any]) -> None:
        """The call is awaited for the first time: ask for the step; the call's ``future`` is to get its result."""

    def abandon(self, call: StepCall[Any]) -> None:
        """The call stopped waiting before the step completed."""


class StepCall(Coroutine[Any, Any, R_co]):
    """One call of a step in a body: a coroutine that asyncio's functions take like any other.

    Its id is taken and its arguments are encoded when the step is called, so that a bad argument raises there.
    The step is asked for when the call is first awaited or its task first runs.
    """

    future: asyncio.Future[Any]
    """What gets the step's result, from when the step is asked for."""
    joins: tuple[Join, ...] = ()
    """Those that observe it, while it is open."""
    task: StepTask | None = None
    """The task that wraps this call and nothing else."""
    delivered = False
    """Whether the completion reached the body."""
    abandoned = False
    """Whether the body stopped waiting before."""
    _awaited = False
    # Not before it is needed: it holds this call, and a forgotten one must go, and warn, where it is forgotten.
    _running: Generator[Any, Any, R_co] | None = None

    def __init__(self, host: CallHost, *, number: int, id: str, step: StepLike, input: bytes) -> None:
        self.number = number
        self.id = id
        self.step = step
        self.input = input
        self._host = host

    @property
    def settled(self) -> bool:
        """Whether nothing waits for this call any more."""
        return self.delivered or self.abandoned

    def __hash__(self) -> int:
        # as_completed puts calls in a set; by address its order would change from process to process.
        return self.number

    def __repr__(self) -> str:
        return f"<step call {self.step.name} {self.id}>"

    def __str__(self) -> str:
        return f"step {self.step.name!r}"

    def __del__(self) -> None:
        # As of a coroutine: a forgotten await is a step that nobody is ever asked to do.
        if not self._awaited and not self._host.dropped:
            warnings.warn(f"{self!r} was never awaited: its step is not run", RuntimeWarning, stacklevel=2)

    def __await__(self) -> Generator[Any, Any, R_co]:
        if self._awaited:
            raise RuntimeError(_REUSED.format(self))
        return self._progress

    def send(self, value: Any, /) -> Any:
        """Run to the next suspension, as a task does."""
        return self._progress.send(value)

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> Any:
        """Raise at the suspension."""
        raised = typ if isinstance(typ, BaseException) else val if isinstance(val, BaseException) else typ()
        return self._progress.throw(raised.with_traceback(tb) if tb is not None else raised)

    def close(self) -> None:
        """Give up."""
        self._awaited = True
        if self._running is not None:
            self._running.close()

    def ask(self, future: asyncio.Future[Any]) -> None:
        """Ask for the step on behalf of a task that wraps nothing else."""
        if self._awaited:
            future.set_exception(RuntimeError(_REUSED.format(self)))
            return
        self._awaited = True
        self.future = future
        self._host.emit(self)

    def abandon(self) -> None:
        """Stop waiting for the step."""
        self._awaited = True
        if not self.delivered:
            self.abandoned = True
            self._host.abandon(self)

    @property
    def _progress(self) -> Generator[Any, Any, R_co]:
        if self._running is None:
            self._awaited, self._running = True, self._run()
        return self._running

    def _run(self) -> Generator[Any, Any, R_co]:
        self.future = self._host.create_future()
        self._host.emit(self)
        try:
            result: R_co = yield from self.future
        finally:
            self.abandon()
        return result
