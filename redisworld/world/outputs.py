"""How do chunks get into an output stream of a run, and out of it again? (design section 5)

A step writes; anybody reads, from the start or from where they stopped, while the run goes on or after it. The end of
a stream is its close, or the end of the run: no chunk is accepted after either, so whoever has read to there has all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.abc
import msgspec

from redisworld import values
from redisworld.errors import InvalidInput, MalformedMessage, OutputClosed, RunGone, RunNotFound, StaleAttempt
from redisworld.keys import check_entry_id, check_output_name
from redisworld.world.endings import Ended
from redisworld.world.queue import fields_of, flat
from redisworld.world.refusals import readable
from redisworld.world.replies import detail_of, entry_ms, text_of, word_of

if TYPE_CHECKING:
    from redisworld.world.world import World

T = TypeVar("T")

_PAGE = 100
_BLOCK_MS = 1_000
"""Longest blocking read: whoever stops reading gives its connection back within a second."""

Entry = tuple[str, dict[str, bytes]]


class Chunk(msgspec.Struct, Generic[T], frozen=True):
    """One value of an output stream, and where it comes from.

    An attempt that is tried again writes again from its start: the same ``step_id`` and ``index`` with a higher
    ``attempt``.
    """

    id: str
    """Read on after it: ``run.stream(after=chunk.id)``."""
    number: int
    """In the stream, from 1. A first one above 1, or a hole, is what went because the stream was too long."""
    step_id: str
    attempt: int
    index: int
    """Among what this attempt of the step wrote to this stream, from 0."""
    value: T

    @property
    def at(self) -> int:
        """When it was written, in epoch ms by Redis."""
        return entry_ms(self.id)


class OutputInfo(msgspec.Struct, frozen=True):
    """An output stream of a run: how many chunks it was given, and whether it is closed."""

    name: str
    chunks: int
    closed: bool


class Outputs:
    """The output streams of runs."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def write(
        self,
        run_id: str,
        name: str,
        chunks: list[bytes],
        *,
        step_id: str,
        attempt: int,
        token: str,
        index: int,
        close: bool = False,
    ) -> None:
        """Add chunks, all or none, and ``close`` the stream. Asked again under the same index it changes nothing.

        Raises RunNotFound, RunGone for a run that has ended, StaleAttempt for an attempt that is not the running one,
        OutputClosed, InvalidInput for one stream too many, RedisUnavailable.
        """
        world = self._world
        reply = await world.call(
            "write_output",
            world.partition(run_id),
            run_id,
            name,
            step_id,
            attempt,
            token,
            index,
            world.settings.output_length,
            int(close),
            len(chunks),
            *chunks,
        )
        match word_of(reply):
            case "not_found":
                raise RunNotFound(run_id)
            case "gone":
                told = f"run {run_id!r} is {detail_of(reply)}: output stream {name!r} takes no more chunks"
                raise RunGone(told, run_id=run_id)
            case "stale":
                raise StaleAttempt(
                    f"attempt {attempt} of step {step_id} is not the running one (its lease or its timeout is over): "
                    f"output stream {name!r} of run {run_id!r} takes no more of its chunks",
                    run_id=run_id,
                    step_id=step_id,
                    attempt=attempt,
                )
            case "closed":
                by = detail_of(reply)
                told = f"output stream {name!r} of run {run_id!r} was closed by step {by}"
                raise OutputClosed(told, run_id=run_id, name=name, closed_by=by)
            case "invalid":
                raise InvalidInput(f"run {run_id!r}: {detail_of(reply)}")

    async def of(self, run_id: str) -> list[OutputInfo]:
        """The output streams of a run that were written to, in the order of their first chunks.

        Raises RunNotFound, and MalformedMessage where the list of them is none of ours.
        """
        connection, key = self._world.connection, self._world.partition(run_id).outs(run_id)
        with readable(f"the list of output streams of run {run_id!r}"):
            names = await connection.run("read_outputs", lambda: connection.commands.hget(key, "names"))
        if not (found := [text_of(name) for name in (names or b"").split()]):
            await self._world.row(run_id)  # an unknown run is not one without streams
            return []
        fields = [f"s:{name}" for name in found]
        states = await connection.run("read_outputs", lambda: connection.commands.hmget(key, fields))
        infos = []
        for name, state in zip(found, states, strict=True):
            if state is not None:  # the run has gone between the two
                infos.append(_info(name, text_of(state), run_id))
        return infos

    async def read(
        self, run_id: str, name: str, *, type: Any = Any, after: str = "", follow: bool = True, bare: bool = False
    ) -> AsyncGenerator[Any, None]:
        """The chunks of a stream from the first one kept, or ``after`` the id of another, in the order written.

        ``bare`` gives the values alone. It ends where the stream is closed or the run has ended, or, without
        ``follow``, where there is no more now. Raises RunNotFound, InvalidInput for a name or an id that cannot be
        one, InvalidValue where a value does not fit ``type``, MalformedMessage for a key of another type in its place
        and for an entry that no step has written, RedisUnavailable.
        """
        check_output_name(name)
        last = check_entry_id(after) if after else "0-0"
        where, closed = f"output stream {name!r} of run {run_id!r}", False
        with self._world.endings.watch(run_id) as ending:
            ended = (await self._world.row(run_id)).status.terminal
            entries = await self._more(run_id, name, last)
            while True:
                for last, fields in entries:
                    if closed := "closed" in fields:
                        continue  # the last word, unless a later attempt of the step that closed it went on
                    chunk = _chunk(last, fields, type, where=where)
                    yield chunk.value if bare else chunk
                over = closed or ended or not follow
                if over and not entries:
                    return
                if not entries:  # whoever keeps up pays one read for a chunk, and looks at the row when none comes
                    over = ended = (await self._world.row(run_id)).status.terminal
                entries = await (self._more(run_id, name, last) if over else self._wait(run_id, name, last, ending))

    async def _wait(self, run_id: str, name: str, after: str, ending: Ended) -> list[Entry]:
        """What comes next: entries, or none after a second or when the run may have ended."""
        found: list[Entry] = []
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def stop_at_the_end() -> None:
                if await ending.wait():
                    tasks.cancel_scope.cancel()

            tasks.start_soon(stop_at_the_end)
            try:
                found = await self._more(run_id, name, after, block_ms=_BLOCK_MS)
            except Exception as error:
                failure = error  # the task group would wrap it
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return found

    async def _more(self, run_id: str, name: str, after: str, *, block_ms: int | None = None) -> list[Entry]:
        key = self._world.partition(run_id).output(run_id, name)
        connection = self._world.connection

        timeout = ((block_ms or 0) + connection.settings.redis_timeout_ms) / 1000
        with readable(f"output stream {name!r} of run {run_id!r}"):
            reply = await connection.run(
                "read_output",
                lambda: connection.followers.xread({key: after}, count=_PAGE, block=block_ms),
                timeout=timeout,
                counted=False,
            )
        pages = reply.values() if isinstance(reply, dict) else [page for _, page in reply or []]
        return [(text_of(entry), fields_of(fields)) for page in pages for entry, fields in flat(page)]


def _chunk(entry: str, fields: dict[str, bytes], type: Any, *, where: str) -> Chunk[Any]:
    try:
        payload, step = fields["msg"], text_of(fields["step"])
        number, attempt, index = (int(fields[name]) for name in ("number", "attempt", "index"))
    except (KeyError, ValueError) as error:
        raise MalformedMessage(
            f"entry {entry} of {where} is no chunk that a step has written: {fields!r:.200}"
        ) from error
    value = values.decode_foreign(payload, type, where=f"a chunk of {where}")
    return Chunk(entry, number, step, attempt, index, value)


def _info(name: str, state: str, run_id: str) -> OutputInfo:
    try:
        chunks, closed_by, _ = state.split("|")
        return OutputInfo(name, int(chunks), bool(closed_by))
    except ValueError as error:
        raise MalformedMessage(f"output stream {name!r} of run {run_id!r} has the state {state!r:.200}") from error
