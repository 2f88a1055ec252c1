"""What does anyio give in a body?"""

from __future__ import annotations

import anyio

from redisworld import FatalError
from tests.constructs.catalogue import gives
from tests.constructs.steps import late, refuses, undo, work


@gives(["b", "a"])
async def anyio_task_group() -> list[str]:
    out: list[str] = []

    async def branch(name: str, seconds: float) -> None:
        out.append(await late(name, seconds))

    async with anyio.create_task_group() as group:
        group.start_soon(branch, "a", 3)
        group.start_soon(branch, "b", 1)
    return out


@gives(["FatalError no", "undone"])
async def anyio_task_group_with_a_failure() -> list[str]:
    out: list[str] = []

    async def branch() -> None:
        await refuses("no")

    async def endures() -> None:
        try:
            await late("never seen", 100)
        finally:
            with anyio.CancelScope(shield=True):
                out.append(await work("undone"))

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(endures)
            group.start_soon(branch)
    except* FatalError as errors:
        out.insert(0, " ".join(f"{type(error).__name__} {error}" for error in errors.exceptions))
    return out


@gives(["slept", "end"])
async def anyio_sleep() -> list[str]:
    await anyio.sleep(5)
    return ["slept", await work("end")]


@gives(["in time", "moved on", "undone x"])
async def anyio_move_on_after() -> list[str]:
    out = []
    with anyio.move_on_after(60):
        out.append(await late("in time", 5))
    with anyio.move_on_after(5) as scope:
        await late("never seen", 60)
    out.append("moved on" if scope.cancelled_caught else "?")
    return [*out, await undo("x")]


@gives("timeout")
async def anyio_fail_after() -> str:
    try:
        with anyio.fail_after(5):
            await late("never seen", 60)
    except TimeoutError:
        return "timeout"
    return "?"


@gives(["1", "2"])
async def anyio_memory_stream_and_event() -> list[str]:
    send, receive = anyio.create_memory_object_stream[str](1)
    over = anyio.Event()
    out = []

    async def produces() -> None:
        async with send:
            for name in "12":
                await send.send(await work(name))
        over.set()

    async with anyio.create_task_group() as group:
        group.start_soon(produces)
        async with receive:
            out = [item async for item in receive]
        await over.wait()
    return out
