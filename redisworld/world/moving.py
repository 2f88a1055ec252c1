"""How do the runs of one deployment, and their messages, come to another?

First the rows: from then on whatever sends something for a run sends it to the deployment that its row names, also a
pass or a body that is under way (``include/deployments.lua``). Then the delayed messages, then the streams, where those
end up that were promoted meanwhile. Each run, delayed message and delivery is moved by one script call, so whoever is
killed has moved some and lost none, and a repeat goes on with the rest.

Messages in a stream are taken as a worker takes them: an undelivered entry is never deleted, or its group would lose
count. What a live worker holds it finishes; that of dead ones is taken over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from redis.exceptions import ResponseError

from redisworld import messages
from redisworld.errors import DeploymentBusy, MalformedMessage
from redisworld.keys import GROUP, Partition
from redisworld.runs import Status
from redisworld.settings import check_word
from redisworld.world.deliveries import Delivery, Outgoing
from redisworld.world.listing_runs import page_of_runs
from redisworld.world.queue import Stream, fields_of, key_of
from redisworld.world.replies import text_of, word_of
from redisworld.world.serving import Serving, read_serving

if TYPE_CHECKING:
    from redisworld.world.world import World

T = TypeVar("T")

_PAGE = 100
"""Runs or messages whose calls are under way at once."""

_SCANNED = 1_000
"""Members of a delayed set that are looked at in one command; most are timers, which know no deployment."""

_OPEN = (Status.PENDING, Status.RUNNING)

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

    async def look(self) -> Move:
        """What a move would take along now. It writes nothing."""
        serving = await read_serving(self._world)
        streams = await self._streams(serving)
        held = await self._held(serving, streams)
        waiting = sum(await self._lengths(streams)) - sum(held.values())
        return self._told(
            serving,
            done=False,
            runs=await _count(self._runs()),
            messages=max(0, waiting),
            delayed=await _count(self._delayed()),
            held=held,
        )

    async def move(self, *, leave_held: bool) -> Move:
        """Move all there is now. Raises DeploymentBusy unless what live workers hold may be left to them."""
        serving = await read_serving(self._world)
        held = await self._held(serving, await self._streams(serving))
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
        streams = await self._streams(serving)
        taken = await self._each("messages", self._take(streams, serving), self._move_message)
        for stream in streams:
            await self._world.upkeep.remove_consumer(stream, self._world.consumer)
        held = await self._held(await read_serving(self._world), streams)
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
            page = await page_of_runs(
                self._world, statuses=_OPEN, deployment=self._deployment, limit=_PAGE, after=after
            )
            yield [run.run_id for run in page.runs]
            if not (after := page.after):
                return

    async def _move_run(self, run_id: str) -> bool:
        reply = await self._world.call("repin_run", self._world.partition(run_id), run_id, self._deployment, self._to)
        return word_of(reply) in ("moved", "fits")  # fits: a lost reply was asked again

    # -- delayed messages

    async def _delayed(self) -> AsyncIterator[list[tuple[Partition, bytes, bytes]]]:
        """Delayed messages for streams of the deployment's own: partition, member and body."""
        for partition in self._world.partitions:
            cursor = 0
            while True:

                async def scan(partition: Partition = partition, cursor: int = cursor) -> Any:
                    return await self._world.connection.commands.zscan(partition.delayed, cursor, count=_SCANNED)

                cursor, found = await self._world.connection.run("page_delayed", scan)
                members = [member for member, _ in found if not member.startswith(b"wait ")]
                for first in range(0, len(members), _PAGE):
                    yield await self._of_the_deployment(partition, members[first : first + _PAGE])
                if not cursor:
                    break

    async def _of_the_deployment(
        self, partition: Partition, members: list[bytes]
    ) -> list[tuple[Partition, bytes, bytes]]:
        async def read() -> Any:
            return await self._world.connection.commands.hmget(partition.delayed_body, members)

        pin = f"@{self._deployment}".encode()
        bodies = await self._world.connection.run("read_delayed", read)
        return [
            (partition, member, body)
            for member, body in zip(members, bodies, strict=True)
            if body and body.partition(b" ")[0].endswith(pin)
        ]

    async def _move_delayed(self, found: tuple[Partition, bytes, bytes]) -> bool:
        partition, member, stored = found
        kind, _, rest = member.decode("utf-8", "replace").partition(" ")
        run_id, _, id = rest.partition(" ")
        body = stored.partition(b"\n")[2]
        reply = await self._world.call("repin_delayed", partition, kind, run_id, id, body, self._readdressed(body))
        return word_of(reply) == "moved"

    # -- streams

    async def _streams(self, serving: Serving) -> list[Stream]:
        """The deployment's own streams: of each queue that any deployment has."""
        queues = {"steps", "workflows"} | {name.partition("@")[0] for name in serving.streams}
        names = [f"{queue}@{self._deployment}" for queue in sorted(queues)]
        streams = [(partition, name) for partition in self._world.partitions for name in names]
        return [stream for stream, n in zip(streams, await self._lengths(streams), strict=True) if n]

    async def _lengths(self, streams: list[Stream]) -> list[int]:
        async def call() -> Any:
            pipeline = self._world.connection.commands.pipeline(transaction=False)
            for stream in streams:
                pipeline.xlen(key_of(stream))
            return await pipeline.execute()

        lengths: list[int] = await self._world.connection.run("count_waiting", call) if streams else []
        return lengths

    async def _held(self, serving: Serving, streams: list[Stream]) -> Counter[str]:
        """How many messages each live worker holds."""
        found: Counter[str] = Counter()
        for stream in streams:

            async def call(stream: Stream = stream) -> Any:
                return await self._world.connection.commands.xinfo_consumers(key_of(stream), GROUP)

            try:
                consumers = await self._world.connection.run("look_at_consumers", call)
            except ResponseError:  # nobody has ever read it, so it has no group
                continue
            found.update({text_of(each["name"]): each["pending"] for each in consumers if each["pending"]})
        return Counter({name: count for name, count in found.items() if name in serving.workers})

    async def _take(self, streams: list[Stream], serving: Serving) -> AsyncIterator[list[Delivery]]:
        """What waits in these streams, page by page: what dead workers hold, and what nobody has read."""
        for stream in streams:
            await self._world.queue.ensure_groups([stream])
            after = "-"
            while page := await self._pending(stream, after):
                after = f"({text_of(page[-1]['message_id'])}"
                yield await self._take_over(
                    stream, [entry for entry in page if text_of(entry["consumer"]) not in serving.workers]
                )
            while read := await self._world.queue.read([stream], count=_PAGE):
                yield read

    async def _pending(self, stream: Stream, after: str) -> list[dict[str, Any]]:
        async def call() -> Any:
            return await self._world.connection.commands.xpending_range(key_of(stream), GROUP, after, "+", _PAGE)

        pending: list[dict[str, Any]] = await self._world.connection.run("page_pending", call)
        return pending

    async def _take_over(self, stream: Stream, pending: list[dict[str, Any]]) -> list[Delivery]:
        """Those that nobody has renewed or taken over meanwhile: their idle time has only grown."""

        async def call() -> Any:
            pipeline = self._world.connection.commands.pipeline(transaction=False)
            for entry in pending:
                idle_ms = entry["time_since_delivered"]
                pipeline.xclaim(key_of(stream), GROUP, self._world.consumer, idle_ms, [entry["message_id"]])
            return await pipeline.execute()

        claimed = await self._world.connection.run("take_over", call) if pending else []
        return [
            Delivery(*stream, text_of(entry), fields_of(pairs)) for found in claimed for entry, pairs in found if pairs
        ]

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
