"""What can a consumer do with the deliveries it holds: claim, complete, load, commit, hand back?

Each method calls one script, which first checks that the delivery is still this consumer's, or, for the end of an
attempt, that its token is the step's; any may be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, cast

from redisworld.begun import Begun
from redisworld.keys import Partition
from redisworld.settings import SPEC_VERSION
from redisworld.world.batching import Batcher
from redisworld.world.deliveries import (
    Claim,
    ClaimItem,
    Committed,
    Completion,
    Delivery,
    Loaded,
    Outgoing,
    Recorded,
    Sweep,
)
from redisworld.world.queue import Stream, fields_of
from redisworld.world.replies import claim_of, detail_of, items_of, loaded_of, word_of

if TYPE_CHECKING:
    from redisworld.world.world import World


class Deliveries:
    """The deliveries of a World's consumer. Raises RedisUnavailable, as all of it, and MalformedMessage."""

    def __init__(self, world: World, work: Begun) -> None:
        self._world = world
        self._claims: Batcher[ClaimItem, Claim] = Batcher(
            work, self.claim_together, lambda item: len(item.input or b"")
        )
        self._completions: Batcher[Completion, Recorded] = Batcher(
            work, self._complete_many, lambda item: len(item.payload) + len(item.message)
        )

    # -- passes

    async def load(self, delivery: Delivery, run_id: str, message_id: str, *, start: int = 0) -> Loaded:
        """Row fields and log elements from ``start``, read at one moment; starts a pending run.

        Settles a message that nothing waits for, and one whose run is terminal.
        """
        s = self._world.settings
        reply = await self._world.call(
            "load_run",
            delivery.partition,
            self._world.clock(),
            self._world.consumer,
            run_id,
            message_id,
            delivery.stream,
            delivery.entry_id,
            start,
            s.log_page,
            s.chunk_bytes,
            *self._world.ceiling,
        )
        return loaded_of(reply)

    async def commit(
        self,
        delivery: Delivery,
        run_id: str,
        message_id: str,
        items: Sequence[str | bytes | int],
        *,
        replayed_to: int,
        consumed: int,
        pass_token: str,
        chunk: int = 1,
        last: bool = True,
        started_at: int | None = None,
        cancels: bool = False,
    ) -> Committed:
        """Write what a pass asks for, fenced by ``replayed_to``; ``items`` are as commit_pass takes them.

        A pass of several chunks numbers them from 1; one that comes without those before it is lost. ``cancels`` says
        that the items end the run as cancelled.
        ``started_at`` is the body time of a first pass that has read nothing: the commit starts the run with it, or
        answers lost if somebody else has written meanwhile.
        """
        reply = await self._world.call(
            "commit_pass",
            delivery.partition,
            self._world.clock(),
            self._world.consumer,
            run_id,
            replayed_to,
            consumed,
            message_id,
            delivery.stream,
            delivery.entry_id,
            pass_token,
            chunk,
            int(last),
            self._world.ceiling[0],
            self._world.cancelled_ms if cancels else self._world.ceiling[1],
            SPEC_VERSION,
            "" if started_at is None else started_at,
            *items,
        )
        word = word_of(reply)
        if word in ("committed", "again", "ended", "chunk"):
            return Committed(word, inline=reply[1] == b"1", at=int(reply[2]))
        return Committed(word, detail=detail_of(reply))

    # -- steps

    def claim(self, item: ClaimItem) -> Awaitable[Claim]:
        """Fence and write ``step_started``; goes out with the other claims of this tick."""
        return self._claims.ask(item.delivery.partition, item)

    async def claim_together(self, partition: Partition, items: list[ClaimItem]) -> list[Claim]:
        """Claim up to ``MOST_ITEMS`` steps of one partition in a call of their own; the answers in their order."""
        args = [arg for item in items for arg in item.args()]
        replies = await self._world.call(
            "claim_many", partition, self._world.clock(), self._world.consumer, *self._world.ceiling, *args
        )
        return [claim_of(reply) for reply in items_of(replies)]

    def complete(self, item: Completion) -> Awaitable[Recorded]:
        """Record an outcome and settle its delivery; goes out with the other completions of this tick."""
        return self._completions.ask(item.delivery.partition, item)

    def complete_then(self, item: Completion, done: Callable[[Recorded | BaseException], None]) -> None:
        """The same, for who does not wait: ``done`` gets the answer, or what the call raised."""
        self._completions.add(item.delivery.partition, item, done)

    async def _complete_many(self, partition: Partition, items: list[Completion]) -> list[Recorded]:
        args = [arg for item in items for arg in item.args()]
        replies = await self._world.call("complete_many", partition, self._world.clock(), self._world.consumer, *args)
        return [Recorded(reply[0].decode(), detail_of(reply) if len(reply) > 1 else "") for reply in items_of(replies)]

    # -- deliveries

    async def move(
        self, delivery: Delivery, message: Outgoing, *, old_id: str, target: str, delay_ms: int = 0
    ) -> Literal["moved", "here", "stale"]:
        """Hand a delivery back as ``message``, after ``delay_ms``.

        ``stale`` if this consumer holds it no more; ``here`` where it was to go to another deployment, but its run
        belongs to the one whose stream it was read from: it is held as before.
        """
        args = message.args(old_id=old_id, target=target, delay_ms=delay_ms)
        reply = await self._world.call(
            "move_message",
            delivery.partition,
            self._world.clock(),
            self._world.consumer,
            delivery.stream,
            delivery.entry_id,
            *args,
        )
        return cast('Literal["moved", "here", "stale"]', word_of(reply))

    async def give_back(self, delivery: Delivery) -> bool:
        """Put a delivery back into its stream, bytes as they are; False if this consumer holds it no more."""
        again = Outgoing.again(delivery, body=delivery.fields.get("msg", b""), message_id="")
        return await self.move(delivery, again, old_id="", target=delivery.stream) == "moved"

    async def settle(self, delivery: Delivery) -> bool:
        """Acknowledge and delete a delivery; False if this consumer holds it no more."""
        reply = await self._world.call(
            "settle_message", delivery.partition, self._world.consumer, delivery.stream, delivery.entry_id
        )
        return word_of(reply) == "settled"

    async def bury(
        self, delivery: Delivery, *, run_id: str, reason: str, detail: str, code: str = "", payload: bytes = b""
    ) -> bool:
        """Move a delivery to the dead letters; with ``code`` its run fails in the same script."""
        reply = await self._world.call(
            "bury_message",
            delivery.partition,
            self._world.clock(),
            self._world.consumer,
            delivery.stream,
            delivery.entry_id,
            delivery.kind,
            run_id,
            reason,
            detail,
            delivery.deliveries,
            code,
            payload,
            self._world.settings.retention_ms,
        )
        return word_of(reply) == "buried"

    async def reclaim(self, stream: Stream, cursor: str, count: int, *, lease_ms: int | None = None) -> Sweep:
        """Take over at most ``count`` deliveries whose lease ran out, unless another consumer sweeps.

        Neither repeated nor waited for: once Redis answers again the living must renew first. Raises RedisUnavailable.
        """
        s = self._world.settings
        # until it comes again: one whose slots are full by now, or that dies, must not keep the others out for longer
        ticket_ms = s.reclaim_every_ms * 6 // 5
        lease_ms = s.lease_ms if lease_ms is None else lease_ms
        args = (self._world.consumer, stream[1], lease_ms, cursor, count, ticket_ms)
        timeout = self._world.connection.lease_timeout_s
        reply = await self._world.call("reclaim_stale", stream[0], *args, patience_ms=0, timeout=timeout)
        match word_of(reply):
            case "busy":
                return Sweep(cursor, quiet_ms=max(0, int(reply[1])), busy=True)
            case "no_group":
                await self._world.queue.ensure_groups([stream], lost=True)
                return Sweep("0-0")
        taken = tuple(
            Delivery(*stream, entry.decode(), fields_of(fields), int(deliveries))
            for entry, deliveries, fields in reply[3:]
        )
        return Sweep(reply[1].decode(), taken, int(reply[2]))
