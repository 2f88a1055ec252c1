"""Bodies put together at random from what asyncio and anyio offer together."""

from __future__ import annotations

from random import Random
from typing import Any

import anyio
from anyio.abc import TaskStatus

from tests.constructs.random_bodies import JOINS, WRAPS, Node, Player, random_body, told

ANYIO_JOINS = ("any_group", "any_stream", "any_limiter")
ANYIO_WRAPS = ("any_move_on", "any_fail_after", "any_shield", "any_cleanup", "any_cancel", "any_start", "any_event")


def random_body_with_anyio(chance: Random, size: int) -> Node:
    """As ``random_body``, with what anyio has as well."""
    return random_body(chance, size, joins=(*JOINS, *ANYIO_JOINS), wraps=(*WRAPS, *ANYIO_WRAPS))


class AnyioPlayer(Player):
    """Runs nodes of anyio's kinds as well."""

    async def _any_group(self, node: Node) -> Any:
        async with anyio.create_task_group() as group:
            for inner in node.inside:
                group.start_soon(self._tell_end, inner)
        return len(node.inside)

    async def _any_stream(self, node: Node) -> Any:
        send, receive = anyio.create_memory_object_stream[Any](node.choice % 2)

        async def produce(inner: Node) -> None:
            async with send.clone() as mine:
                await mine.send(await self._child(inner))

        ends = []
        async with anyio.create_task_group() as group, receive:
            async with send:
                for inner in node.inside:
                    group.start_soon(produce, inner)
            async for end in receive:
                self._note("receives", node.label, end)
                ends.append(end)
        return ends

    async def _any_limiter(self, node: Node) -> Any:
        limiter = anyio.CapacityLimiter(1 + node.choice % 2)

        async def one(inner: Node) -> None:
            async with limiter:
                await self._tell_end(inner)

        async with anyio.create_task_group() as group:
            for inner in node.inside:
                group.start_soon(one, inner)
        return limiter.borrowed_tokens

    async def _any_move_on(self, node: Node) -> Any:
        end = None
        with anyio.move_on_after(node.delay_ms / 1_000) as scope:
            end = await self._child(node.inside[0])
        self._note("moves on", node.label, scope.cancelled_caught)
        return end

    async def _any_fail_after(self, node: Node) -> Any:
        with anyio.fail_after(node.delay_ms / 1_000):
            return await self._child(node.inside[0])

    async def _any_shield(self, node: Node) -> Any:
        with anyio.CancelScope(shield=True):
            return await self._child(node.inside[0])

    async def _any_cleanup(self, node: Node) -> Any:
        try:
            return await self._child(node.inside[0])
        except Exception as error:
            return told(error)
        finally:
            with anyio.CancelScope(shield=True):
                self._note("cleans up", await self._work(-node.label, node.delay_ms, False))

    async def _any_cancel(self, node: Node) -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(self._tell_end, node.inside[0])
            await anyio.sleep(node.delay_ms / 1_000)
            group.cancel_scope.cancel()
        return group.cancel_scope.cancelled_caught

    async def _any_start(self, node: Node) -> Any:
        async def serve(*, task_status: TaskStatus[int]) -> None:
            task_status.started(await self._work(-node.label, node.delay_ms, False))
            await self._tell_end(node.inside[0])

        async with anyio.create_task_group() as group:
            return await group.start(serve)

    async def _any_event(self, node: Node) -> Any:
        event = anyio.Event()

        async def follow(name: str) -> None:
            await event.wait()
            self._note("follows", node.label, name)

        async with anyio.create_task_group() as group:
            for name in "ab":
                group.start_soon(follow, name)
            try:
                return await self._child(node.inside[0])
            finally:
                event.set()

    async def _tell_end(self, node: Node) -> None:
        self._note("ends", node.label, await self._child(node))
