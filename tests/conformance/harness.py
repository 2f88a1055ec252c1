"""How do the conformance tests drive the real consumers one delivery at a time, and count what reaches Redis?"""

from __future__ import annotations

import asyncio
import re
import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import PackageNotFoundError
from typing import Any, TypeVar

import anyio
import msgspec
import pytest
import redis

from consumers.attempts import Attempts
from consumers.bodies import Bodies
from consumers.leases import LeaseKeeper
from consumers.slots import Slots
from consumers.steps import StepConsumer
from consumers.worker import Worker
from consumers.workflows import Orchestrator
from redisworld import Settings, Workflows, World, messages, scripts
from redisworld.begun import Begun
from redisworld.events import Event, EventKind
from redisworld.keys import GROUP
from redisworld.messages import RunContext, StepMessage, WorkflowMessage
from redisworld.metrics import Metrics
from redisworld.observe import Observation, PrologueTaken, StepClaimed, observing
from redisworld.replay import Instance
from redisworld.runs import Step
from redisworld.world import ClaimItem, Completion, Delivery, Recorded, Stream
from tests.apps import conf_app
from tests.chaos import invariants

Seen = TypeVar("Seen")


class Consumers:
    """The step consumer and the orchestrator of one process, wired as Worker wires them, without its loops."""

    def __init__(self, world: World, app: Workflows, raw: redis.Redis, *, metrics: bool = True) -> None:
        settings = world.settings
        self.world, self.app, self.raw = world, app, raw
        [self.partition] = world.partitions
        self.seen: list[Any] = []
        self.metrics = _metrics(app) if metrics else None
        bodies = Bodies(settings.concurrency, settings.max_payload)
        self.leases = LeaseKeeper(world, cancelled=bodies.stop)
        self.step_slots, self.replay_slots = Slots("step", settings.concurrency), Slots("workflow", 16)
        attempts = Attempts(world, bodies, self.leases, self.step_slots)
        self.orchestrator = Orchestrator(
            world,
            app,
            attempts,
            step_slots=self.step_slots,
            replay_slots=self.replay_slots,
            queues=frozenset({""}),
            stopping=lambda: False,
        )
        self.steps = StepConsumer(world, app, attempts, self.orchestrator)

    def observe(self, seen: Observation) -> None:
        """Listens at the seam, for the test and for the metrics."""
        self.seen.append(seen)
        if self.metrics is not None:
            self.metrics.observers[type(seen)](seen)

    def saw(self, kind: type[Seen]) -> list[Seen]:
        """Observations of one kind."""
        return [seen for seen in self.seen if isinstance(seen, kind)]

    def metric(self, name: str, **labels: str) -> float:
        """A counter as /metrics shows it."""
        if self.metrics is None:
            pytest.skip("redisworld is not installed in this environment, and its metrics name their version")
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def stream(self, kind: str) -> Stream:
        """``steps`` or ``workflows``, of this worker's deployment."""
        pin = self.world.pin(self.world.settings.deployment)
        return (self.partition, kind + pin)

    async def take(self, kind: str) -> Delivery | None:
        """Read the next delivery of a stream."""
        deliveries = await self.world.queue.read([self.stream(kind)], count=1)
        return deliveries[0] if deliveries else None

    async def process(self, delivery: Delivery) -> None:
        """Process a delivery to its end, as Worker does."""
        message = messages.decode(delivery.fields["msg"])
        slots = self.step_slots if isinstance(message, StepMessage) else self.replay_slots
        self.leases.hold([delivery])
        slots.hold()
        try:
            async with slots.turn():
                if isinstance(message, StepMessage):
                    await self.steps.process(delivery, message)
                else:
                    await self.orchestrator.process(delivery, message)
        finally:
            self.leases.release(delivery)
            slots.release()

    async def wake(self) -> None:
        """Read and process the next wake."""
        delivery = await self.take("workflows")
        assert delivery is not None, "no wake is queued"
        await self.process(delivery)

    async def step(self) -> None:
        """Read and process the next step message."""
        delivery = await self.take("steps")
        assert delivery is not None, "no step is queued"
        await self.process(delivery)

    async def drain(self, *, later: bool = True) -> None:
        """Process until nothing is queued; ``later``: what is delayed counts as due (with a pinned clock)."""
        while True:
            delivery = await self.take("steps") or await self.take("workflows")
            if delivery is not None:
                await self.process(delivery)
            elif later and (due := self.raw.zrange(self.partition.delayed, 0, 0, withscores=True)):
                self.world.clock = lambda at=int(due[0][1]): at
                await self.world.upkeep.promote(self.partition)
            else:
                return

    async def die_in_the_body(self, delivery: Delivery) -> None:
        """The process that handles this delivery ends in a step's body: whatever runs it is cancelled from outside."""
        worker = Begun()

        def die() -> None:
            worker.cancel()
            raise asyncio.CancelledError

        conf_app.during.append(die)
        worker.begin(self.process(delivery))
        await worker.done()

    async def redelivered(self, delivery: Delivery) -> Delivery:
        """The same entry, taken over from its holder as if that had died a lease ago."""
        stream = (delivery.partition, delivery.stream)
        key = delivery.partition.tag + delivery.stream
        self.raw.xclaim(key, GROUP, "a-dead-worker", 0, [delivery.entry_id], idle=10**8, justid=True)
        self.raw.delete(delivery.partition.reclaim_ticket(delivery.stream))
        answer = await self.world.deliveries.reclaim(stream, "0-0", 10)
        [taken] = [d for d in answer.taken if d.entry_id == delivery.entry_id]
        return taken

    # -- looking

    def queued(self, kind: str = "steps") -> list[StepMessage | WorkflowMessage]:
        """The messages in a stream, delivered or not."""
        return [messages.decode(fields[b"msg"]) for _, fields in self.raw.xrange(self.partition.tag + kind)]

    def delayed(self) -> list[tuple[int, StepMessage | WorkflowMessage]]:
        """(due, message) of what waits in the delayed set."""
        members = self.raw.zrange(self.partition.delayed, 0, -1, withscores=True)
        bodies = [(int(due), self.raw.hget(self.partition.delayed_body, member)) for member, due in members]
        return [(due, messages.decode(body.partition(b"\n")[2])) for due, body in bodies if body]

    def log(self, run_id: str) -> list[Event]:
        """The run's log."""
        return invariants.log_of(self.raw, self.partition, run_id)

    def kinds(self, run_id: str, step_id: str = "") -> list[EventKind]:
        """Kinds of the run's events, or of one step's."""
        return [event.kind for event in self.log(run_id) if not step_id or event.id == step_id]

    def state(self, run_id: str, step_id: str) -> Step:
        """The compact state of a step."""
        return Step.parse(self.raw.hget(self.partition.run(run_id), f"s:{step_id}").decode())

    def claims(self) -> list[str]:
        """How each claim was answered, in order."""
        return [seen.outcome for seen in self.saw(StepClaimed) for _ in seen.steps]

    def paths(self) -> list[str]:
        """Which prologue each step message took."""
        return [seen.path for seen in self.saw(PrologueTaken) for _ in seen.steps]

    # -- what others do

    def terminate(self, run_id: str) -> None:
        """End the run at this very moment, also from inside a body or an observer."""
        text = scripts.load("cancel_run").text
        self.raw.eval(text, 1, self.partition.stats, "", run_id, "terminate", b"\xa0", 60_000)

    async def claimed(self, message: StepMessage) -> ClaimItem:
        """Claim the next step as a consumer that then dies or lingers; what it presented."""
        delivery = await self.take("steps")
        assert delivery is not None
        item = ClaimItem(
            run_id=message.run_id,
            step_id=message.step_id,
            token=self.world.next_token(),
            message_id=message.message_id,
            delivery=delivery,
            attempts_allowed=4,
            may_replay=True,
            step_name=message.step_name,
            input=message.step_input,
        )
        assert (await self.world.deliveries.claim(item)).outcome == "started"
        return item

    async def completed(self, item: ClaimItem, payload: bytes) -> Recorded:
        """Complete a claimed step and do no more."""
        return await self.world.deliveries.complete(
            Completion(
                run_id=item.run_id,
                step_id=item.step_id,
                token=item.token,
                outcome="completed",
                message_id=item.message_id,
                delivery=item.delivery,
                payload=payload,
            )
        )

    def put(self, message: StepMessage | WorkflowMessage, *, kind: str = "steps") -> None:
        """XADD a message as a producer does."""
        clear = {"kind": "step" if isinstance(message, StepMessage) else "workflow", "spec": "1"}
        clear |= {"run": message.run_id}
        if isinstance(message, StepMessage):
            clear |= {"step": message.step_id, "name": message.step_name}
        else:
            clear |= {"name": message.workflow_name, "reason": message.reason}
        self.raw.xadd(self.partition.tag + kind, {**clear, "msg": messages.encode(message)})

    def replace_queued(self, message: StepMessage, *, kind: str = "steps") -> None:
        """Put ``message`` in place of the only, undelivered entry of a stream."""
        [(entry, _)] = self.raw.xrange(self.partition.tag + kind)
        self.raw.xdel(self.partition.tag + kind, entry)
        self.put(message, kind=kind)


def _metrics(app: Workflows) -> Metrics | None:
    try:
        return Metrics(workflows=app.workflows, steps=app.steps)
    except PackageNotFoundError:
        return None


@asynccontextmanager
async def connected(
    url: str, raw: redis.Redis, *, app: Workflows = conf_app.wf, **settings: Any
) -> AsyncIterator[Consumers]:
    """Consumers on an emptied Redis; every script is loaded, so that a call is an EVALSHA and nothing else."""
    for name in scripts.names():
        raw.script_load(scripts.load(name).text)
    conf_app.ran.clear()
    conf_app.during.clear()
    async with World.connect(settings=Settings(url=url, partitions=1, **settings)) as world:
        consumers = Consumers(world, app, raw)
        await world.queue.ensure_groups([consumers.stream("steps"), consumers.stream("workflows")])
        with observing(consumers.observe):
            yield consumers


async def phase_one(consumers: Consumers, run_id: str = "pair") -> StepMessage:
    """A real replay of the two-step fan-out: one step runs inline, the other one is left in the queue."""
    await consumers.world.start(conf_app.pair, run_id=run_id)
    await consumers.wake()
    [message] = consumers.queued()
    assert isinstance(message, StepMessage)
    consumers.seen.clear()
    return message


async def legacy(consumers: Consumers, run_id: str = "pair") -> StepMessage:
    """``phase_one``, but the queued message is one of an older producer: without ``run_context``."""
    message = await phase_one(consumers, run_id)
    consumers.replace_queued(msgspec.structs.replace(message, run_context=None))
    return message


def message_to_come(run_id: str) -> StepMessage:
    """The message of the second step that ``pair`` will ask for: its id follows from the run's."""
    instance = Instance(
        run_id=run_id, workflow=conf_app.pair, input=conf_app.pair.signature.encode_call((), {}), at=1_764_628_800_000
    )
    instance.start()
    _, step = instance.commands().steps
    instance.close()
    return StepMessage(
        message_id=step.id,
        run_id=run_id,
        workflow_name="pair",
        step_id=step.id,
        step_name=step.name,
        step_input=step.input,
        run_context=RunContext("", 1, root_run_id=run_id),
    )


@asynccontextmanager
async def working(consumers: Consumers) -> AsyncIterator[None]:
    """A whole worker on this World, until the context closes."""
    worker = Worker(consumers.world, consumers.app)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        try:
            yield
        finally:
            worker.stop()


_NAMES = {scripts.load(name).sha: name for name in scripts.names()}
_LINE = re.compile(r"^\+\S+ \[\d+ (\S+?)\] (.*)$")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')
_QUIET = {"CLIENT", "HELLO", "SELECT", "PING", "ECHO", "MULTI", "EXEC", "LLEN", "SUBSCRIBE", "UNSUBSCRIBE"}
"""Connections setting themselves up, and what only frames a command that is counted."""


class Calls:
    """What MONITOR saw of the clients; ``lua`` what their scripts did, ``quiet`` what is counted for nobody."""

    def __init__(self) -> None:
        self.clients: list[str] = []
        self.quiet: list[str] = []
        self.lua: list[str] = []

    def __call__(self, *ignored: str) -> list[str]:
        """Script and command names in order, without ``ignored``."""
        return [call for call in self.clients if call not in ignored]


@contextmanager
def monitored(url: str) -> Iterator[Calls]:
    """Listen to Redis itself while the context is open; ``Calls`` is filled when it closes."""
    calls, path = Calls(), url.removeprefix("unix://")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as speaker:
        listener.connect(path)
        speaker.connect(path)
        listener.sendall(b"MONITOR\r\n")
        assert listener.recv(5) == b"+OK\r\n"
        yield calls
        sentinel = uuid.uuid4().hex
        speaker.sendall(f"ECHO {sentinel}\r\n".encode())  # of a client's connection its greeting would be heard
        listener.settimeout(10)
        data = bytearray()
        while sentinel.encode() not in data:
            data += listener.recv(1 << 20)
    for line in bytes(data).decode("latin-1").split("\r\n"):
        if (found := _LINE.match(line)) is None:
            continue
        words = _WORD.findall(found[2])
        name = words[0].upper()
        if found[1] == "lua":
            calls.lua.append(name)
        elif name in ("EVALSHA", "EVAL"):
            calls.clients.append(_NAMES.get(words[1], words[1][:40]))
        else:
            (calls.quiet if name in _QUIET else calls.clients).append(name)
