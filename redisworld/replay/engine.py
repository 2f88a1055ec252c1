"""How does a run's log drive its body, and what does the body ask for in return? (design section 10)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, Protocol

from redisworld import failures, values
from redisworld.errors import ForbiddenInWorkflow, InvalidInput, RedisworldError, ReplayDivergence
from redisworld.events import Event, EventKind, parse
from redisworld.metadata import WorkflowInfo, current_workflow
from redisworld.packing import in_short
from redisworld.replay.attributes import AskedAttributes
from redisworld.replay.body import Body
from redisworld.replay.calls import StepCall
from redisworld.replay.commands import (
    UNOBSERVED,
    Assign,
    Cancelled,
    CancelWait,
    Completed,
    CreateStep,
    DisposeHook,
    Failed,
    Outcome,
    Pass,
    SealGroup,
)
from redisworld.replay.hooks import AskedHook
from redisworld.replay.ledger import AskedWait
from redisworld.values import Signature

USER_ERROR = "USER_ERROR"


class WorkflowLike(Protocol):
    """What the engine needs to know of a registered workflow."""

    @property
    def name(self) -> str: ...
    @property
    def func(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...
    @property
    def signature(self) -> Signature: ...


class Instance:
    """One run's body in memory, moved on by the events of its log.

    Feed it the log in order, one event at a time; between events it is suspended and holds no resources but memory.
    The same events give the same commands in every process. ``learn`` what the row says before it starts, and before
    new events. ``close`` it when it is dropped.
    """

    def __init__(
        self, *, run_id: str, workflow: WorkflowLike, input: bytes, at: int, max_payload: int | None = None
    ) -> None:
        self.outcome: Outcome | None = None
        """How the body ended, None while it goes on."""
        self._workflow = workflow
        self._input = input
        self._body = Body(run_id, at=at, max_payload=max_payload)
        self._max_payload = max_payload
        self._main: asyncio.Task[Any] | None = None
        self._cancel_requested = False

    @property
    def consumed(self) -> int:
        """Events delivered so far."""
        return self._body.consumed

    @property
    def now_ms(self) -> int:
        """Body time in epoch milliseconds."""
        return self._body.loop.now_ms

    @property
    def unhandled(self) -> list[dict[str, Any]]:
        """What asyncio would have logged: exceptions of tasks and callbacks that nobody awaited. For logs."""
        return list(self._body.loop.unhandled)

    def passed(self) -> None:
        """The last committed pass had consumed this much of the log, so the store holds its join groups.

        What it asked for is further on in the log. Not so if it ran other code: that is in the log nowhere, and stays
        among the commands, or the run would wait for ever for what nobody has been asked for.
        """
        self._body.groups.committed()

    def learn(self, *, passed_to: int, patches: Iterable[str]) -> None:
        """What the row says that ``patched`` decides by; without it nobody has been where this body goes."""
        self._body.patches.learn(passed_to, patches)

    def start(self) -> None:
        """Run the body's first piece, at the body time given."""
        with self._body.loop.running():
            self._start()

    def _start(self) -> None:
        loop = self._body.loop
        try:
            args, kwargs = loop.inside(loop.now_ms, self._workflow.signature.decode_call, self._input)
        except (InvalidInput, ForbiddenInWorkflow) as error:
            self._end(Failed(failures.describe(error, code=USER_ERROR)))
            return
        # An empty context: what the worker has in its own must not reach the body, where no replay would have it.
        context = Context()
        started_at = datetime.fromtimestamp(loop.now_ms / 1_000, UTC)
        context.run(current_workflow.set, WorkflowInfo(self._body.run_id, self._workflow.name, started_at))
        self._main = loop.start(self._workflow.func(*args, **kwargs), context)
        self._run(loop.now_ms)

    def show(self, elements: Iterable[bytes]) -> None:
        """Deliver the next elements of the log. Raises MalformedMessage for one that is none, and as ``deliver``."""
        body = self._body
        with body.loop.running():
            for element in elements:
                if element.startswith(_HEADERS_PASSED_OVER):
                    body.consumed += 1  # most of a fan-out's log: its steps have started
                else:
                    self.deliver(parse(element))

    def deliver(self, event: Event) -> None:
        """Show the body the next event of the log. Raises ReplayDivergence; the instance is of no use then."""
        self._body.consumed += 1
        if event.kind in _PASSED_OVER:
            return
        take = _TAKE.get(event.kind)
        if take is None:
            raise self._body.ledger.divergence(event)
        take(self, event)

    def commands(self) -> Pass:
        """What the body asked for that the log does not hold yet. Asking again gives the same."""
        ledger, groups = self._body.ledger, self._body.groups
        asked = sorted(ledger.unrecorded.values(), key=_number)
        steps = [item for item in asked if type(item) is StepCall]
        others = [item for item in asked if type(item) is not StepCall]
        groups.unknown(steps)
        changes = [] if self.outcome else groups.settle()
        assigned = dict.fromkeys([group for _, group in changes])
        return Pass(
            steps=[self._create(item) for item in steps],
            waits=[item.command() for item in others if isinstance(item, AskedWait) and item.timer is not None],
            cancelled_waits=[CancelWait(id) for id in ledger.to_cancel],
            hooks=[] if self.outcome else [item.command() for item in others if isinstance(item, AskedHook)],
            disposed_hooks=[] if self.outcome else [DisposeHook(id) for id in ledger.to_dispose],
            groups=[SealGroup(group, mode) for group in assigned if (mode := groups.mode(group)) is not None],
            assigns=[Assign(call.id, group) for call, group in changes if call.id not in ledger.unrecorded],
            outcome=self.outcome,
            patches=tuple(self._body.patches.unrecorded),
            attributes=tuple(item.command() for item in others if isinstance(item, AskedAttributes)),
        )

    def committed(self) -> None:
        """The store holds what ``commands`` lists now."""
        self._body.groups.committed()
        self._body.ledger.committed()
        self._body.patches.committed()

    def open_steps(self) -> dict[str, str]:
        """Names of the steps asked for and not completed in this view, by id."""
        return {id: call.step.name for id, call in self._body.ledger.open_steps.items()}

    def waits_only_for(self, step_id: str) -> bool:
        """Whether nothing but the end of this step, or a cancel request, can move the body."""
        ledger = self._body.ledger
        return ledger.open_steps.keys() == {step_id} and not ledger.open_waits and not ledger.open_hooks

    def open_waits(self) -> dict[str, int]:
        """Due times (epoch milliseconds) of the waits the body waits for, by id."""
        return {id: wait.due_ms for id, wait in self._body.ledger.open_waits.items()}

    def unrecorded(self) -> dict[str, str]:
        """What the body asked for that the log does not hold, by id."""
        asked = sorted(self._body.ledger.unrecorded.items(), key=lambda item: item[1].number)
        return {id: str(item) for id, item in asked if not (isinstance(item, AskedWait) and item.timer is None)}

    def close(self) -> None:
        """Drop the instance. Synchronous clean-up of the body still runs; nothing it awaits or asks for does."""
        self._body.loop.drop()

    def _create(self, call: StepCall[Any]) -> CreateStep:
        group = UNOBSERVED if self.outcome else self._body.groups.assignment(call)
        return CreateStep(call.id, call.step.name, call.input, group, call.step.queue)

    def _take_step_created(self, event: Event) -> None:
        call, logged = self._body.ledger.step(event), event.payload
        if call.input != logged and not call.step.signature.same_call(logged, call.input):
            # Under one id and name, a result must not go to another call: a fan-out over a set looks like this.
            raise ReplayDivergence(
                f"the log has step_created {event.id} {event.detail!r} with arguments {shown(event.payload)}, "
                f"the code asked for it with {shown(call.input)}"
            )
        self._body.ledger.recorded(event.id)

    def _take_step_result(self, event: Event) -> None:
        ledger = self._body.ledger
        call = ledger.step(event)
        ledger.recorded(event.id)
        if ledger.open_steps.pop(event.id, None) is None:
            return
        self._body.groups.closed(call)
        future = call.future
        if self.outcome or future.done():
            return
        call.delivered = True
        try:
            if event.kind is EventKind.STEP_FAILED:
                future.set_exception(failures.rebuild(failures.decode(event.payload)))
            else:
                future.set_result(self._result_of(call, event))
        except RedisworldError as error:  # the recorded bytes do not fit this code: the body's to catch
            future.set_exception(error)
        self._run(event.at)

    def _result_of(self, call: StepCall[Any], event: Event) -> Any:
        signature = call.step.signature
        if signature.result_is_plain:
            return signature.decode_result(event.payload)
        return self._body.loop.inside(event.at, signature.decode_result, event.payload)  # default_factory=uuid4

    def _take_attr_set(self, event: Event) -> None:
        if self._body.asked_by_body("a", event.id):
            self._body.ledger.recorded(self._body.ledger.attributes(event).id)
        else:
            self._body.attributes.others_set(event.payload)

    def _take_wait_created(self, event: Event) -> None:
        self._body.ledger.wait(event)
        self._body.ledger.recorded(event.id)

    def _take_wait_completed(self, event: Event) -> None:
        wait = self._body.ledger.wait(event)
        timer, wait.timer = wait.timer, None
        self._body.ledger.settled_wait(event.id)
        if timer is not None:
            self._body.loop.fire(timer)
            self._run(event.at)

    def _take_wait_cancelled(self, event: Event) -> None:
        if self._body.ledger.wait(event).timer is not None:
            raise self._body.ledger.divergence(event)
        self._body.ledger.settled_wait(event.id)

    def _take_hook_created(self, event: Event) -> None:
        self._take_hook_decision(event, "")

    def _take_hook_conflict(self, event: Event) -> None:
        self._body.ledger.to_dispose.pop(event.id, None)
        self._take_hook_decision(event, event.detail)

    def _take_hook_decision(self, event: Event, holder: str) -> None:
        asked = self._body.ledger.hook(event)
        self._body.ledger.recorded(event.id)
        asked.decided(holder)
        if self.outcome is None:
            self._run(event.at)

    def _take_hook_received(self, event: Event) -> None:
        asked = self._body.ledger.hook(event)
        if self.outcome is None:
            asked.received(event.payload)
            self._run(event.at)

    def _take_hook_disposed(self, event: Event) -> None:
        if not self._body.ledger.hook(event).disposed:
            raise self._body.ledger.divergence(event)
        self._body.ledger.to_dispose.pop(event.id, None)

    def _take_cancel_request(self, event: Event) -> None:
        if self._main is not None and self.outcome is None and not self._cancel_requested:
            self._cancel_requested = True
            self._main.cancel()
            self._run(event.at)

    def _run(self, at: int) -> None:
        loop = self._body.loop
        loop.now_ms = max(loop.now_ms, at)
        try:
            loop.run_dry()
        except ForbiddenInWorkflow as error:
            self._end(Failed(failures.describe(error, code=USER_ERROR)))
        else:
            if self._main is not None and self._main.done():
                self._end(self._outcome_of(self._main))

    def _end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        for id in list(self._body.ledger.open_waits):
            self._body.ledger.drop_wait(id)

    def _outcome_of(self, main: asyncio.Task[Any]) -> Outcome:
        if main.cancelled():
            if self._cancel_requested:
                return Cancelled()
            error: BaseException | None = asyncio.CancelledError("the body cancelled itself, nobody asked for it")
        else:
            error = main.exception()
        if error is None:
            try:
                return Completed(self._body.loop.inside(self.now_ms, self._encode_result, main.result()))
            except (InvalidInput, ForbiddenInWorkflow) as refused:
                error = refused
        return Failed(failures.describe(error, code=USER_ERROR))

    def _encode_result(self, result: Any) -> bytes:
        return self._workflow.signature.encode_result(result, max_bytes=self._max_payload)


_number: Final = attrgetter("number")


def shown(data: bytes) -> str:
    """A payload for people."""
    try:
        return in_short(values.decode(data), 200)
    except RedisworldError:
        return f"{data!r:.200}"


_PASSED_OVER: Final = frozenset(
    {
        EventKind.RUN_CREATED,
        EventKind.RUN_STARTED,
        EventKind.RUN_COMPLETED,
        EventKind.RUN_FAILED,
        EventKind.RUN_CANCELLED,
        EventKind.PATCHED,
        EventKind.STEP_STARTED,
        EventKind.STEP_RETRYING,
    }
)
"""Kinds the body neither asks for by id nor observes."""

_HEADERS_PASSED_OVER: Final = (f"{EventKind.STEP_STARTED} ".encode(), f"{EventKind.STEP_RETRYING} ".encode())

_TAKE: Final[dict[EventKind, Callable[[Instance, Event], None]]] = {
    EventKind.ATTR_SET: Instance._take_attr_set,
    EventKind.STEP_CREATED: Instance._take_step_created,
    EventKind.STEP_COMPLETED: Instance._take_step_result,
    EventKind.STEP_FAILED: Instance._take_step_result,
    EventKind.WAIT_CREATED: Instance._take_wait_created,
    EventKind.WAIT_COMPLETED: Instance._take_wait_completed,
    EventKind.WAIT_CANCELLED: Instance._take_wait_cancelled,
    EventKind.HOOK_CREATED: Instance._take_hook_created,
    EventKind.HOOK_CONFLICT: Instance._take_hook_conflict,
    EventKind.HOOK_RECEIVED: Instance._take_hook_received,
    EventKind.HOOK_DISPOSED: Instance._take_hook_disposed,
    EventKind.CANCEL_REQUESTED: Instance._take_cancel_request,
}
