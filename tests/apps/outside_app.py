"""The application of the tests of attributes and output streams: what its bodies and steps tell those outside."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio.from_thread

from redisworld import Backoff, Workflows, Writable, get_step_metadata, get_writable, set_attributes

wf = Workflows()
FAST = Backoff.fixed("1ms")

seen: list[Any] = []
"""What bodies note."""

during: list[Callable[[], Awaitable[object]]] = []
"""Awaited once each, in the steps that say so."""

together = threading.Barrier(1)
"""Where the sync steps meet."""


async def _interlude() -> None:
    if during:
        await during.pop(0)()


@dataclasses.dataclass
class Token:
    text: str
    n: int


@wf.step
async def tell(tokens: int) -> str:
    """Writes tokens to the default stream and closes it."""
    async with get_writable() as out:
        for n in range(tokens):
            await out.write(Token(f"t{n}", n))
            await _interlude()
    return "told"


@wf.workflow
async def talk(tokens: int) -> str:
    return await tell(tokens)


@wf.step(backoff=FAST, max_retries=2)
async def stumble(fails: int) -> int:
    """Writes two chunks in each attempt; closes the stream, and fails afterwards."""
    attempt = get_step_metadata().attempt
    async with get_writable("progress") as out:
        await out.write(f"{attempt}a", f"{attempt}b")
    if attempt <= fails:
        raise ValueError("once more")
    return attempt


@wf.workflow
async def stumbling(fails: int) -> int:
    return await stumble(fails)


@wf.step
async def add(out: Writable, text: str) -> None:
    await out.write(text)


@wf.step
async def finish(out: Writable) -> None:
    await out.close()


@wf.workflow
async def shared(parts: int) -> None:
    """Steps that write to one stream, handed to them by the body."""
    out = get_writable("shared")
    await asyncio.gather(*(add(out, f"part {n}") for n in range(parts)))
    await finish(out)


@wf.workflow
async def forwarded(out: Writable) -> None:
    """Writes to a stream of another run."""
    await add(out, "from another run")


@wf.workflow
async def writes_itself() -> None:
    await get_writable().write("no")


@wf.step
async def counts() -> None:
    async def numbers() -> AsyncIterator[int]:
        for n in range(3):
            yield n

    async with get_writable("numbers") as out:
        await out.write_from(numbers())
        await asyncio.gather(*(out.write(n) for n in range(3, 10)))


@wf.workflow
async def counting() -> None:
    await counts()


@wf.step
def from_a_thread(text: str) -> str:
    out = get_writable()
    anyio.from_thread.run(out.write, text)
    anyio.from_thread.run(out.close)
    anyio.from_thread.run(set_attributes, {"written": text})
    return text


@wf.workflow
async def threaded(text: str) -> str:
    return await from_a_thread(text)


@wf.step
async def bad_chunk(kind: str) -> None:
    chunks: dict[str, Any] = {"lock": threading.Lock(), "big": b"x" * 100_000}
    await get_writable().write(chunks[kind])


@wf.workflow
async def says_badly(kind: str) -> str:
    try:
        await bad_chunk(kind)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "written"


@wf.step(backoff=FAST)
async def note_progress(fails: int) -> None:
    attempt = get_step_metadata().attempt
    await set_attributes(progress=f"attempt {attempt}")
    if attempt <= fails:
        raise ValueError("once more")


@wf.workflow
async def attributed(fails: int) -> str:
    await set_attributes({"stage": "noting", "old": "x"})
    await _interlude()
    await note_progress(fails)
    await set_attributes(stage="done", old=None)
    return "done"


@wf.workflow
async def attributed_then_fails() -> None:
    await set_attributes(stage="failing")
    raise ValueError("after the attributes")


@wf.step
def meet(n: int) -> int:
    together.wait(timeout=20)
    return n


@wf.workflow
async def gathering(n: int) -> int:
    return sum(await asyncio.gather(*(meet(i) for i in range(n))))


@wf.step
async def letters() -> str:
    async with get_writable() as out:
        for letter in "abc":
            await out.write(letter)
    await set_attributes(written="abc")
    return "abc"


@wf.workflow
async def spelling() -> str:
    await set_attributes(stage="writing")
    written = await letters()
    await set_attributes(stage="written")
    return written
