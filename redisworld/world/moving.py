"""How do the runs of one deployment, and their messages, come to another?

First the rows: from then on whatever sends something for a run sends it to the deployment that its row names, also a
pass or a body that is under way (``include/deployments.lua``). Then the delayed messages, then the streams, where those
end up that were promoted meanwhile. Each run, delayed message and delivery is moved by one script call, so whoever is
killed has moved some and lost none, and a repeat goes on with the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from redisworld import messages
from redisworld.errors import DeploymentBusy, MalformedMessage
from redisworld.keys import Partition
from redisworld.runs import OPEN
from redisworld.settings import check_word
from redisworld.world.deliveries import Delivery, Outgoing
from redisworld.world.listing_runs import page_of_runs
from redisworld.world.pinned import Pinned
from redisworld.world.replies import text_of, word_of
from redisworld.world.scanning import pages
from redisworld.world.serving import Serving, read_serving

if TYPE_CHECKING:
    from redisworld.world.world import World

T = TypeVar("T")

_PAGE = 100
"""Runs or messages whose calls are under way at once."""

_SCANNED = 1_000
"""Members of a delayed set that are looked at in one command; most are timers, which know no deployment."""


Tick = Callable[[str, int], None]
"""Called with ``runs``, ``delayed`` or ``messages``, and how many of them have been moved so far."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What a move has taken along, or what one would (``done`` is False then).

    ``messages`` were waiting in streams, unread or held by workers that are gone; ``delayed`` ones are due later.
    ``held`` is what live workers hold, by consumer: it stays where it is until they have finished it.
    """

    deployment: str
    to: str
    """``""``: to none, so any worker takes the runs."""
    done: bool
    runs: int
    messages: int
    delayed: int
    held: dict[str, int]
    served: bool
    """Whether a live worker reads the wakes of ``to``."""


def nothing(what: str, done: int) -> None:
    """A tick that tells nobody."""


class Mover:
    """Moves what belongs to one deployment; ``to`` is another one, or ``""`` for none."""

    def __init__(self, world: World, deployment: str, to: str, *, tick: Tick = nothing) -> None:
        for name in filter(None, (deployment, to)):
            check_word(name)
        self._world = world
        self._deployment = deployment
        self._to = to
        self._tick = tick
        self._pinned = Pinned(world, deployment)

    async def look(self) -> Move:
        """What a move would take along now. It writes nothing."""
        serving = await read_serving(self._world)
        waiting = await self._pinned.waiting(serving)
        held = await self._pinned.held(waiting, serving)
        return self._told(
            serving,
            done=False,
            runs=await _count(self._runs()),
            messages=max(0, sum(waiting.values()) - sum(held.values())),
            delayed=await _count(self._delayed()),
            held=held,
        )

    async def move(self, *, leave_held: bool) -> Move:
        """Move all there is now. Raises DeploymentBusy unless what live workers hold may be left to them."""
        serving = await read_serving(self._world)
        held = await self._pinned.held(await self._pinned.waiting(serving), serving)
        if held and not leave_held:
            raise DeploymentBusy(
                f"live workers hold {sum(held.values())} messages of deployment {self._deployment!r} "
                f"({', '.join(sorted(held))}): stop them first, or leave to them what they hold"
            )
        if self._to:
            await self._world.heartbeats.list_streams(
                [f"{name}@{self._to}" for name in ("steps", "workflows")], self._world.now_ms()
            )
        runs = await self._each("runs", self._runs(), self._move_run)
        delayed = await self._each("delayed", self._delayed(), self._move_delayed)
        # whoever has come or gone meanwhile counts as it is now
        serving = await read_serving(self._world)
        waiting = await self._pinned.waiting(serving)
        taken = await self._each("messages", self._pinned.take(waiting, serving), self._move_message)
        held = await self._pinned.held(waiting, await read_serving(self._world))
        return self._told(serving, done=True, runs=runs, messages=taken, delayed=delayed, held=held)

    def _told(
        self, serving: Serving, *, done: bool, runs: int, messages: int, delayed: int, held: dict[str, int]
    ) -> Move:
        wakes = f"workflows@{self._to}" if self._to else "workflows"
        return Move(
            deployment=self._deployment,
            to=self._to,
            done=done,
            runs=runs,
            messages=messages,
            delayed=delayed,
            held=held,
            served=serving.readers(wakes) > 0,
        )

    async def _each(self, what: str, pages: AsyncIterator[list[T]], act: Callable[[T], Awaitable[bool]]) -> int:
        """Do it with all of a page at once; with how many it was done."""
        done = 0
        async for page in pages:
            outcomes = await asyncio.gather(*map(act, page), return_exceptions=True)  # nobody goes on alone
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                done += outcome
            self._tick(what, done)
        return done

    # -- rows

    async def _runs(self) -> AsyncIterator[list[str]]:
        """The open runs of the deployment. A run that begins meanwhile may be left to a repeat."""
        after = ""
        while True:
            page = await page_of_runs(self._world, statuses=OPEN, deployment=self._deployment, limit=_PAGE, after=after)
            yield [run.run_id for run in page.runs]
            if not (after := page.after):
                return

    async def _move_run(self, run_id: str) -> bool:
        reply = await self._world.call("repin_run", self._world.partition(run_id), run_id, self._deployment, self._to)
        return word_of(reply) in ("moved", "fits")  # fits: a lost reply was asked again

    # -- delayed messages

    async def _delayed(self) -> AsyncIterator[list[tuple[Partition, bytes, bytes]]]:
        """Delayed messages for streams of the deployment's own: partition, member and body."""
        connection = self._world.connection
        for partition in self._world.partitions:
            page = partial(connection.commands.zscan, partition.delayed, count=_SCANNED)
            async for found in pages(connection, "page_delayed", page):
                members = [member for member, _ in found if not member.startswith(b"wait ")]
                for first in range(0, len(members), _PAGE):
                    yield await self._of_the_deployment(partition, members[first : first + _PAGE])

    async def _of_the_deployment(
        self, partition: Partition, members: list[bytes]
    ) -> list[tuple[Partition, bytes, bytes]]:
        connection, pin = self._world.connection, f"@{self._deployment}".encode()
        bodies = await connection.run(
            "read_delayed", lambda: connection.commands.hmget(partition.delayed_body, members)
        )
        return [
            (partition, member, body)
            for member, body in zip(members, bodies, strict=True)
            if body and body.partition(b" ")[0].endswith(pin)
        ]

    async def _move_delayed(self, found: tuple[Partition, bytes, bytes]) -> bool:
        partition, member, stored = found
        kind, _, rest = text_of(member).partition(" ")
        run_id, _, id = rest.partition(" ")
        body = stored.partition(b"\n")[2]
        reply = await self._world.call("repin_delayed", partition, kind, run_id, id, body, self._readdressed(body))
        return word_of(reply) == "moved"

    # -- messages

    async def _move_message(self, delivery: Delivery) -> bool:
        answer = await self._send(delivery)
        if answer == "here":  # its run has begun since the rows were moved
            await self._move_run(delivery.text("run"))
            answer = await self._send(delivery)
        return answer == "moved"

    async def _send(self, delivery: Delivery) -> str:
        again = Outgoing.again(delivery, body=self._readdressed(delivery.fields.get("msg", b"")), message_id="")
        queue = delivery.stream.partition("@")[0]
        return await self._world.deliveries.move(
            delivery, again, old_id="", target=f"{queue}@{self._to}" if self._to else queue
        )

    def _readdressed(self, body: bytes) -> bytes:
        try:
            return messages.readdressed(body, self._to)
        except MalformedMessage:  # whoever reads it there buries it, as it would have been here
            return body


async def _count(pages: AsyncIterator[Iterable[object]]) -> int:
    return sum([len(list(page)) async for page in pages])
