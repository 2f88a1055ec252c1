"""Bodies put together at random from what a hook offers and what asyncio and anyio do to whoever waits for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from redisworld import HookDisposed
from tests.constructs.random_anyio import ANYIO_JOINS, ANYIO_WRAPS, AnyioPlayer
from tests.constructs.random_bodies import JOINS, LEAVES, WRAPS, Node, random_body

HOOK_LEAVES = ("hook_once", "hook_many", "hook_impatient", "hook_shared", "hook_ends")
HOOK_WRAPS = ("hook_aside", "hook_disposed")

MakeHook = Callable[[str], Any]
"""Called with a token; gives what acts like a hook of numbers."""


def random_body_with_hooks(chance: Random, size: int) -> Node:
    """As ``random_body``, with all that anyio and hooks have as well."""
    return random_body(
        chance,
        size,
        leaves=(*LEAVES, *HOOK_LEAVES),
        joins=(*JOINS, *ANYIO_JOINS),
        wraps=(*WRAPS, *ANYIO_WRAPS, *HOOK_WRAPS),
    )


def due_after(token: str) -> list[int]:
    """How long (ms) after a hook is made each payload arrives; the first one is 1, the next 2."""
    _, delay_ms, count = map(int, token.split(":"))
    return [delay_ms * number for number in range(1, count + 1)]


class QueueHook:
    """What acts like a hook on asyncio's own loop."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._payloads: asyncio.Queue[int | None] = asyncio.Queue()
        self._waiting = 0
        self._disposed = False
        loop = asyncio.get_running_loop()
        for number, delay_ms in enumerate(due_after(token), 1):
            loop.call_later(delay_ms / 1_000, self._arrives, number)

    def __await__(self) -> Any:
        return self._next().__await__()

    def __aiter__(self) -> QueueHook:
        return self

    async def __anext__(self) -> int:
        try:
            return await self._next()
        except HookDisposed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> QueueHook:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.dispose()

    def dispose(self) -> None:
        """As a hook's."""
        self._disposed = True
        while not self._payloads.empty():
            self._payloads.get_nowait()
        for _ in range(self._waiting):
            self._payloads.put_nowait(None)

    async def _next(self) -> int:
        if self._disposed:
            raise HookDisposed(self._token)
        self._waiting += 1
        try:
            payload = await self._payloads.get()
        finally:
            self._waiting -= 1
        if payload is None:
            raise HookDisposed(self._token)
        return payload

    def _arrives(self, number: int) -> None:
        if not self._disposed:
            self._payloads.put_nowait(number)


class HookPlayer(AnyioPlayer):
    """Runs nodes with hooks as well."""

    make_hook: MakeHook

    def _hook(self, node: Node, count: int) -> Any:
        return self.make_hook(f"{node.label}:{node.delay_ms}:{count}")

    async def _hook_once(self, node: Node) -> Any:
        return await self._hook(node, 1)

    async def _hook_many(self, node: Node) -> Any:
        count = 1 + node.choice % 3
        async with self._hook(node, count) as payloads:
            async for payload in payloads:
                self._note("receives", node.label, payload)
                if payload == count:
                    break
        return count

    async def _hook_impatient(self, node: Node) -> Any:
        payloads = self._hook(node, 1)
        try:
            return await asyncio.wait_for(payloads, _patience_s(node))
        except TimeoutError:
            self._note("reminds", node.label)
            return await payloads

    async def _hook_shared(self, node: Node) -> Any:
        payloads = self._hook(node, 2)

        async def take(name: str) -> None:
            self._note("takes", node.label, name, await payloads)

        await asyncio.gather(*map(take, "ab"))

    async def _hook_ends(self, node: Node) -> Any:
        payloads = self._hook(node, 2)
        collector = asyncio.create_task(self._collect(node, payloads))
        await asyncio.sleep(_patience_s(node))
        payloads.dispose()
        return await collector

    async def _hook_aside(self, node: Node) -> Any:
        payloads = self._hook(node, 3)
        collector = asyncio.create_task(self._collect(node, payloads))
        try:
            return await self._child(node.inside[0])
        finally:
            payloads.dispose()
            self._note("collects", node.label, await collector)

    async def _hook_disposed(self, node: Node) -> Any:
        async with self._hook(node, 1) as payloads:
            end = await self._child(node.inside[0])
        try:
            self._note("receives", node.label, await payloads)
        except HookDisposed:
            self._note("is disposed of", node.label)
        return end

    async def _collect(self, node: Node, payloads: Any) -> list[int]:
        found = []
        async for payload in payloads:
            self._note("receives", node.label, payload)
            found.append(payload)
        return found


def _patience_s(node: Node) -> float:
    """Less or more than one or two payloads take, never exactly as long, in whole milliseconds."""
    return (node.delay_ms * (1 + node.choice) // 5 + 3) / 1_000
