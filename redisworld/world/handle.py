"""What can a caller do with a run it has started?"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import anyio

from redisworld import attributes, failures, values
from redisworld.durations import length, named_ms
from redisworld.errors import RunCancelled, RunFailed, RunNotFound
from redisworld.events import Event, parse
from redisworld.runs import RunRow, Status
from redisworld.world.outputs import Chunk, OutputInfo

if TYPE_CHECKING:
    from redisworld.world.world import World

R = TypeVar("R")
T = TypeVar("T")


class Run(Generic[R]):
    """A run, by its id. Making a handle asks nothing; its methods raise RunNotFound and RedisUnavailable."""

    def __init__(self, world: World, run_id: str, *, decode_result: Callable[[bytes], R] | None = None) -> None:
        self._world = world
        self.run_id = run_id
        self._decode_result = decode_result or values.decode

    def __repr__(self) -> str:
        return f"Run({self.run_id!r})"

    async def row(self) -> RunRow:
        """The fixed fields of the run row."""
        return await self._world.row(self.run_id)

    async def status(self) -> Status:
        """The status now."""
        return (await self.row()).status

    async def result(self, *, timeout: timedelta | float | str | None = None) -> R:
        """Wait for the end and return what the workflow returned.

        Raises RunFailed, RunCancelled, or TimeoutError after ``timeout`` (seconds, a timedelta or text like ``"10m"``);
        the run goes on then. A timeout of 0 looks once, without waiting. Raises InvalidInput for what is no length of
        time.
        """
        wait_ms = None if timeout is None else named_ms("result(): timeout", timeout)
        try:
            with anyio.fail_after(wait_ms / 1_000 if wait_ms else None):
                row = await self._ended(once=wait_ms == 0)
        except TimeoutError as error:
            within = f"within {length(wait_ms)}" if wait_ms else "yet"
            raise TimeoutError(f"run {self.run_id!r} has not ended {within}; it goes on") from error
        page = await self._world.log(self.run_id, row.finished_event - 1, 1)
        if not page:  # its retention has ended between the two reads
            raise RunNotFound(self.run_id)
        payload = parse(page[0]).payload
        if row.status is Status.COMPLETED:
            return self._decode_result(payload)
        if row.status is Status.FAILED:
            raise RunFailed(self.run_id, failures.decode(payload))
        raise RunCancelled(self.run_id, str(values.decode(payload)) if payload else "")

    async def _ended(self, *, once: bool) -> RunRow:
        """The row when the run has ended. Raises TimeoutError where it has not, and is looked at only ``once``."""
        with self._world.endings.watch(self.run_id) as ended:
            while not (row := await self.row()).status.terminal:
                if once:
                    raise TimeoutError
                await ended.wait()
        return row

    async def cancel(self, reason: str = "") -> Status:
        """Ask the body to stop: it gets CancelledError and its clean-up steps run. A repeat changes nothing."""
        return await self._world.cancel(self.run_id, reason=reason)

    async def terminate(self, reason: str = "") -> Status:
        """End the run at once, without asking its body; those of its steps are cancelled within a third of a lease."""
        return await self._world.cancel(self.run_id, reason=reason, terminate=True)

    async def attributes(self) -> dict[str, str]:
        """The attributes now; of a run that has ended, those it ended with."""
        return await self._world.attributes.read(self.run_id)

    async def set_attributes(self, changes: Mapping[str, str | None] | None = None, /, **more: str | None) -> None:
        """Set attributes; None takes one away, all others stay.

        Raises InvalidInput for keys and values that cannot be attributes and for more than 64 in all, RunGone.
        """
        await self._world.attributes.set(self.run_id, attributes.checked(changes, more))

    @overload
    def read(self, name: str = "default", *, after: str = "") -> AsyncGenerator[Any, None]: ...
    @overload
    def read(self, name: str = "default", *, type: type[T], after: str = "") -> AsyncGenerator[T, None]: ...
    def read(self, name: str = "default", *, type: Any = Any, after: str = "") -> AsyncGenerator[Any, None]:
        """The values of an output stream as they are written, until it is closed or the run has ended.

        What a step wrote before it was tried again comes again; ``stream`` tells the attempts apart.
        """
        # Not a generator around a generator: one that is left in the middle would close the other at the wrong time.
        return self._world.outputs.read(self.run_id, name, type=type, after=after, bare=True)

    @overload
    def stream(
        self, name: str = "default", *, after: str = "", follow: bool = True
    ) -> AsyncGenerator[Chunk[Any], None]: ...
    @overload
    def stream(
        self, name: str = "default", *, type: type[T], after: str = "", follow: bool = True
    ) -> AsyncGenerator[Chunk[T], None]: ...
    def stream(
        self, name: str = "default", *, type: Any = Any, after: str = "", follow: bool = True
    ) -> AsyncGenerator[Chunk[Any], None]:
        """The chunks of an output stream: values with their ids, steps and attempts.

        From the first one that is kept, or ``after`` the id of another; until the stream is closed or the run has
        ended, or without ``follow`` until there is no more now. A name that nothing is written to is an empty stream.
        Raises InvalidInput for a name or id that cannot be one, InvalidValue where a value does not fit ``type``.
        """
        return self._world.outputs.read(self.run_id, name, type=type, after=after, follow=follow)

    async def outputs(self) -> list[OutputInfo]:
        """The output streams that were written to."""
        return await self._world.outputs.of(self.run_id)

    async def events(self) -> AsyncIterator[Event]:
        """The log from the first event to the one that is last when it gets there."""
        start = 0
        while page := await self._world.log(self.run_id, start):
            for element in page:
                yield parse(element)
            start += len(page)
        if start == 0:
            await self.row()  # an unknown run is not one without events
