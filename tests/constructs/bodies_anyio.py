"""What does anyio give in a body?"""

from __future__ import annotations

import anyio
import anyio.abc

from redisworld import FatalError
from tests.constructs.catalogue import gives
from tests.constructs.steps import echo, late, refuses, undo, work


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


@gives(sorted(f"undone {name}" for name in "abcdef"))
async def anyio_task_group_cancelled_with_clean_up_steps() -> list[str]:
    out: list[str] = []

    async def branch(name: str) -> None:
        try:
            await late(name, 100)
        finally:
            with anyio.CancelScope(shield=True):
                out.append(await undo(name))

    async with anyio.create_task_group() as group:
        for name in "abcdef":
            group.start_soon(branch, name)
        await anyio.sleep(1)
        group.cancel_scope.cancel()
    return sorted(out)


@gives(sorted(f"undone {name}" for name in ("a1", "a2", "b1", "b2", "c1", "c2")))
async def anyio_task_groups_in_each_other_cancelled_together() -> list[str]:
    out: list[str] = []

    async def leaf(name: str) -> None:
        with anyio.move_on_after(1_000):
            try:
                await late(name, 100)
            finally:
                with anyio.CancelScope(shield=True):
                    out.append(await undo(name))

    async def branch(name: str) -> None:
        async with anyio.create_task_group() as group:
            for number in (1, 2):
                group.start_soon(leaf, f"{name}{number}")

    with anyio.move_on_after(5):
        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(branch, name)
    return sorted(out)


@gives(["ready", "end"])
async def anyio_service_in_a_task_group() -> list[str]:
    async def service(*, task_status: anyio.abc.TaskStatus[str]) -> None:
        task_status.started(await work("ready"))
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        ready = await group.start(service)
        group.cancel_scope.cancel()
    return [ready, await work("end")]


@gives([0, 1, 2, 3])
async def anyio_locks_semaphores_and_limiters() -> list[int]:
    lock, go, two, limit = anyio.Lock(), anyio.Event(), anyio.Semaphore(2), anyio.CapacityLimiter(2)
    out: list[int] = []

    async def branch(number: int) -> None:
        await go.wait()
        async with two, limit, lock:
            out.append(await echo(number))

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(branch, number)
        await work("go")
        go.set()
    return sorted(out)
