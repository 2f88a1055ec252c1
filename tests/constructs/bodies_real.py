"""What do bodies give that are put together as people put them together: sagas, hedges, reminders, pipelines?"""

from __future__ import annotations

import asyncio
import functools
import json
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from redisworld import FatalError, Hook, sleep
from tests.constructs.bodies_hooks import mine
from tests.constructs.catalogue import cancel, gives, let_time_pass, resume
from tests.constructs.steps import echo, late, refuses, undo, work


@gives(["hotel", "car", "undone car", "undone hotel", "caught boom", "close"])
async def saga_with_finally() -> list[str]:
    undos, out = [], []
    try:
        for name in ("hotel", "car", "flight"):
            out.append(await work(name))
            undos.append(functools.partial(undo, name))
            if name == "car":
                await refuses("boom")
    except FatalError as error:
        out += [await compensation() for compensation in reversed(undos)]
        out.append(f"caught {error}")
    finally:
        out.append(await work("close"))
    return out


@gives([0, 1, 2, 3, 4, 5])
async def rate_limited_loop() -> list[int]:
    three = asyncio.Semaphore(3)

    async def one(number: int) -> int:
        async with three:
            found: int = await echo(number)
            await asyncio.sleep(0.5)
            return found

    return list(await asyncio.gather(*(one(number) for number in range(6))))


@gives(["0!", "1!", "2!", "3!"])
async def workers_of_a_queue_cancelled_when_it_is_empty() -> list[str]:
    queue: asyncio.Queue[str] = asyncio.Queue(2)
    out: list[str] = []

    async def consumes() -> None:
        while True:
            out.append(await work(f"{await queue.get()}!"))
            queue.task_done()

    consumers = [asyncio.create_task(consumes()) for _ in range(2)]
    for number in range(4):
        await queue.put(await work(str(number)))
    await queue.join()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    return sorted(out)


@gives(["fast", 2, "end"])
async def hedged_requests() -> list[Any]:
    tasks = {asyncio.create_task(late(name, delay)) for name, delay in (("slow", 50), ("fast", 1), ("slower", 90))}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    ends = await asyncio.gather(*pending, return_exceptions=True)
    cancelled = sum(isinstance(end, asyncio.CancelledError) for end in ends)
    return [done.pop().result(), cancelled, await work("end")]


@gives("b")
async def hedged_requests_one_after_the_other() -> str:
    async def attempt(name: str, after_s: float, takes_s: float) -> str:
        await asyncio.sleep(after_s)
        return await late(name, takes_s)

    tasks = [asyncio.create_task(attempt(name, 2 * number, 30 - 25 * number)) for number, name in enumerate("ab")]
    try:
        for first in asyncio.as_completed(tasks):
            return await first
    finally:
        for task in tasks:
            task.cancel()
    return "?"


@gives(["timeout", "undone a", "undone b"])
async def timeout_around_a_gather() -> list[str]:
    try:
        async with asyncio.timeout(10):
            return list(await asyncio.gather(work("a"), late("b", 50)))
    except TimeoutError:
        return ["timeout", await undo("a"), await undo("b")]


@gives(["ExceptionGroup", "end", "undone inner", "undone outer"])
async def task_groups_in_each_other_with_a_failure() -> list[str]:
    out: list[str] = []

    async def child(name: str) -> None:
        try:
            await late(name, 100)
        finally:
            out.append(await undo(name))

    async def inner() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child("inner"))
            group.create_task(refuses("bad"))

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(child("outer"))
            group.create_task(inner())
    except* FatalError as errors:
        out += [type(error).__name__ for error in errors.exceptions]
    return sorted([*out, await work("end")])


@gives([0, 2, 6])
async def pipeline_of_async_generators() -> list[int]:
    async def source() -> AsyncIterator[int]:
        for number in range(4):
            yield await echo(number)

    async def doubled(numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield await echo(number * 2)

    return [number async for number in doubled(source()) if number != 4]


@gives(8)
async def tree_of_gathers() -> int:
    async def below(depth: int) -> int:
        return sum(await asyncio.gather(below(depth - 1), below(depth - 1))) if depth else int(await echo(1))

    return await below(3)


@gives(["a", "b", "undone called back", "undone b", "undone a"])
async def exit_stack_unwound_by_a_failure() -> list[str]:
    out: list[str] = []

    @asynccontextmanager
    async def rented(name: str) -> AsyncIterator[str]:
        out.append(await work(name))
        try:
            yield name
        finally:
            out.append(await undo(name))

    async def called_back() -> None:
        out.append(await undo("called back"))

    with suppress(FatalError):
        async with AsyncExitStack() as stack:
            for name in "ab":
                await stack.enter_async_context(rented(name))
            stack.push_async_callback(called_back)
            await refuses("no")
    return out


@gives(["yes", 2], let_time_pass, let_time_pass, resume("approval", "yes"))
async def approval_with_reminders() -> list[Any]:
    answer = asyncio.ensure_future(mine("approval"))
    reminders = 0
    while not (await asyncio.wait({answer}, timeout=3_600))[0]:
        reminders += 1
        await work(f"reminder {reminders}")
    return [answer.result(), reminders]


@gives(["reminder 0", "yes"], let_time_pass, resume("approval", "yes"))
async def approval_awaited_again_after_each_timeout() -> list[str]:
    approval, out = mine("approval"), []
    for number in range(5):
        try:
            return [*out, await asyncio.wait_for(approval, 60)]
        except TimeoutError:
            out.append(await work(f"reminder {number}"))
    return out


@gives(["one", "x", "over"], resume("many", "one"), let_time_pass)
async def payloads_until_a_deadline_beside_a_step() -> list[str]:
    out: list[str] = []

    async def takes(messages: Hook[str]) -> None:
        async with messages:
            async for message in messages:
                out.append(message)

    with suppress(TimeoutError):
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            group.create_task(takes(mine("many")))
            out.append(await late("x", 20))
    return [*out, await work("over")]


@gives(["undone CancelledError", "undone CancelledError", "survived"])
async def task_that_swallows_its_cancellation() -> list[str]:
    out = []

    async def stubborn() -> str:
        for _ in range(2):
            try:
                await sleep(100)
            except BaseException as error:
                out.append(await undo(type(error).__name__))
        return "survived"

    task = asyncio.create_task(stubborn())
    for _ in range(2):
        await sleep(1)
        task.cancel()
    end = await task
    return [*out, end]


@gives(["undone 1", "CancelledError"])
async def clean_up_cancelled_in_its_middle() -> list[str]:
    out = []

    async def cleans_up() -> None:
        try:
            await sleep(100)
        finally:
            out.append(await undo("1"))
            out.append(await late("never seen", 100))

    task = asyncio.create_task(cleans_up())
    await sleep(1)
    task.cancel()
    await sleep(10)
    task.cancel()
    [end] = await asyncio.gather(task, return_exceptions=True)
    return [*out, type(end).__name__]


@gives("cancelled", cancel)
async def run_cancelled_among_many_tasks() -> None:
    async def child(name: str) -> None:
        try:
            await sleep("1d")
        except BaseException:
            await undo(name)
            raise

    tasks = {asyncio.create_task(child(name)) for name in "abcdef"}
    try:
        await asyncio.gather(*tasks)
    finally:
        await work("end")


@gives(["own", "undone x"])
async def task_that_cancels_itself() -> list[str]:
    task = asyncio.current_task()
    assert task is not None
    try:
        task.cancel("own")
        await work("never asked for")
    except asyncio.CancelledError as error:
        task.uncancel()
        return [str(error), await undo("x")]
    return []


@gives(["Task-1", "t-a", "t-b", "t-c"])
async def all_tasks() -> list[str]:
    tasks = [asyncio.create_task(late(name, 3), name=f"t-{name}") for name in "abc"]
    await asyncio.sleep(0)
    names: list[str] = await echo([task.get_name() for task in asyncio.all_tasks()])
    await asyncio.gather(*tasks)
    return sorted(names)


@gives([["Task-1", "t-a", "t-b"], ["Task-1", "t-a", "t-b"], ["Task-1", "t-b"], ["Task-1"]])
async def all_tasks_of_steps() -> list[list[str]]:
    def names() -> list[str]:
        return sorted(task.get_name() for task in asyncio.all_tasks())

    first, second = (asyncio.create_task(echo(name), name=f"t-{name}") for name in "ab")
    told = [names()]
    await asyncio.sleep(0)
    told.append(names())
    await first
    second.cancel()
    told.append(names())
    await asyncio.wait([second])
    return [*told, names()]


@gives(["soon", "1", "2", "five"])
async def callbacks_of_the_loop() -> list[str]:
    loop, out = asyncio.get_running_loop(), list[str]()
    five = loop.create_future()
    loop.call_later(5, five.set_result, "five")
    loop.call_later(2, out.append, "2")
    loop.call_later(3, out.append, "never").cancel()
    loop.call_at(loop.time() + 1, out.append, "1")
    loop.call_soon(out.append, "soon")
    last: str = await five
    return [*out, await work(last)]


@gives([["1", "2"], ["3", "4"]])
async def gathers_in_a_set() -> list[list[str]]:
    """A gather hashes by its address elsewhere."""
    pairs = {asyncio.gather(work("1"), work("2")), asyncio.gather(work("3"), work("4"))}
    done, _ = await asyncio.wait(pairs)
    return sorted([[await work(name) for name in pair.result()] for pair in done])


@gives(["c", "a", "b"])
async def tasks_awaited_in_another_order() -> list[str]:
    tasks = {name: asyncio.create_task(work(name)) for name in "abc"}
    return [await tasks[name] for name in "cab"]


@gives(["c", "a", "b"])
async def step_calls_made_first_and_awaited_in_another_order() -> list[str]:
    calls = {name: work(name) for name in "abc"}
    return [await calls[name] for name in "cab"]


@gives(["x", "x", "cannot reuse"])
async def step_call_handed_around() -> list[str]:
    """Awaited by another task, given twice to one gather, awaited again."""
    first, twice = work("x"), work("x")

    async def awaits() -> str:
        return await first

    out = [await asyncio.create_task(awaits()), (await asyncio.gather(twice, twice))[0]]
    try:
        await first
    except RuntimeError as error:
        out.append(str(error)[:12])
    return out


@functools.cache
def _price(cents: int) -> Decimal:
    return Decimal(cents) / 100


@dataclass
class Line:
    """A value with made defaults."""

    cents: int
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    tags: list[str] = field(default_factory=list)


@gives(["1.1", True])
async def values_as_people_use_them() -> list[Any]:
    line = Line(110)
    stored = json.loads(json.dumps({"price": str(_price(line.cents)), "id": str(line.id)}))
    return [await echo(stored["price"]), await echo(stored["id"]) == str(line.id)]


@gives(["main", True])
async def heartbeat_beside_the_work() -> list[Any]:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(30)
            beats += await echo(1)

    heart = asyncio.create_task(beat())
    try:
        done = await late("main", 100)
    finally:
        heart.cancel()
        with suppress(asyncio.CancelledError):
            await heart
    return [done, beats >= 2]


@gives(["undone lock", "free"])
async def lock_given_up_after_a_while() -> list[str]:
    alone, out = asyncio.Lock(), list[str]()

    async def holds() -> None:
        async with alone:
            await sleep(10)

    async def wants() -> None:
        try:
            async with asyncio.timeout(3):
                await alone.acquire()
        except TimeoutError:
            out.append(await undo("lock"))

    async with asyncio.TaskGroup() as group:
        group.create_task(holds())
        group.create_task(wants())
    async with alone:
        return [*out, await work("free")]


@gives(["pending", "pending", "done"])
async def polling_with_sleeps() -> list[str]:
    out: list[str] = []
    while not out or out[-1] != "done":
        out.append(await work("done" if len(out) == 2 else "pending"))
        await sleep("5m")
    return out


@gives(["y", "undone thrown", "undone closed"])
async def error_thrown_into_an_async_generator() -> list[str]:
    out: list[str] = []

    async def generator() -> AsyncIterator[str]:
        try:
            while True:
                yield await work("y")
        except ValueError:
            yield await undo("thrown")
        finally:
            out.append(await undo("closed"))

    items: Any = generator()
    async with aclosing(items):
        out += [await anext(items), await items.athrow(ValueError())]
    return out


@gives(["a", "b", "c", "d", "e"])
async def batches_of_two() -> list[str]:
    def batches(names: str) -> Iterable[str]:
        return (names[first : first + 2] for first in range(0, len(names), 2))

    return [done for batch in batches("abcde") for done in await asyncio.gather(*map(work, batch))]
