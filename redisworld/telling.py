"""How does the code of a run tell those outside what it does, while it does it? Attributes and output streams."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from redisworld import attributes, values
from redisworld.errors import InvalidInput, InvalidValue
from redisworld.keys import check_output_name
from redisworld.replay import context
from redisworld.world import OwnRun, current_run


async def set_attributes(changes: Mapping[str, str | None] | None = None, /, **more: str | None) -> None:
    """Set attributes of this run: small texts for people and searches. None takes one away, all others stay.

    In a body they are recorded with whatever the body asks for next, once, and every replay sets the same. In a step
    they are set at once, and again by each attempt. Keys have 1 to 256 characters and do not begin with ``$``, values
    at most 256 bytes, a run at most 64 of them. Raises InvalidInput, in a step also RunGone and RedisUnavailable.
    """
    found = attributes.checked(changes, more)
    if (body := context.current()) is not None:
        body.set_attributes(found)
    else:
        await _required_run("set_attributes()", "elsewhere use run.set_attributes()").set_attributes(found)


class Writable(msgspec.Struct, frozen=True):
    """An output stream of a run, for writing. A plain value: a body hands it to its steps, annotated as Writable.

    ``async with`` closes it unless an error comes through.
    """

    run_id: str
    name: str = "default"

    async def write(self, *chunks: Any) -> None:
        """Write each value as a chunk, in this order; returns when Redis has them, all or none.

        A dataclass, Struct or model goes as its contents. Raises InvalidValue for what cannot be stored or is bigger
        than ``output_chunk_bytes``, OutputClosed, RunGone, StaleAttempt, RedisUnavailable, InvalidInput outside a
        step.
        """
        own_run = self._own_run()
        await own_run.write(self.run_id, self.name, [self._packed(own_run, chunk) for chunk in chunks])

    async def write_from(self, chunks: AsyncIterable[Any]) -> None:
        """Write each value when it comes."""
        async for chunk in chunks:
            await self.write(chunk)

    async def close(self) -> None:
        """No more comes: readers end. A repeat changes nothing; a later attempt of this step opens it again."""
        await self._own_run().write(self.run_id, self.name, [], close=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()

    def _own_run(self) -> OwnRun:
        if context.current() is not None:
            raise InvalidInput("a workflow body cannot write to an output stream: hand the writable to a step")
        return _required_run("a Writable", "run.read() reads what steps have written")

    def _packed(self, own_run: OwnRun, chunk: Any) -> bytes:
        where = f"a chunk of output stream {self.name!r}"
        data = values.encode_foreign(chunk, where=where, max_bytes=sys.maxsize)
        if len(data) > own_run.chunk_bytes:
            raise InvalidValue(
                f"{where}: {len(data):,} bytes, more than the {own_run.chunk_bytes:,} of output_chunk_bytes; "
                "write it in parts, or pass a reference instead"
            )
        return data


def get_writable(name: str = "default") -> Writable:
    """An output stream of this run: in a step to write to it, in a body to hand it to steps.

    Raises InvalidInput elsewhere, and for a name that cannot be one.
    """
    check_output_name(name)
    if (body := context.current()) is not None:
        return Writable(body.run_id, name)
    return Writable(_required_run("get_writable()", "a client reads with run.read()").run_id, name)


def _required_run(what: str, instead: str) -> OwnRun:
    own_run = current_run()
    if own_run is None:
        raise InvalidInput(f"{what} works in a running step or a workflow body only; {instead}")
    return own_run
