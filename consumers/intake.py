"""What becomes of the deliveries that a read brings? Each is held, worked on in a turn of its own, and let go.

The usual step messages of one read are claimed in one call, before any of them gets a task; their outcomes go out
together with those that end in the same tick, and no task waits for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, TypeVarTuple, Unpack

import anyio
import msgspec

from consumers.attempts import Attempts, Executed
from consumers.handback import bury, bury_poison, leave_for_newer, where
from consumers.leases import LeaseKeeper
from consumers.slots import Slots
from consumers.steps import StepConsumer, Taken
from consumers.workflows import Orchestrator
from redisworld import messages
from redisworld.begun import Begun
from redisworld.errors import MalformedMessage, RedisUnavailable
from redisworld.facts import named
from redisworld.keys import Partition
from redisworld.messages import StepMessage, WorkflowMessage
from redisworld.observe import MessageMoved, MessageRead, observe
from redisworld.settings import SPEC_VERSION
from redisworld.world import MOST_ITEMS, Claim, Delivery, Outgoing, Recorded, World

Ts = TypeVarTuple("Ts")

_SPEC = str(SPEC_VERSION).encode()
_KINDS = frozenset({"step", "workflow", ""})


class Intake:
    """Takes deliveries into work; a context manager that waits for them. ``stopping``: what comes now goes back."""

    def __init__(
        self,
        world: World,
        *,
        steps: StepConsumer,
        orchestrator: Orchestrator,
        attempts: Attempts,
        leases: LeaseKeeper,
        step_slots: Slots,
        replay_slots: Slots,
        stopping: Callable[[], bool],
    ) -> None:
        self._world = world
        self._faults = world.connection.faults
        self._steps = steps
        self._orchestrator = orchestrator
        self._attempts = attempts
        self._leases = leases
        self._step_slots = step_slots
        self._replay_slots = replay_slots
        self._stopping = stopping
        self._work = Begun()
        self._open = 0
        """Deliveries accepted and not let go. One whose outcome is on its way has no task."""
        self._moved = anyio.Event()

    async def __aenter__(self) -> Intake:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until all is let go. After an error, or when that is cancelled, all that goes on is cancelled."""
        try:
            while self._open and error is None:
                self._moved = anyio.Event()
                await self._moved.wait()
        finally:
            if self._open:
                self._work.cancel()
            with anyio.CancelScope(shield=True):
                await self._work.done()

    def accept(self, deliveries: list[Delivery]) -> None:
        """Take deliveries into work; those that this process works on already are only renewed."""
        fresh = self._leases.hold(deliveries)
        self._open += len(fresh)
        firsts: dict[str, int] = {}
        together: dict[Partition, list[Taken]] = {}
        for delivery in fresh:
            if delivery.deliveries == 1:
                kind = delivery.kind
                firsts[kind] = firsts.get(kind, 0) + 1
            slots = self._slots_of(delivery)
            slots.hold()
            taken = self._usual(delivery)
            if taken is not None and slots.enter_now():
                together.setdefault(delivery.partition, []).append(taken)
            else:
                self._work.begin(self._handle(delivery))
        for partition, batch in together.items():
            for start in range(0, len(batch), MOST_ITEMS):
                self._work.begin(self._claim(partition, batch[start : start + MOST_ITEMS]))
        for kind, count in firsts.items():
            observe(MessageRead(kind, "first", count))

    def _slots_of(self, delivery: Delivery) -> Slots:
        return self._step_slots if delivery.is_step else self._replay_slots

    # -- the steps of one read

    def _usual(self, delivery: Delivery) -> Taken | None:
        """A step message that can be claimed at once; None where something is to be looked at before."""
        fields = delivery.fields
        if delivery.deliveries > 1 or not delivery.is_step or fields.get("spec") != _SPEC or self._stopping():
            return None
        try:
            message = messages.decode(fields.get("msg", b""))
        except MalformedMessage:
            return None
        return self._steps.usual(delivery, message) if isinstance(message, StepMessage) else None

    async def _claim(self, partition: Partition, batch: list[Taken]) -> None:
        """Claim steps in one call; each that has its answer is then a task of its own."""
        ours = []
        for taken in batch:
            if self._leases.engage(taken.delivery):
                ours.append(taken)
            else:
                self._let_go(taken.delivery)
        try:
            claims = await self._steps.claim_together(partition, ours)
        except BaseException as error:
            for taken in ours:
                if isinstance(error, Exception):
                    await self._failed(taken.delivery, error)
                self._let_go(taken.delivery)
            if not isinstance(error, Exception):
                raise
        else:
            for taken, claim in zip(ours, claims, strict=True):
                self._work.begin(self._execute(taken, claim))

    async def _execute(self, taken: Taken, claim: Claim) -> None:
        """Work on a claimed step until its outcome is on its way to Redis."""
        executed = None
        try:
            executed = await self._steps.execute(taken, claim)
        except Exception as error:
            await self._failed(taken.delivery, error)
        finally:
            if executed is None:
                self._let_go(taken.delivery)
        if executed is not None:
            self._world.deliveries.complete_then(executed.completion, partial(self._recorded, taken, executed))

    def _recorded(self, taken: Taken, executed: Executed, answer: Recorded | BaseException) -> None:
        """Redis has taken the outcome of a step, or it is not known to have."""
        if isinstance(answer, Exception):
            self._work.begin(self._in_turn(taken.delivery, self._steps.finish, taken, executed))
            return
        if isinstance(answer, Recorded):
            self._attempts.ended(executed, answer.outcome)
            if answer.detail == "responsible":
                self._work.begin(self._in_turn(taken.delivery, self._steps.continue_run, taken))
                return
            if answer.outcome == "broken":
                self._work.begin(self._in_turn(taken.delivery, self._attempts.bury, executed, answer))
                return
        self._let_go(taken.delivery)

    # -- one delivery

    async def _handle(self, delivery: Delivery) -> None:
        """Process a delivery by itself, in its turn."""
        entered = False
        try:
            await self._slots_of(delivery).enter()
            entered = True
        finally:
            if not entered:
                self._let_go(delivery, entered=False)
        if self._leases.engage(delivery):
            await self._in_turn(delivery, self._process, delivery)
        else:
            self._let_go(delivery)

    async def _in_turn(
        self, delivery: Delivery, work: Callable[[Unpack[Ts]], Coroutine[Any, Any, None]], *args: *Ts
    ) -> None:
        """Do the work of a delivery to its end, and let it go, whatever comes."""
        try:
            await work(*args)
        except Exception as error:
            await self._failed(delivery, error)
        finally:
            self._let_go(delivery)

    def _let_go(self, delivery: Delivery, *, entered: bool = True) -> None:
        slots = self._slots_of(delivery)
        if entered:
            slots.leave()
        self._leases.release(delivery)
        slots.release()
        self._open -= 1
        if not self._open:
            self._moved.set()

    async def _failed(self, delivery: Delivery, error: Exception) -> None:
        """The top of a loop: one bad delivery must not end the worker."""
        if isinstance(error, RedisUnavailable):
            self._faults.warn("redis", "delivery left for its lease to end", where(delivery), error=error)
        elif isinstance(error, MalformedMessage):
            await self._bury_malformed(delivery, error)
        else:
            fault, what = f"delivery {type(error).__name__}", "delivery failed, it comes back after its lease"
            self._faults.warn(fault, what, where(delivery), level=logging.ERROR, trace=error, error=named(error))

    async def _bury_malformed(self, delivery: Delivery, error: MalformedMessage) -> None:
        try:
            await bury(self._world, delivery, run_id=delivery.text("run"), reason=_reason(delivery), detail=str(error))
        except (RedisUnavailable, MalformedMessage) as outage:
            self._faults.warn("redis", "not buried yet", where(delivery), error=outage)

    async def _process(self, delivery: Delivery) -> None:
        if await bury_poison(self._world, delivery):
            return
        newer = delivery.fields.get("spec") != _SPEC and delivery.number("spec") > SPEC_VERSION
        if newer or delivery.text("kind") not in _KINDS:
            await leave_for_newer(self._world, delivery)
            return
        message = messages.decode(delivery.fields.get("msg", b""))
        if self._stopping():
            await self._hand_back(delivery, message)
        elif isinstance(message, StepMessage):
            await self._steps.process(delivery, message)
        else:
            await self._orchestrator.process(delivery, message)

    async def _hand_back(self, delivery: Delivery, message: StepMessage | WorkflowMessage) -> None:
        """A delivery that came while draining goes back at once; nothing of it has started."""
        again = Outgoing.of(msgspec.structs.replace(message, deliveries=message.deliveries + delivery.deliveries))
        await self._world.deliveries.move(delivery, again, old_id=message.message_id, target=delivery.stream)
        observe(MessageMoved(delivery.kind, "drain"))


def _reason(delivery: Delivery) -> str:
    """Whether the message is to blame, or what Redis holds of its run: that parks the run."""
    try:
        messages.decode(delivery.fields.get("msg", b""))
    except MalformedMessage:
        return "undecodable"
    return "broken"
