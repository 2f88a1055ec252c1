"""What do gather, wait, as_completed, TaskGroup and tasks give?"""

from __future__ import annotations

import asyncio
from typing import Any

from redisworld import FatalError, sleep
from tests.constructs.catalogue import gives
from tests.constructs.steps import late, refuses, work


async def chain(*names: str) -> str:
    """Steps one after the other."""
    done = [await work(name) for name in names]
    return "".join(done)


@gives(["a", "b", "c"])
async def gather() -> list[str]:
    """A25: the slowest is in the middle, results come in the order of the arguments."""
    return list(await asyncio.gather(work("a"), late("b", 5), work("c")))


@gives(["one", "two", "three", "five", "four"])
async def gather_over_a_dict() -> list[str]:
    """A25."""
    first = await asyncio.gather(late("one", 3), late("two", 1), late("three", 2))
    calls = {name: work(name) for name in ("five", "four")}
    return [*first, *(await asyncio.gather(*calls.values()))]


@gives("caught no")
async def gather_with_a_failure() -> str:
    try:
        await asyncio.gather(late("a", 5), refuses("no"), work("c"))
    except FatalError as error:
        return f"caught {error}"
    return "?"


@gives(["a", "no", "c"])
async def gather_return_exceptions() -> list[str]:
    return [str(end) for end in await asyncio.gather(work("a"), refuses("no"), late("c", 2), return_exceptions=True)]


@gives([["ab", "c"], "d", ["e", ["f", "g"]]])
async def nested_gather() -> list[Any]:
    inner = asyncio.gather(work("e"), asyncio.gather(work("f"), late("g", 3)))
    return list(await asyncio.gather(asyncio.gather(chain("a", "b"), work("c")), late("d", 1), inner))


@gives(["a", "b", "next", False, "c"])
async def two_gathers_over_one_step() -> list[Any]:
    a, b, c = (asyncio.create_task(late(name, seconds)) for name, seconds in (("a", 2), ("b", 5), ("c", 9)))
    first, second = asyncio.gather(a, b), asyncio.gather(a, c)
    return [*await first, await work("next"), c.done(), (await second)[1]]


@gives(["a", "b", "c", "after c", "after b", "after a"])
async def wait_all_completed() -> list[str]:
    """A26: a step named after each."""
    tasks = [asyncio.create_task(late(name, delay)) for name, delay in (("a", 3), ("b", 2), ("c", 1))]
    done, pending = await asyncio.wait(tasks)
    assert not pending
    out = sorted(task.result() for task in done)
    return out + [await work(f"after {name}") for name in reversed(out)]


@gives(["b", "c", "a"])
async def wait_first_completed_in_a_loop() -> list[str]:
    """A26."""
    pending = {asyncio.create_task(late(name, delay)) for name, delay in (("a", 3), ("b", 1), ("c", 2))}
    out = []
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        out += [await work(task.result()) for task in done]
    return out


@gives(["no", "1 done", "1 pending", "slow"])
async def wait_first_exception() -> list[str]:
    tasks = [asyncio.create_task(refuses("no")), asyncio.create_task(late("slow", 9))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    [failed] = done
    counts = [str(failed.exception()), f"{len(done)} done", f"{len(pending)} pending"]
    return [*counts, await pending.pop()]


@gives(["1 done", "1 pending", "late"])
async def wait_with_a_timeout() -> list[str]:
    tasks = [asyncio.create_task(work("early")), asyncio.create_task(late("late", 60))]
    done, pending = await asyncio.wait(tasks, timeout=5)
    return [f"{len(done)} done", f"{len(pending)} pending", await pending.pop()]


@gives(["b!", "c!", "a!"])
async def as_completed_over_steps() -> list[str]:
    """A26."""
    calls = [late(name, delay) for name, delay in (("a", 3), ("b", 1), ("c", 2))]
    return [await work(f"{await first}!") for first in asyncio.as_completed(calls)]


@gives(["c", "timeout"])
async def as_completed_with_a_timeout() -> list[str]:
    out = []
    try:
        for first in asyncio.as_completed([late("slow", 60), late("c", 1)], timeout=10):
            out.append(await first)
    except TimeoutError:
        out.append("timeout")
    return out


@gives(["ab", "c", "d"])
async def task_group() -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(chain("a", "b")), group.create_task(late("c", 4)), group.create_task(work("d"))]
    return [task.result() for task in tasks]


@gives(["FatalError no", "cancelled", "undo"])
async def task_group_with_a_failure() -> list[str]:
    out, endings = [], []

    async def endures() -> None:
        try:
            await late("never seen", 100)
        except asyncio.CancelledError:
            endings.append("cancelled")
            raise

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(endures())
            group.create_task(refuses("no"))
    except* FatalError as errors:
        out += [f"{type(error).__name__} {error}" for error in errors.exceptions]
    return [*out, *endings, await work("undo")]


@gives(["first", "later"])
async def create_task_awaited_later() -> list[str]:
    later = asyncio.create_task(chain("lat", "er"))
    return [await work("first"), await later]


@gives("first")
async def task_never_awaited() -> str:
    task = asyncio.create_task(late("forgotten", 50))
    assert not task.done()
    return await work("first")


@gives("abc")
async def nested_tasks() -> str:
    async def inner(depth: int) -> str:
        if depth == 3:
            return ""
        rest = asyncio.create_task(inner(depth + 1))
        return await work("abc"[depth]) + await rest

    return await asyncio.create_task(inner(0))


@gives(["cancelled", "kept"])
async def shield() -> list[str]:
    kept = asyncio.create_task(chain("ke", "pt"))
    waiter = asyncio.create_task(_shielded(kept))
    await asyncio.sleep(0)
    waiter.cancel()
    out = ["cancelled" if isinstance(end, asyncio.CancelledError) else str(end) for end in await _ends(waiter)]
    return [*out, await kept]


async def _shielded(task: asyncio.Task[str]) -> str:
    return await asyncio.shield(task)


async def _ends(task: asyncio.Task[str]) -> list[str | BaseException]:
    return list(await asyncio.gather(task, return_exceptions=True))


@gives(["a1a2a3", "b1b2b3"])
async def parallel_chains() -> list[str]:
    return list(await asyncio.gather(chain("a1", "a2", "a3"), chain("b1", "b2", "b3")))


@gives("step")
async def race_of_step_and_sleep_won_by_the_step() -> str:
    return await _race(5, 60)


@gives("sleep")
async def race_of_step_and_sleep_won_by_the_sleep() -> str:
    return await _race(60, 5)


async def _race(step_s: float, sleep_s: float) -> str:
    step, nap = asyncio.create_task(late("x", step_s)), asyncio.create_task(sleep(sleep_s))
    done, pending = await asyncio.wait([step, nap], return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return "step" if step in done else "sleep"


@gives({"a": "A", "b": "B", "c": "C"})
async def dict_keyed_by_tasks() -> dict[str, str]:
    names = {asyncio.create_task(late(name.upper(), 4 - number)): name for number, name in enumerate("abc")}
    done, _ = await asyncio.wait(names)
    return {names[task]: task.result() for task in names if task in done}


@gives(["c", "b", "a"])
async def set_of_tasks_with_callbacks() -> list[str]:
    running: set[asyncio.Task[str]] = set()
    ended: list[str] = []
    for number, name in enumerate("abc"):
        task = asyncio.create_task(late(name, 4 - number))
        running.add(task)
        task.add_done_callback(running.discard)
        task.add_done_callback(lambda done: ended.append(done.result()))
    while running:
        await asyncio.wait(set(running), return_when=asyncio.FIRST_COMPLETED)
    return [await work(name) for name in ended]


@gives(["cancelled", "undone"])
async def task_cancelled_by_the_body() -> list[str]:
    out = []

    async def cleans_up() -> None:
        try:
            await late("x", 100)
        except asyncio.CancelledError:
            out.append("cancelled")
            out.append(await work("undone"))
            raise

    task = asyncio.create_task(cleans_up())
    await sleep(5)
    task.cancel()
    await asyncio.wait([task])
    return out
