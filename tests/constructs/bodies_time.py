"""What do wait_for, timeout, sleep and cancellation give?"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from redisworld import now, sleep
from tests.constructs.catalogue import cancel, gives, let_time_pass
from tests.constructs.steps import NOW, late, undo, work


@gives("x")
async def wait_for_in_time() -> str:
    return await asyncio.wait_for(late("x", 5), 60)


@gives(["timeout", "next"])
async def wait_for_timed_out() -> list[str]:
    try:
        return [await asyncio.wait_for(late("x", 60), 5)]
    except TimeoutError:
        return ["timeout", await work("next")]


@gives(["x", "next"])
async def timeout_in_time() -> list[str]:
    async with asyncio.timeout(60):
        first = await late("x", 5)
    return [first, await work("next")]


@gives(["timeout", "undone x", "next"])
async def timeout_passed() -> list[str]:
    out = []
    try:
        async with asyncio.timeout(5) as deadline:
            try:
                await late("x", 60)
            finally:
                out.append(await undo("x"))
    except TimeoutError:
        assert deadline.expired()
        out.insert(0, "timeout")
    return [*out, await work("next")]


@gives(["inner", "x"])
async def timeouts_nested() -> list[str]:
    out = []
    async with asyncio.timeout(60):
        try:
            async with asyncio.timeout(5):
                await late("never seen", 100)
        except TimeoutError:
            out.append("inner")
        out.append(await late("x", 10))
    return out


@gives(["x"])
async def timeout_moved() -> list[str]:
    async with asyncio.timeout(5) as deadline:
        deadline.reschedule(asyncio.get_running_loop().time() + 60)
        return [await late("x", 20)]


@gives("timeout")
async def timeout_at() -> str:
    try:
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + 5):
            await late("x", 20)
    except TimeoutError:
        return "timeout"
    return "?"


@gives([3_600.0, 3_605.0, 3_605.0])
async def sleeps() -> list[float]:
    began = now()
    await sleep("1h")
    out = [(now() - began).total_seconds()]
    await asyncio.sleep(5)
    out.append((now() - began).total_seconds())
    await sleep(datetime.fromtimestamp(NOW / 1_000 - 10, UTC))
    await asyncio.sleep(0)
    return [*out, (now() - began).total_seconds()]


@gives(["a", "undone a", "end"])
async def steps_in_finally() -> list[str]:
    out = []
    try:
        try:
            out.append(await work("a"))
            raise KeyError("x")
        finally:
            out.append(await undo("a"))
    except KeyError:
        out.append(await work("end"))
    return out


@gives("cancelled", let_time_pass, cancel)
async def cancelled_with_clean_up_steps() -> str:
    await work("a")
    try:
        await late("x", 5)
        await sleep("1d")
    finally:
        await undo("x")
        await undo("a")
    return "?"


@gives(["undone x", "kept"], cancel)
async def cancelled_and_ending_well() -> list[str]:
    try:
        await sleep("1d")
    except asyncio.CancelledError:
        return [await undo("x"), await work("kept")]
    return ["?"]


@gives("cancelled", cancel)
async def cancelled_in_a_task_group() -> str:
    async def branch(name: str) -> None:
        try:
            await sleep("1d")
        finally:
            await undo(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(branch("a"))
        group.create_task(branch("b"))
    return "?"
