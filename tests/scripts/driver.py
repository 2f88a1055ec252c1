"""How do the script tests play the part of workers, in few words and without sleeping?

A ``Consumer`` is one World with its own consumer name. Two of them share a namespace and a pinned clock. What they
hold is passed around: ``Delivery`` values, a ``Turn`` (a loaded run under a message) and an ``Attempt`` (a claim).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from redisworld import events, messages
from redisworld.events import Event
from redisworld.keys import GROUP, Partition
from redisworld.messages import StepMessage, WorkflowMessage
from redisworld.runs import RunRow, Step
from redisworld.settings import Settings
from redisworld.world import Claim, ClaimItem, Committed, Completion, Delivery, Loaded, Outgoing, Recorded, World

RUN = "r1"
NOW = 1_800_000_000_000
ERROR = msgspec.msgpack.encode({"type": "Oops"})
RESULT = b"\xa2ok"

Item = list[str | bytes | int]


class Clock:
    """The time all scripts see, in epoch ms; it moves when a test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms


class Turn(msgspec.Struct, frozen=True):
    """A run loaded under a message, about to be committed."""

    delivery: Delivery
    message: str
    loaded: Loaded


class Attempt(msgspec.Struct, frozen=True):
    """A claim and the answer to it."""

    delivery: Delivery
    item: ClaimItem
    claim: Claim

    @property
    def outcome(self) -> str:
        return self.claim.outcome


def step(step_id: str, group: str = "", *, target: str = "steps", name: str = "work", run: str = RUN) -> Item:
    """A commit item: a queued step."""
    return ["step", step_id, name, group, target, message(step_id, name=name, run=run), b"\x90"]


def inline(step_id: str, token: str, group: str = "", *, run: str = RUN) -> Item:
    """A commit item: the step that the committing worker runs itself."""
    return ["inline", *step(step_id, group, run=run)[1:], token]


def did(step_id: str, token: str, *, length: int, at: int = NOW, outcome: str = "completed") -> Item:
    """The first item of a commit: the inline step whose end led to the pass."""
    return ["did", step_id, token, outcome, length, at, RESULT if outcome == "completed" else ERROR]


def message(step_id: str, *, name: str = "work", run: str = RUN) -> bytes:
    """The bytes of a step message."""
    return messages.encode(step_message(step_id, name=name, run=run))


def step_message(step_id: str, *, name: str = "work", run: str = RUN) -> StepMessage:
    return StepMessage(message_id=step_id, run_id=run, workflow_name="wf", step_id=step_id, step_name=name)


def end(kind: str = "run_completed", code: str = "") -> Item:
    """A commit item: the end of the run."""
    return ["end", kind, code, RESULT]


class Consumer:
    """One worker process as the scripts see it."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world = world
        self.clock = clock
        world.clock = clock

    @property
    def partition(self) -> Partition:
        return self.world.partitions[0]

    @property
    def redis(self) -> Any:
        return self.world.connection.commands

    def key(self, run: str = RUN) -> str:
        return self.partition.run(run)

    def limit_log(self, events: int) -> None:
        """From now on a log of so many events is full for this consumer."""
        self.world.ceiling = (events, self.world.settings.retention_ms)

    # -- runs

    async def start(self, run: str = RUN) -> None:
        await self.world.create_run(run, "wf", b"\x90")

    async def begin(self, run: str = RUN) -> Turn:
        """Start a run and load it under its first message."""
        await self.start(run)
        return await self.load((await self.read("workflows"))[-1])

    async def load(self, delivery: Delivery, *, start: int = 0) -> Turn:
        """Load under a delivery, as its own message."""
        name = message_id(delivery)
        return Turn(delivery, name, await self.world.deliveries.load(delivery, delivery.text("run"), name, start=start))

    async def commit(
        self,
        turn: Turn,
        *items: Sequence[str | bytes | int],
        consumed: int | None = None,
        chunk: int = 1,
        last: bool = True,
        token: str | None = None,
    ) -> Committed:
        return await self.world.deliveries.commit(
            turn.delivery,
            turn.delivery.text("run"),
            turn.message,
            [part for item in items for part in item],
            replayed_to=turn.loaded.replayed_to,
            consumed=turn.loaded.length if consumed is None else consumed,
            pass_token=token or self.world.next_token(),
            chunk=chunk,
            last=last,
        )

    async def dispatch(self, *steps: Item, run: str = RUN, mode: str = "all") -> dict[str, Delivery]:
        """A run whose first pass dispatched these steps and settled; their deliveries by step id."""
        turn = await self.begin(run)
        groups = dict.fromkeys(str(item[3]) for item in steps if item[0] == "step" and item[3] not in ("", "-"))
        await self.commit(turn, *steps, *(["seal", group, mode] for group in groups))
        return await self.steps_delivered(run)

    async def finish(self, run: str = RUN, how: str = "completed") -> None:
        """End a run whose first pass has been committed or not: by its body, or by terminate."""
        if how == "cancelled":
            await self.world.cancel(run, terminate=True)
            return
        await self.later_pass(end(f"run_{how}"), run=run)

    async def later_pass(self, *items: Item, run: str = RUN) -> Committed:
        """Some later pass that has seen the whole log commits these items, under a message nobody holds any more."""
        row = await self.world.row(run)
        return await self.world.deliveries.commit(
            Delivery(self.partition, "workflows", "0-1", {}),
            run,
            "nobody",
            [part for item in items for part in item],
            replayed_to=row.replayed_to,
            consumed=row.log_length,
            pass_token=self.world.next_token(),
        )

    # -- deliveries

    async def read(self, stream: str, count: int = 1000) -> list[Delivery]:
        """New deliveries of a stream."""
        await self.world.queue.ensure_groups([(self.partition, stream)])
        return await self.world.queue.read([(self.partition, stream)], count=count)

    async def steps_delivered(self, run: str = RUN, stream: str = "steps") -> dict[str, Delivery]:
        return {d.text("step"): d for d in await self.read(stream) if d.text("run") == run}

    async def wakes(self) -> list[WorkflowMessage]:
        """What lies in the workflows stream but the first messages, decoded."""
        entries = await self.redis.xrange(self.partition.workflows())
        found = [messages.decode(fields[b"msg"]) for _, fields in entries]
        return [m for m in found if isinstance(m, WorkflowMessage) and m.message_id != "start"]

    async def age(self, delivery: Delivery, ms: int = 60_000) -> None:
        """Let this consumer's delivery look unrenewed for so long."""
        await self.redis.xclaim(
            self._stream(delivery), GROUP, self.world.consumer, 0, [delivery.entry_id], idle=ms, justid=True
        )

    async def take(self, delivery: Delivery) -> Delivery:
        """Take a delivery over, as a reclaim would: whoever had it has lost its lease."""
        await self.redis.xclaim(self._stream(delivery), GROUP, self.world.consumer, 0, [delivery.entry_id])
        return msgspec.structs.replace(delivery, deliveries=delivery.deliveries + 1)

    async def pending(self, delivery: Delivery) -> tuple[str, int] | None:
        """Holder and delivery count of an entry, None when it is not pending."""
        found = await self.redis.xpending_range(
            self._stream(delivery), GROUP, delivery.entry_id, delivery.entry_id, count=1
        )
        return (found[0]["consumer"].decode(), found[0]["times_delivered"]) if found else None

    async def holds(self, delivery: Delivery) -> bool:
        found = await self.pending(delivery)
        return found is not None and found[0] == self.world.consumer

    async def publish(self, step_id: str, *, run: str = RUN, stream: str = "steps") -> Delivery:
        """A step message that no commit wrote, delivered to this consumer."""
        fields = {
            "kind": "step",
            "spec": 1,
            "run": run,
            "step": step_id,
            "name": "work",
            "msg": message(step_id, run=run),
        }
        await self.redis.xadd(self.partition.tag + stream, fields)
        return (await self.read(stream))[-1]

    async def move(self, delivery: Delivery, *, target: str = "", delay_ms: int = 0, new_id: str = "") -> bool:
        """Hand a delivery back with the bytes it has, to its own stream or another."""
        old = message_id(delivery)
        again = Outgoing.again(delivery, body=delivery.fields["msg"], message_id=new_id or old)
        place = target or delivery.stream
        answer = await self.world.deliveries.move(delivery, again, old_id=old, target=place, delay_ms=delay_ms)
        return answer == "moved"

    async def duplicate(self, delivery: Delivery, stream: str | None = None) -> Delivery:
        """A second entry of the same message, delivered to this consumer."""
        name = stream or delivery.stream
        await self.redis.xadd(self.partition.tag + name, delivery.fields)
        return (await self.read(name))[-1]

    def _stream(self, delivery: Delivery) -> str:
        return delivery.partition.tag + delivery.stream

    # -- steps

    def claim_item(self, delivery: Delivery, **changes: Any) -> ClaimItem:
        item = ClaimItem(
            run_id=delivery.text("run"),
            step_id=delivery.text("step"),
            token=self.world.next_token(),
            message_id=message_id(delivery),
            delivery=delivery,
            attempts_allowed=4,
            may_replay=True,
            step_name="work",
        )
        return msgspec.structs.replace(item, **changes)

    async def claim(self, delivery: Delivery, **changes: Any) -> Attempt:
        item = self.claim_item(delivery, **changes)
        return Attempt(delivery, item, await self.world.deliveries.claim(item))

    def completion(self, attempt: Attempt, outcome: str = "completed", **changes: Any) -> Completion:
        item = attempt.item
        done = Completion(
            run_id=item.run_id,
            step_id=item.step_id,
            token=item.token,
            outcome=outcome,
            message_id=item.message_id,
            delivery=attempt.delivery,
            payload=RESULT if outcome == "completed" else ERROR,
            target="steps",
            step_name="work",
            cause="" if outcome == "completed" else "error",
            message=message(item.step_id, run=item.run_id),
        )
        return msgspec.structs.replace(done, **changes)

    async def complete(self, attempt: Attempt, outcome: str = "completed", **changes: Any) -> Recorded:
        return await self.world.deliveries.complete(self.completion(attempt, outcome, **changes))

    async def retry(self, attempt: Attempt, delay_ms: int = 0, cause: str = "error") -> Recorded:
        return await self.complete(attempt, "retrying", delay_ms=delay_ms, cause=cause)

    async def redelivered(self, attempt: Attempt) -> Delivery:
        """The step's next delivery after a retry without delay."""
        return (await self.steps_delivered(attempt.item.run_id))[attempt.item.step_id]

    # -- looking

    async def row(self, run: str = RUN) -> RunRow:
        return await self.world.row(run)

    async def step(self, step_id: str, run: str = RUN) -> Step:
        return (await self.world.steps(run))[step_id]

    async def log(self, run: str = RUN) -> list[Event]:
        return [events.parse(element) for element in await self.world.log(run)]

    async def kinds(self, run: str = RUN) -> list[str]:
        return [str(event.kind) for event in await self.log(run)]

    async def written(self, run: str = RUN) -> tuple[object, object]:
        """Row and log of a run as they lie in Redis."""
        return await self.redis.hgetall(self.key(run)), await self.redis.lrange(self.partition.log(run), 0, -1)

    async def dump(self) -> dict[str, object]:
        """Every key of the namespace with type and value; what only counts calls or measures time is left out."""
        found: dict[str, object] = {}
        for key in sorted(await self.redis.keys("*")):
            kind = (await self.redis.type(key)).decode()
            found[key.decode()] = (kind, await self._value(key, kind), await self.redis.pttl(key) >= 0)
        return found

    async def _value(self, key: bytes, kind: str) -> object:
        if kind == "hash":
            fields = await self.redis.hgetall(key)
            fields.pop(b"claims", None)  # counts calls, repeated ones too
            return fields
        if kind == "list":
            return await self.redis.lrange(key, 0, -1)
        if kind == "zset":
            return await self.redis.zrange(key, 0, -1, withscores=True)
        if kind != "stream":
            return await self.redis.get(key)
        groups = await self.redis.xinfo_groups(key)
        pending = await self.redis.xpending_range(key, GROUP, "-", "+", count=1000) if groups else []
        return (
            await self.redis.xrange(key),
            [(entry["message_id"], entry["consumer"], entry["times_delivered"]) for entry in pending],
        )


def message_id(delivery: Delivery) -> str:
    """The logical id in a delivery's message."""
    return messages.decode(delivery.fields["msg"]).message_id


@asynccontextmanager
async def consumers(url: str, count: int = 2, **settings: Any) -> AsyncIterator[list[Consumer]]:
    """So many consumers on one namespace and clock."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        yield [
            Consumer(
                await stack.enter_async_context(
                    World.connect(settings=Settings(url=url, partitions=1, namespace="test", **settings))
                ),
                clock,
            )
            for _ in range(count)
        ]
