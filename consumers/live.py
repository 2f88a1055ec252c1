"""What does a worker keep in memory of a run while it replays it?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from consumers.passes import Identity
from redisworld import clock, events
from redisworld.errors import MalformedMessage
from redisworld.events import Event, EventKind
from redisworld.facts import fact
from redisworld.messages import RunContext, StepMessage, WorkflowMessage
from redisworld.replay import Instance
from redisworld.replay.commands import CreateStep
from redisworld.workflows import Workflow
from redisworld.world import Delivery, Loaded, World
from redisworld.world.dispatch import context_of

_EVENTS_PER_TURN = 1_000
"""A long replay lets the worker's loop run after so many events."""


class Live:
    """A body in memory, and what its next commit must know. Close it, whatever happens."""

    def __init__(
        self,
        world: World,
        workflow: Workflow[..., Any],
        identity: Identity,
        data: bytes,
        at: int,
        loaded: Loaded | None = None,
    ) -> None:
        self.identity = identity
        self.replayed_to = 0
        self.created_at = at
        self.started_at: int | None = None
        """Body time of a first pass, which its commit writes."""
        self.events = 0
        """Given to the body by this pass."""
        self.began = clock.monotonic()
        """When this pass did."""
        self._last: bytes | None = None
        self._world = world
        self.instance = Instance(
            run_id=identity.run_id, workflow=workflow, input=data, at=at, max_payload=world.settings.max_payload
        )
        if loaded is not None:
            self.instance.learn(passed_to=loaded.passed_to, patches=loaded.patches)
        self.instance.start()

    @classmethod
    def first_pass(
        cls, world: World, delivery: Delivery, message: WorkflowMessage, workflow: Workflow[..., Any]
    ) -> Live | None:
        """The body from the start message alone: nothing is read, and the commit starts the run.

        None where the message does not say when it was published, or carries no input.
        """
        published, given = delivery.number("at"), message.run_input
        if given is None or not published:
            return None
        context = RunContext(given.deployment_id, given.spec_version, root_run_id=given.root_run_id or message.run_id)
        at = max(published, world.now_ms())
        identity = Identity(
            run_id=message.run_id, workflow=workflow.name, context=context, trace_carrier=message.trace_carrier
        )
        live = cls(world, workflow, identity, given.input, at)
        live.started_at, live.created_at = at, published
        live.instance.deliver(Event(EventKind.RUN_CREATED, "", 0, published, workflow.name, b""))
        return live

    @classmethod
    def cold(
        cls, world: World, message: StepMessage | WorkflowMessage, workflow: Workflow[..., Any], loaded: Loaded
    ) -> Live:
        """The body at its beginning; ``feed`` it the whole log. Raises MalformedMessage for a log that is none."""
        if not loaded.elements:
            raise MalformedMessage(f"the log of run {message.run_id!r} is empty")
        created = events.parse(loaded.elements[0])
        given = events.run_created(created)
        identity = Identity(
            run_id=message.run_id,
            workflow=workflow.name,
            context=context_of(message.run_id, loaded),
            trace_carrier=given.carrier or message.trace_carrier,
        )
        # the body's time begins when the run starts, not when it was created: it may have waited for a worker
        live = cls(world, workflow, identity, given.input, loaded.started_at or created.at, loaded)
        live.created_at = created.at
        return live

    @property
    def load_from(self) -> int:
        """Index of the log element to load from: the last one seen comes again, to be compared."""
        return self.instance.consumed - (self._last is not None)

    def continues(self, loaded: Loaded) -> bool:
        """Whether the log still begins with what the body has seen: a failover or a lost AOF tail makes it another."""
        if loaded.replayed_to < self.replayed_to or loaded.length < self.instance.consumed:
            return False
        return self._last is None or loaded.elements[:1] == (self._last,)

    def committed(self) -> None:
        """The store holds what the body has asked for so far."""
        self.instance.committed()
        self.replayed_to = self.instance.consumed
        self.events = 0

    def created_inline(self, step: CreateStep, at: int, *, run_started_at: int | None) -> None:
        """A commit has written what this body asked for: this step, which has started, and nothing else.

        ``run_started_at``: the start of the run that a first pass has written with it.
        """
        elements = [
            f"step_created {step.id} - {at} {step.name}\n".encode() + step.input,
            f"step_started {step.id} 1 {at}\n".encode(),
        ]
        if run_started_at is not None:
            elements.insert(0, f"run_started - - {run_started_at}\n".encode())
            context = msgspec.structs.replace(self.identity.context, started_at=run_started_at)
            self.identity = msgspec.structs.replace(self.identity, context=context)
        self._deliver(elements)

    def ended_inline(self, step_id: str, outcome: str, at: int, payload: bytes) -> None:
        """That step has ended; the next commit writes the event that the body sees here, and a new pass begins."""
        self.began = clock.monotonic()
        self._deliver([f"step_{outcome} {step_id} 1 {at}\n".encode() + payload])

    def _deliver(self, elements: Sequence[bytes]) -> None:
        self.instance.show(elements)
        self._last = elements[-1]
        self.events += len(elements)

    async def feed(self, loaded: Loaded) -> None:
        """Deliver the loaded elements, and the pages after them, in log order. Raises ReplayDivergence."""
        self.replayed_to = loaded.replayed_to
        if self._last is not None:  # warm: the body has waited since the last pass
            self.began = clock.monotonic()
        self.instance.learn(passed_to=loaded.passed_to, patches=loaded.patches)
        if self.identity.context.started_at is None:
            context = context_of(self.identity.run_id, loaded)
            self.identity = msgspec.structs.replace(self.identity, context=context)
        elements: Sequence[bytes] = loaded.elements[self._last is not None :]
        while elements:
            for start in range(0, len(elements), _EVENTS_PER_TURN):
                if start:
                    await asyncio.sleep(0)
                self._go_on(elements[start : start + _EVENTS_PER_TURN])
            if self.instance.consumed >= loaded.length:
                return
            elements = await self._world.log(self.identity.run_id, self.instance.consumed)

    def _go_on(self, elements: Sequence[bytes]) -> None:
        before = self.replayed_to - self.instance.consumed
        if 0 < before <= len(elements):
            self._deliver(elements[:before])
            self.instance.passed()
            elements = elements[before:]
        if elements:
            self._deliver(elements)

    def last_step_s(self) -> float | None:
        """From the creation of the run to the end of its last step; None where the body has seen more since."""
        last = None if self._last is None else events.parse(self._last)
        if last is None or last.kind not in (EventKind.STEP_COMPLETED, EventKind.STEP_FAILED):
            return None
        return (last.at - self.created_at) / 1000

    def close(self) -> None:
        """Drop the body where it stands, and tell what failed in it without anybody looking."""
        for trouble in self.instance.unhandled:
            what = trouble.get("exception") or trouble
            run = self.identity
            fact(logging.WARNING, "nobody awaited this in the body", run=run.run_id, workflow=run.workflow, error=what)
        self.instance.close()
