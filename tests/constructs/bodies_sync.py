"""What do asyncio's locks, events, queues and barriers give?"""

from __future__ import annotations

import asyncio

from tests.constructs.catalogue import gives
from tests.constructs.steps import late, work


@gives(["set by x", "a", "b"])
async def event() -> list[str]:
    happened, out = asyncio.Event(), []

    async def waits(name: str) -> str:
        await happened.wait()
        return await work(name)

    tasks = [asyncio.create_task(waits(name)) for name in "ab"]
    out.append(f"set by {await late('x', 3)}")
    happened.set()
    return out + list(await asyncio.gather(*tasks))


@gives(["a in", "a out", "b in", "b out", "c in", "c out"])
async def lock() -> list[str]:
    alone, out = asyncio.Lock(), []

    async def enters(name: str) -> None:
        async with alone:
            out.append(await work(f"{name} in"))
            out.append(await late(f"{name} out", 2))

    await asyncio.gather(*(enters(name) for name in "abc"))
    return out


@gives([2, ["a", "b", "c", "d", "e"]])
async def semaphore() -> list[object]:
    two, inside, most = asyncio.Semaphore(2), 0, 0

    async def enters(name: str) -> str:
        nonlocal inside, most
        async with two:
            inside += 1
            most = max(most, inside)
            done = await late(name, 2)
            inside -= 1
            return done

    found = await asyncio.gather(*(enters(name) for name in "abcde"))
    return [most, list(found)]


@gives(["a", "b", "c"])
async def condition() -> list[str]:
    changed = asyncio.Condition()
    ready: list[str] = []
    out: list[str] = []

    async def takes() -> None:
        async with changed:
            await changed.wait_for(lambda: ready)
            out.append(await work(ready.pop(0)))

    tasks = [asyncio.create_task(takes()) for _ in range(3)]
    for name in "abc":
        made = await work(name)
        async with changed:
            ready.append(made)
            changed.notify()
    await asyncio.gather(*tasks)
    return out


@gives(["0!", "1!", "2!", "3!", "4!"])
async def queue_of_a_producer_and_consumers() -> list[str]:
    queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=2)
    out: list[str] = []

    async def produces() -> None:
        for number in range(5):
            await queue.put(await work(str(number)))
        for _ in range(2):
            await queue.put(None)

    async def consumes() -> None:
        while (item := await queue.get()) is not None:
            out.append(await work(f"{item}!"))
            queue.task_done()

    async with asyncio.TaskGroup() as group:
        group.create_task(produces())
        group.create_task(consumes())
        group.create_task(consumes())
    return sorted(out)


@gives(["low", "mid", "top"])
async def priority_queue() -> list[str]:
    queue: asyncio.PriorityQueue[tuple[int, str]] = asyncio.PriorityQueue()
    for rank, name in ((3, "top"), (1, "low"), (2, "mid")):
        queue.put_nowait((rank, await work(name)))
    return [await work(queue.get_nowait()[1]) for _ in range(3)]


@gives(["a", "b", "c", "all met", "all met", "all met"])
async def barrier() -> list[str]:
    meeting, out = asyncio.Barrier(3), []

    async def arrives(name: str, seconds: float) -> str:
        out.append(await late(name, seconds))
        await meeting.wait()
        return await work("all met")

    met = await asyncio.gather(arrives("c", 3), arrives("a", 1), arrives("b", 2))
    return [*out, *met]


@gives("x")
async def bare_future() -> str:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def sets() -> None:
        future.set_result(await late("x", 1))

    task = asyncio.create_task(sets())
    value = await future
    await task
    return value
