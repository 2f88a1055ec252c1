"""What is the awaitable that calling a step in a workflow body returns?"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redisworld.values import Signature

if TYPE_CHECKING:
    import asyncio

    from redisworld.replay.tasks import ReplayTask

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

    def emit(self, call: StepCall[Any]) -> asyncio.Future[Any]:
        """The call is awaited for the first time: ask for the step, give back the future of its result."""

    def abandon(self, call: StepCall[Any]) -> None:
        """The call stopped waiting before the step completed."""


class StepCall(Coroutine[Any, Any, R_co]):
    """One call of a step in a body: a coroutine that asyncio's functions take like any other.

    Its id is taken and its arguments are encoded when the step is called, so that a bad argument raises there.
    The step is asked for when the call is first awaited or its task first runs.
    """

    def __init__(self, host: CallHost, *, number: int, id: str, step: StepLike, input: bytes) -> None:
        self.number = number
        self.id = id
        self.step = step
        self.input = input
        self.task: ReplayTask | None = None
        """The task that wraps this call and nothing else."""
        self.delivered = False
        """Whether the completion reached the body."""
        self.abandoned = False
        """Whether the body stopped waiting before."""
        self._host = host
        self._awaited = False
        self._progress = self._run()

    @property
    def settled(self) -> bool:
        """Whether nothing waits for this call any more."""
        return self.delivered or self.abandoned

    def __hash__(self) -> int:
        # as_completed puts calls in a set; by address its order would change from process to process.
        return self.number

    def __repr__(self) -> str:
        return f"<step call {self.step.name} {self.id}>"

    def __await__(self) -> Generator[Any, Any, R_co]:
        if self._awaited:
            raise RuntimeError(f"cannot reuse already awaited {self!r}: keep its result, or make a task of it")
        self._awaited = True
        return self._progress

    def send(self, value: Any, /) -> Any:
        """Run to the next suspension, as a task does."""
        self._awaited = True
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
        self._progress.close()

    def _run(self) -> Generator[Any, Any, R_co]:
        future = self._host.emit(self)
        try:
            result: R_co = yield from future
        finally:
            if not self.delivered:
                self.abandoned = True
                self._host.abandon(self)
        return result
