"""What do bare stream commands cost? The floor: XADD, XREADGROUP, XACK and XDEL through the client redisworld uses.

``python -m redisworld.bench.floor`` is its worker; a bench starts it as it starts the real one.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from contextlib import AbstractAsyncContextManager
from itertools import chain, pairwise
from typing import Any

from redisworld.bench import marks, tether
from redisworld.bench.marks import Marks
from redisworld.bench.processes import Process
from redisworld.bench.results import Floor, quantile, quantiles
from redisworld.bench.session import Session
from redisworld.keys import GROUP, PREFIX
from redisworld.settings import Settings
from redisworld.world.connection import Connection
from redisworld.world.queue import fields_of

_CHUNK = 500
_BLOCK_MS = 1_000
_MESSAGE = b"x" * 150
"""About what a step message with a small input takes."""


async def batched(session: Session, count: int, rounds: int, *, body_ms: int) -> Floor:
    """``rounds`` times ``count`` messages at once, to a worker that waits for them."""
    stream, first_ms, last_ms = await _new_stream(session), [], []
    async with _working(session, stream, body_ms=body_ms):
        before = await session.meter.snapshot()
        for _ in range(rounds):
            slot, began = session.marks.give(count), session.now_ns()
            await _add(session, stream, slot, count)
            starts = await session.started(slot, count)
            first_ms.append((min(starts) - began) / 1e6)
            last_ms.append((max(starts) - began) / 1e6)
        spent = session.meter.between(before, await session.meter.snapshot(), floor=True)
    ttls = quantiles(last_ms)
    return Floor(
        per_step=spent.per(count * rounds),
        steps_per_s=round(count / ttls.p50 * 1000, 1),
        ttfs_ms=quantiles(first_ms),
        ttls_ms=ttls,
    )


async def prepared(session: Session, count: int) -> Floor:
    """``count`` messages that are all there before the worker starts."""
    stream, slot = await _new_stream(session), session.marks.give(count)
    before = await session.meter.snapshot()
    await _add(session, stream, slot, count)
    async with _working(session, stream, warm=False):
        starts = sorted(await session.started(slot, count, poll_s=0.02))
        spent = session.meter.between(before, await session.meter.snapshot(), floor=True)
    return Floor(per_step=spent.per(count), steps_per_s=middle_rate(starts))


async def one_by_one(session: Session, count: int) -> Floor:
    """``count`` messages, each sent by the body of the one before it."""
    stream = await _new_stream(session)
    async with _working(session, stream):
        slot, before = session.marks.give(count), await session.meter.snapshot()
        await _add(session, stream, slot, 1, follow=count - 1)
        starts = await session.started(slot, count)
        spent = session.meter.between(before, await session.meter.snapshot(), floor=True)
    gap_ms = quantile([(after - before) / 1e6 for before, after in pairwise(starts)], 0.5)
    return Floor(per_step=spent.per(count), steps_per_s=round(1000 / gap_ms, 1))


async def singly(session: Session, count: int) -> Floor:
    """``count`` messages, each to an idle worker."""
    stream, took = await _new_stream(session), []
    async with _working(session, stream):
        before = await session.meter.snapshot()
        for _ in range(count):
            slot, began = session.marks.give(1), session.now_ns()
            await _add(session, stream, slot, 1)
            [start] = await session.started(slot, 1)
            took.append((start - began) / 1e6)
            await session.pause()
        spent = session.meter.between(before, await session.meter.snapshot(), floor=True)
    return Floor(per_step=spent.per(count), latency_ms=quantiles(took))


async def adding(session: Session, count: int, concurrency: int) -> Floor:
    """``count`` single XADD, so many at once: what starting runs is measured against."""
    stream, numbers = await _new_stream(session), iter(range(count))

    connection = session.world.connection

    async def add() -> None:
        for number in numbers:
            await _add_one(connection, stream, _fields(number))

    # makes the connections
    await asyncio.gather(*(connection.block("floor", stream, "PING") for _ in range(concurrency)))
    before, began = await session.meter.snapshot(), session.now_ns()
    await asyncio.gather(*(add() for _ in range(concurrency)))
    seconds = (session.now_ns() - began) / 1e9
    spent = session.meter.between(before, await session.meter.snapshot(), floor=True)
    return Floor(per_step=spent.per(count), steps_per_s=round(count / seconds, 1))


def middle_rate(starts: list[int]) -> float:
    """Starts per second over the middle 80% of sorted stamps: without the start-up and the tail."""
    low, high = len(starts) // 10, len(starts) - len(starts) // 10 - 1
    return round((high - low) / ((starts[high] - starts[low]) / 1e9), 1)


async def _new_stream(session: Session) -> str:
    stream = f"{PREFIX}{session.settings.namespace}:floor:{secrets.token_hex(4)}"
    await session.world.connection.commands.xgroup_create(stream, GROUP, id="0", mkstream=True)
    return stream


def _fields(slot: int, follow: int = 0) -> dict[str, Any]:
    return {"kind": "step", "run": "run_floor", "step": slot, "name": "noop", "follow": follow, "msg": _MESSAGE}


async def _add_one(connection: Connection, stream: str, fields: dict[str, Any]) -> None:
    await connection.block("floor", stream, "XADD", stream, "*", *chain.from_iterable(fields.items()))


async def _add(session: Session, stream: str, first: int, count: int, *, follow: int = 0) -> None:
    if count == 1:
        await _add_one(session.world.connection, stream, _fields(first, follow))
        return
    for start in range(first, first + count, _CHUNK):
        async with session.world.connection.commands.pipeline(transaction=False) as pipeline:
            for slot in range(start, min(start + _CHUNK, first + count)):
                pipeline.xadd(stream, _fields(slot, follow))
            await pipeline.execute()


def _working(
    session: Session, stream: str, *, body_ms: int = 0, warm: bool = True
) -> AbstractAsyncContextManager[list[Process]]:
    return session.working(
        ["redisworld.bench.floor", stream, str(body_ms)],
        warm_up=(lambda slot: _add(session, stream, slot, 1)) if warm else None,
        count=1,
    )


# -- the worker


async def _work(settings: Settings, stream: str, body_ms: int, slots: Marks) -> None:
    command = ["XREADGROUP", "GROUP", GROUP, "floor", "COUNT", settings.concurrency, "BLOCK", _BLOCK_MS]
    command += ["STREAMS", stream, ">"]
    async with Connection(settings) as connection:
        while True:
            reply: Any = await connection.block("floor", stream, *command)
            for _, found in reply.items() if isinstance(reply, dict) else reply or []:
                entries = [(entry, fields_of(fields)) for entry, fields in found]
                await _batch(connection, stream, entries, body_ms, slots)


async def _batch(
    connection: Connection, stream: str, entries: list[tuple[bytes, dict[str, bytes]]], body_ms: int, slots: Marks
) -> None:
    for _, fields in entries:
        slots.mark(int(fields["step"]))
    if body_ms:
        await asyncio.gather(*(asyncio.sleep(body_ms / 1000) for _ in entries))
    names = [entry for entry, _ in entries]
    async with connection.commands.pipeline(transaction=False) as pipeline:
        for _, fields in entries:
            if follow := int(fields["follow"]):
                pipeline.xadd(stream, _fields(int(fields["step"]) + 1, follow - 1))
        pipeline.xack(stream, GROUP, *names)
        pipeline.xdel(stream, *names)
        await pipeline.execute()


def main(arguments: list[str]) -> None:
    """Work until the bench ends it."""
    stream, body_ms = arguments
    slots = marks.inherited()
    if slots is None:
        raise SystemExit(f"this is a part of 'redisworld bench', which sets {marks.VARIABLE}")
    tether.hold()
    asyncio.run(_work(Settings.from_env(), stream, int(body_ms), slots))


if __name__ == "__main__":
    main(sys.argv[1:])
