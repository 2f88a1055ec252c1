"""How does one operation go to Redis, and how do its answers become the model's words?

A ``Stage`` holds two consumers on a real server, and the event loop on which they live: a state machine of hypothesis
is not async, and one connection serves all its examples.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import redis

from redisworld.errors import ErrorInfo, HookNotFound, MalformedMessage, ResumeConflict, RunGone, RunNotFound
from redisworld.keys import GROUP
from redisworld.messages import WorkflowMessage
from redisworld.world import Delivery, Outgoing
from redisworld.world.deliveries import Answer as Outcome
from redisworld.world.events import Events
from tests.model import hooks, steps
from tests.model.look import STREAMS, Names, Picture, seen
from tests.model.model import MODES, Answer, Entry
from tests.model.passes import Pass, Wish
from tests.scripts import driver
from tests.scripts.driver import Consumer, Item

INPUT = b"\x90"
Result = TypeVar("Result")


class Hand(msgspec.Struct, frozen=True):
    """A delivery as its consumer has it in hand, whether Redis still agrees or not."""

    consumer: str
    delivery: Delivery
    entry: Entry

    def __hash__(self) -> int:
        return hash((self.consumer, self.entry))

    def __str__(self) -> str:
        return f"{self.consumer} with {self.entry.name} ({self.entry.message} of {self.entry.run})"


class Stage:
    """Two consumers, a and b, and a plain client that looks on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, consumers: dict[str, Consumer], raw: redis.Redis) -> None:
        self._loop = loop
        self.consumers = consumers
        self.raw = raw
        self.clock = consumers["a"].clock
        self.partition = consumers["a"].partition
        self._consumer_names = {c.world.consumer.encode(): name for name, c in consumers.items()}
        self.names = Names()

    def reset(self) -> None:
        """An empty namespace, its streams and groups, and the time at which all examples begin."""
        self.names = Names()
        self.clock.now = driver.NOW
        self.lower_the_ceiling(1_000_000)
        self.raw.flushall()
        for stream in STREAMS:
            self.raw.xgroup_create(self.partition.tag + stream, GROUP, id="0", mkstream=True)

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(call)

    def look(self) -> Picture:
        return seen(self.raw, self.partition, self.names, self._consumer_names)

    # -- deliveries

    async def deliver(self, consumer: str, stream: str, most: int) -> list[Delivery]:
        return await self.consumers[consumer].world.queue.read([(self.partition, stream)], count=most)

    async def take(self, consumer: str, holder: str, entry: Entry) -> Delivery:
        """The lease of a delivery runs out, and a consumer reclaims it."""
        stream = self.partition.tag + entry.stream
        self.raw.delete(self.partition.reclaim_ticket(entry.stream))
        name = self.consumers[holder].world.consumer
        self.raw.xclaim(stream, GROUP, name, 0, [self.names.id(entry.name)], idle=60_000, justid=True)
        answer = await self.consumers[consumer].world.deliveries.reclaim((self.partition, entry.stream), "0-0", 1000)
        (delivery,) = answer.taken
        return delivery

    def add(self, hand: Hand) -> None:
        """A second entry of the same message."""
        self._add(hand.entry.stream, hand.delivery.fields)

    def add_step_message(self, run: str, step: str) -> None:
        """A step message of a foreign producer."""
        body = driver.message(step, run=run)
        fields: dict[str, str | bytes | int] = {
            "kind": "step",
            "spec": 1,
            "run": run,
            "step": step,
            "name": "work",
            "msg": body,
        }
        self._add("steps", fields)

    def _add(self, stream: str, fields: Mapping[str, str | bytes | int]) -> None:
        self.raw.xadd(self.partition.tag + stream, dict(fields))  # type: ignore[arg-type]  # dict is invariant

    async def move(self, hand: Hand, to: Entry, delay_ms: int) -> Answer:
        world = self.consumers[hand.consumer].world
        if to.message == hand.entry.message:
            out = Outgoing.again(hand.delivery, body=hand.delivery.fields["msg"], message_id=to.message)
        else:
            out = Outgoing.of(
                WorkflowMessage(message_id=to.message, run_id=to.run, workflow_name="wf", reason="recovery")
            )
        answer = await world.deliveries.move(
            hand.delivery, out, old_id=hand.entry.message, target=to.stream, delay_ms=delay_ms
        )
        return (answer == "moved",)

    async def bury(self, hand: Hand, code: str) -> Answer:
        world = self.consumers[hand.consumer].world
        return (
            await world.deliveries.bury(
                hand.delivery, run_id=hand.entry.run, reason="unknown_name", detail="", code=code
            ),
        )

    async def settle(self, hand: Hand) -> Answer:
        return (await self.consumers[hand.consumer].world.deliveries.settle(hand.delivery),)

    # -- runs

    async def create_run(self, consumer: str, run: str) -> Answer:
        return await self.consumers[consumer].world.create_run(run, "wf", INPUT)

    async def load(self, hand: Hand) -> Answer:
        got = await self.consumers[hand.consumer].world.deliveries.load(
            hand.delivery, hand.entry.run, hand.entry.message
        )
        if got.outcome != "loaded":
            return (got.outcome, got.detail)
        assert len(got.elements) == got.length
        return ("loaded", got.woken_at, got.replayed_to, got.length, got.owned, got.started_at)

    async def commit(self, hand: Hand, p: Pass) -> Answer:
        try:
            got = await self.consumers[hand.consumer].world.deliveries.commit(
                hand.delivery,
                hand.entry.run,
                hand.entry.message,
                [part for wish in p.wishes for part in _item(wish, hand.entry.run)],
                replayed_to=p.replayed_to,
                consumed=p.consumed,
                pass_token=p.token,
                chunk=p.chunk,
                last=p.last,
                started_at=p.started_at,
            )
        except MalformedMessage:
            return ("broken",)
        if got.outcome in ("committed", "again", "ended"):
            return (got.outcome, got.inline, got.at)
        if got.outcome == "chunk":
            return ("chunk", got.inline)
        return ("diverged",) if got.outcome == "diverged" else (got.outcome, got.detail)

    async def cancel(self, consumer: str, run: str, terminate: bool) -> Answer:
        try:
            return ((await self.consumers[consumer].world.cancel(run, terminate=terminate)).value,)
        except RunNotFound:
            return ("not_found",)

    async def promote(self, consumer: str) -> Answer:
        following, late = await self.consumers[consumer].world.upkeep.promote(self.partition, 100)
        return (following, *late)

    async def reap(self, consumer: str) -> Answer:
        return (await self.consumers[consumer].world.upkeep.reap(self.partition, 100),)

    def lower_the_ceiling(self, events: int) -> None:
        for consumer in self.consumers.values():
            consumer.world.ceiling = (events, consumer.world.settings.retention_ms)

    # -- hooks and single events

    async def claim_token(self, consumer: str, run: str, hook: str, token: str) -> Answer:
        return (await self.consumers[consumer].world.hooks.claim(run, hook, token),)

    async def resume(self, consumer: str, r: hooks.Resume) -> Answer:
        try:
            return ("received", *await self.consumers[consumer].world.hooks.resume(r.token, r.payload, resume_id=r.id))
        except HookNotFound:
            return ("not_found",)
        except ResumeConflict:
            return ("conflict",)
        except RunGone:
            return ("gone",)

    async def release(self, consumer: str) -> Answer:
        return (await self.consumers[consumer].world.hooks.release(self.partition),)

    async def create_event(self, consumer: str, run: str, wish: Wish) -> Answer:
        got = await self._create_event(self.consumers[consumer].world.events, run, wish)
        return ("diverged",) if got.outcome == "diverged" else (got.outcome, got.detail)

    async def _create_event(self, events: Events, run: str, wish: Wish) -> Outcome:
        match wish.op:
            case "start":
                return await events.run_started(run)
            case "end" if wish.id == "completed":
                return await events.run_completed(run, driver.RESULT)
            case "end":
                return await events.run_failed(run, ErrorInfo(type="Oops", message="", code="CODE"))
            case "step":
                message = driver.step_message(wish.id, name=wish.name, run=run)
                return await events.step_created(run, msgspec.structs.replace(message, step_input=INPUT))
            case "wait":
                return await events.wait_created(run, wish.id, wish.due)
            case "waited":
                return await events.wait_completed(run, wish.id)
            case "unwait":
                return await events.wait_cancelled(run, wish.id)
            case "hook":
                return await events.hook_created(run, wish.id, wish.token)
            case "dispose":
                return await events.hook_disposed(run, wish.id)
        return await events.attr_set(run, {wish.id: run}, id=wish.id)

    # -- steps

    async def claim(self, hand: Hand, c: steps.Claim) -> Answer:
        consumer = self.consumers[hand.consumer]
        item = consumer.claim_item(
            hand.delivery,
            step_id=c.step,
            token=c.token,
            message_id=c.message,
            attempts_allowed=c.allowed,
            may_replay=c.may_replay,
            ensure=c.ensure,
            owned=c.owned,
            input=INPUT if c.ensure else None,
        )
        got = await consumer.world.deliveries.claim(item)
        match got.outcome:
            case "started":
                assert got.input == (None if c.ensure else INPUT)
                return (got.outcome, got.attempt, got.charged, got.first_started_at)
            case "skipped":
                return (got.outcome, got.detail, got.step_id)
            case "too_early":
                return (got.outcome, got.wait_ms)
            case "gone" | "exhausted" | "full":
                return (got.outcome, got.detail)
        return (got.outcome,)

    async def complete(self, hand: Hand, c: steps.Completion) -> Answer:
        consumer = self.consumers[hand.consumer]
        item = consumer.claim_item(hand.delivery, run_id=c.run, step_id=c.step, token=c.token, message_id=c.message)
        done = consumer.completion(
            driver.Attempt(hand.delivery, item, None),  # type: ignore[arg-type]  # the claim is not looked at
            c.outcome,
            may_replay=c.may_replay,
            delay_ms=c.delay_ms,
            cause="drain" if c.drain else "error",
        )
        got = await consumer.world.deliveries.complete(done)
        return (got.outcome, got.detail)


def _item(wish: Wish, run: str) -> Item:
    match wish.op:
        case "step":
            return driver.step(wish.id, wish.group, name=wish.name, run=run)
        case "inline":
            return ["inline", *driver.step(wish.id, wish.group, name=wish.name, run=run)[1:], wish.token]
        case "wait":
            return ["wait", wish.id, wish.due]
        case "unwait":
            return ["unwait", wish.id]
        case "hook":
            return ["hook", wish.id, wish.token, INPUT, wish.holder, int(wish.awaited)]
        case "dispose":
            return ["dispose", wish.id]
        case "attr":
            return ["attr", wish.id, f'{{"{wish.id}":"{run}"}}', INPUT]
        case "assign":
            return ["assign", wish.id, wish.group]
        case "seal":
            return ["seal", wish.id, MODES[wish.id]]
    return ["end", f"run_{wish.id}", "CODE", driver.RESULT]


@contextmanager
def stage(url: str) -> Iterator[Stage]:
    """Both consumers on an event loop of their own, on the server behind this URL, which is emptied."""
    loop = asyncio.new_event_loop()
    ready: asyncio.Future[list[Consumer]] = loop.create_future()
    over = asyncio.Event()

    async def hold() -> None:  # a World is left by the task that entered it
        async with driver.consumers(url) as found:
            ready.set_result(found)
            await over.wait()

    holder = loop.create_task(hold())
    try:
        with redis.Redis.from_url(url) as raw:
            raw.flushall()
            first: list[asyncio.Future[Any]] = [ready, holder]
            loop.run_until_complete(asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED))
            if not ready.done():
                holder.result()  # raises
            a, b = ready.result()
            try:
                yield Stage(loop, {"a": a, "b": b}, raw)
            finally:
                over.set()
                loop.run_until_complete(holder)
    finally:
        loop.close()
