"""What can a caller do with a run it has started?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
import msgspec

from redisworld import values
from redisworld.errors import ErrorInfo, RunCancelled, RunFailed
from redisworld.events import Event, parse
from redisworld.runs import RunRow, Status

if TYPE_CHECKING:
    from redisworld.world.world import World


R = TypeVar("R")


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

    async def result(self, *, timeout: float | None = None) -> R:
        """Wait for the end and return what the workflow returned.

        Raises RunFailed, RunCancelled, or TimeoutError after ``timeout`` seconds; the run goes on then.
        """
        with anyio.fail_after(timeout):
            async with self._world.endings.watch(self.run_id) as ended:
                while not (row := await self.row()).status.terminal:
                    await ended.wait()
        element = (await self._world.log(self.run_id, row.finished_event - 1, 1))[0]
        payload = parse(element).payload
        if row.status is Status.COMPLETED:
            return self._decode_result(payload)
        if row.status is Status.FAILED:
            raise RunFailed(self.run_id, msgspec.msgpack.decode(payload, type=ErrorInfo))
        raise RunCancelled(self.run_id, msgspec.msgpack.decode(payload) if payload else "")

    async def cancel(self, reason: str = "") -> Status:
        """Ask the body to stop: it gets CancelledError and its clean-up steps run. A repeat changes nothing."""
        return await self._world.cancel(self.run_id, reason=reason)

    async def terminate(self, reason: str = "") -> Status:
        """End the run at once, without asking its body."""
        return await self._world.cancel(self.run_id, reason=reason, terminate=True)

    async def events(self) -> AsyncIterator[Event]:
        """The log from the first event to the one that is last when it gets there."""
        start = 0
        while page := await self._world.log(self.run_id, start):
            for element in page:
                yield parse(element)
            start += len(page)
