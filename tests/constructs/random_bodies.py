"""Bodies put together at random from what asyncio offers: what do they see, in which order, and when?

A body is a tree of nodes. ``play`` runs it with any ``work`` that acts like a step, and notes each thing it sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import methodcaller
from random import Random
from typing import Any, NamedTuple

LEAVES = ("step", "step", "failing", "timer")
JOINS = ("gather", "tolerant", "wait", "as_completed", "group", "semaphore", "barrier", "queue", "condition")
WRAPS = ("wait_for", "timeout", "shield", "cancel", "cancel_self", "uncancel", "late", "cleanup", "event", "callbacks")
LONGEST_MS = 10**7
"""Of a step or a timer: so long that no two things happen in the same millisecond."""

Work = Callable[[int, int, bool], Awaitable[Any]]
"""Called with a label, how long it takes (ms) and whether it fails then; gives its label."""


class Node(NamedTuple):
    """One construct, what is inside, and how long it takes or waits (ms). ``choice`` picks among its variants."""

    kind: str
    label: int
    delay_ms: int
    choice: int
    inside: tuple[Node, ...] = ()

    def holds(self, kind: str) -> bool:
        """Whether this or anything inside is of that kind."""
        return self.kind == kind or any(node.holds(kind) for node in self.inside)


def random_body(
    chance: Random,
    size: int,
    *,
    leaves: tuple[str, ...] = LEAVES,
    joins: tuple[str, ...] = JOINS,
    wraps: tuple[str, ...] = WRAPS,
) -> Node:
    """A body of about so many constructs; the same generator in the same state gives the same."""
    labels = iter(range(1, 10**6))

    def grow(depth: int) -> Node:
        label = next(labels)
        inner = label < size and depth < 5
        kind = chance.choice((*leaves, *joins, *wraps) if inner else leaves)
        count = 0 if kind in leaves else chance.randint(1, 4) if kind in joins else 1
        delay_ms, choice = chance.randint(1, LONGEST_MS), chance.randrange(12)
        return Node(kind, label, delay_ms, choice, tuple(grow(depth + 1) for _ in range(count)))

    return grow(0)


def told(error: BaseException) -> str:
    """An exception as the trace has it."""
    if isinstance(error, BaseExceptionGroup):
        return f"[{', '.join(map(told, error.exceptions))}]"
    known = {asyncio.CancelledError: "cancelled", TimeoutError: "timeout"}
    return known.get(type(error), str(error))


def end_of(future: asyncio.Future[Any]) -> Any:
    """The result, or what happened instead."""
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    return told(error) if error else future.result()


_name_of = methodcaller("get_name")


class Player:
    """Runs nodes; ``trace`` holds when (ms) and what they saw."""

    def __init__(self, work: Work, now_ms: Callable[[], int]) -> None:
        self.trace: list[tuple[Any, ...]] = []
        self._work = work
        self._now_ms = now_ms

    async def play(self, body: Node) -> None:
        """Run the body to its end; what others see after it is not noted."""
        try:
            end = await self._see(body)
        except Exception as error:
            end = told(error)
        except asyncio.CancelledError:
            self._note("end", "cancelled")
            raise
        self._note("end", end)

    def seen(self, *, in_order: bool) -> list[tuple[Any, ...]]:
        """The trace up to the end of the body. Not ``in_order``: sorted where things happen at one time."""
        last = next((index for index, entry in enumerate(self.trace) if entry[1] == "end"), len(self.trace))
        seen = self.trace[: last + 1]
        return seen if in_order else sorted(seen, key=repr)

    def _note(self, *what: Any) -> None:
        self.trace.append((self._now_ms(), *what))

    async def _see(self, node: Node) -> Any:
        self._note("begins", node.label)
        try:
            end = await getattr(self, f"_{node.kind}")(node)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self._note("raises", node.label, told(error))
            raise
        self._note("gives", node.label, end)
        return end

    def _child(self, node: Node) -> Awaitable[Any]:
        """A step itself where it is one, else a coroutine: joins tell the two apart."""
        if node.kind in ("step", "failing"):
            return self._work(node.label, node.delay_ms, node.kind == "failing")
        return self._see(node)

    def _children(self, node: Node) -> list[asyncio.Task[Any]]:
        tasks = [asyncio.ensure_future(self._child(inner)) for inner in node.inside]
        for number, task in enumerate(tasks):
            task.set_name(str(number))
        return tasks

    async def _step(self, node: Node) -> Any:
        return await self._work(node.label, node.delay_ms, False)

    async def _failing(self, node: Node) -> Any:
        return await self._work(node.label, node.delay_ms, True)

    async def _timer(self, node: Node) -> Any:
        return await asyncio.sleep(node.delay_ms / 1_000, node.label)

    async def _gather(self, node: Node) -> Any:
        return await asyncio.gather(*map(self._child, node.inside))

    async def _tolerant(self, node: Node) -> Any:
        ends = await asyncio.gather(*map(self._child, node.inside), return_exceptions=True)
        return [told(end) if isinstance(end, BaseException) else end for end in ends]

    async def _wait(self, node: Node) -> Any:
        until = (asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION, asyncio.ALL_COMPLETED)[node.choice % 3]
        timeout = node.delay_ms / 1_000 if node.choice % 2 else None
        done, pending = await asyncio.wait(self._children(node), return_when=until, timeout=timeout)
        left = sorted(pending, key=_name_of)
        self._note("done", [end_of(task) for task in sorted(done, key=_name_of)], len(left))
        if node.choice % 4 == 0:
            self._note("cancels", [(task.cancel(), task.cancelling(), task.done()) for task in left])
        if node.choice % 4 < 2:
            await asyncio.gather(*left, return_exceptions=True)
        return [end_of(task) for task in left if task.done()]

    async def _as_completed(self, node: Node) -> Any:
        timeout = node.delay_ms / 1_000 if node.choice % 2 else None
        for first in asyncio.as_completed(self._children(node), timeout=timeout):
            try:
                self._note("next", node.label, await first)
            except (RuntimeError, ExceptionGroup) as error:
                self._note("next", node.label, told(error))

    async def _group(self, node: Node) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._child(inner)) for inner in node.inside]  # type: ignore[arg-type]
        return [task.result() for task in tasks]

    async def _semaphore(self, node: Node) -> Any:
        semaphore = asyncio.Semaphore(1 + node.choice % 2)

        async def one(inner: Node) -> Any:
            async with semaphore:
                return await self._child(inner)

        return await asyncio.gather(*map(one, node.inside))

    async def _barrier(self, node: Node) -> Any:
        barrier = asyncio.Barrier(len(node.inside))

        async def one(inner: Node) -> int:
            await asyncio.wait([asyncio.ensure_future(self._child(inner))])
            return await barrier.wait()

        return await asyncio.gather(*map(one, node.inside))

    async def _queue(self, node: Node) -> Any:
        queue: asyncio.Queue[Any] = asyncio.Queue(2)

        async def produce() -> None:
            for task in self._children(node):
                await asyncio.wait([task])
                await queue.put(end_of(task))

        producer = asyncio.create_task(produce())
        ends = [await queue.get() for _ in node.inside]
        await producer
        return ends

    async def _condition(self, node: Node) -> Any:
        condition, ends = asyncio.Condition(), list[Any]()

        async def one(inner: Node) -> None:
            task = asyncio.ensure_future(self._child(inner))
            await asyncio.wait([task])
            async with condition:
                ends.append(end_of(task))
                condition.notify_all()

        tasks = [asyncio.create_task(one(inner)) for inner in node.inside]
        async with condition:
            await condition.wait_for(lambda: len(ends) == len(tasks))
        return ends

    async def _wait_for(self, node: Node) -> Any:
        return await asyncio.wait_for(self._child(node.inside[0]), node.delay_ms / 1_000)

    async def _timeout(self, node: Node) -> Any:
        async with asyncio.timeout(node.delay_ms / 1_000) as scope:
            try:
                return await self._child(node.inside[0])
            finally:
                self._note("expired", node.label, scope.expired())

    async def _shield(self, node: Node) -> Any:
        [task] = self._children(node)
        try:
            return await asyncio.wait_for(asyncio.shield(task), node.delay_ms / 1_000)
        except TimeoutError:
            self._note("goes on", node.label, task.done())
            return await task

    async def _cancel(self, node: Node) -> Any:
        [task] = self._children(node)
        if node.choice < 4:
            for _ in range(node.choice):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(node.delay_ms / 1_000)
        self._note("cancels", node.label, task.cancel("why"), task.done(), task.cancelling())
        await asyncio.wait([task])
        return end_of(task)

    async def _cancel_self(self, node: Node) -> Any:
        async def cancelled() -> Any:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            return await self._child(node.inside[0])

        [end] = await asyncio.gather(cancelled(), return_exceptions=True)
        return told(end) if isinstance(end, BaseException) else end

    async def _uncancel(self, node: Node) -> Any:
        async def stubborn() -> Any:
            try:
                return await self._child(node.inside[0])
            except asyncio.CancelledError:
                self._note("cleans up", node.label)
                return await self._work(-node.label, node.delay_ms, False)

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(node.delay_ms / 1_000)
        self._note("cancels", node.label, task.cancel(), task.uncancel())
        await asyncio.wait([task])
        return end_of(task)

    async def _late(self, node: Node) -> Any:
        [task] = self._children(node)
        await asyncio.sleep(node.delay_ms / 1_000)
        self._note("looks", node.label, task.done())
        return await task

    async def _cleanup(self, node: Node) -> Any:
        try:
            return await self._child(node.inside[0])
        except Exception as error:
            return told(error)
        finally:
            self._note("cleans up", await self._work(-node.label, node.delay_ms, False))

    async def _event(self, node: Node) -> Any:
        event = asyncio.Event()

        async def follow(name: str) -> None:
            await event.wait()
            self._note("follows", node.label, name)

        followers = [asyncio.create_task(follow(name)) for name in "ab"]
        try:
            return await self._child(node.inside[0])
        finally:
            event.set()
            await asyncio.gather(*followers)

    async def _callbacks(self, node: Node) -> Any:
        [task] = self._children(node)

        def tell(task: asyncio.Future[Any]) -> None:
            self._note("is told", node.label, end_of(task))

        def tell_not(task: asyncio.Future[Any]) -> None:
            self._note("is told in spite", node.label)

        task.add_done_callback(tell_not)
        task.add_done_callback(tell)
        task.add_done_callback(tell_not)
        self._note("takes back", task.remove_done_callback(tell_not))
        return await task
