"""How does a body run to its end without Redis? A store in memory that plays by the rules of design section 8."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from redisworld import attributes, failures, values
from redisworld.events import Event, EventKind, RunCreated
from redisworld.replay import Completed, Failed, Instance, Pass
from redisworld.replay.check import Verdict, check
from redisworld.runs import RunRow, Status
from redisworld.workflows import Workflow

START = 1_764_628_800_000

Script = Callable[..., Any]
"""What a step gives: called with its name and arguments; an exception returned is a failure."""


class Store:
    """The log, the open steps with their groups, the open waits, and whether the run has been woken."""

    tick_ms = 7
    """What an event takes."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.open: dict[str, tuple[str, bytes]] = {}
        self.groups: dict[str, str] = {}
        self.modes: dict[str, str] = {}
        self.waits: dict[str, int] = {}
        self.hooks: dict[str, str] = {}
        self.taken: dict[str, str] = {}
        """Tokens that hooks of other runs hold."""
        self.woken = False
        self.passes: list[tuple[int, Pass]] = []
        """What each pass had consumed and asked for."""
        self.clock = START
        self.passed_to = 0
        """What the last pass had consumed."""
        self.patches: list[str] = []
        self.attributes: dict[str, str] = {}

    def commit(self, asked: Pass, consumed: int) -> None:
        self.passes.append((consumed, asked))
        # An event that came between load and commit is beyond what the pass consumed: the run goes on.
        self.woken = any(event.kind in OBSERVABLE for event in self.log[consumed:])
        self.passed_to = consumed
        for name in asked.patches:
            self.patches.append(name)
            self.append(EventKind.PATCHED, name)
        for change in asked.attributes:
            self.append(EventKind.ATTR_SET, change.id, payload=attributes.encode(change.changes))
            self.attributes = attributes.merge(self.attributes, change.changes)
        for step in asked.steps:
            self.open[step.id] = (step.name, step.input)
            self.groups[step.id] = step.group
            self.append(EventKind.STEP_CREATED, step.id, step.name, step.input)
        for wait in asked.waits:
            self.waits[wait.id] = wait.due_ms
            self.append(EventKind.WAIT_CREATED, wait.id, str(wait.due_ms))
        for cancelled in asked.cancelled_waits:
            if self.waits.pop(cancelled.id, None) is not None:
                self.append(EventKind.WAIT_CANCELLED, cancelled.id)
        for hook in asked.hooks:
            if holder := self.taken.get(hook.token):
                self.append(EventKind.HOOK_CONFLICT, hook.id, holder)
            else:
                self.hooks[hook.id] = hook.token
                self.append(EventKind.HOOK_CREATED, hook.id, hook.token, hook.metadata)
            self.woken = self.woken or bool(holder) or hook.awaited
        for disposed in asked.disposed_hooks:
            if self.hooks.pop(disposed.id, None) is not None:
                self.append(EventKind.HOOK_DISPOSED, disposed.id)
        for assign in asked.assigns:
            self.groups[assign.step_id] = assign.group
        self.modes |= {group.id: group.mode for group in asked.groups}

    def append(self, kind: EventKind, id: str = "", detail: str = "", payload: bytes = b"") -> None:
        self.clock += self.tick_ms
        self.log.append(Event(kind, id, 0, self.clock, detail, payload))

    def complete(self, id: str, outcome: Any) -> None:
        failed = isinstance(outcome, BaseException)
        del self.open[id]
        if failed:
            self.append(EventKind.STEP_FAILED, id, payload=failures.encode(failures.describe(outcome)))
        else:
            self.append(EventKind.STEP_COMPLETED, id, payload=values.encode(outcome))
        group = self.groups[id]
        last = not any(self.groups[other] == group for other in self.open)
        if group == "" or (group != "-" and (last or (failed and self.modes[group] == "fail_fast"))):
            self.woken = True

    def fire(self, id: str) -> None:
        self.clock = max(self.clock, self.waits.pop(id))
        self.append(EventKind.WAIT_COMPLETED, id)
        self.woken = True

    def resume(self, token: str, payload: Any) -> None:
        [id] = [id for id, held in self.hooks.items() if held == token]
        self.append(EventKind.HOOK_RECEIVED, id, "k1", values.encode_foreign(payload))
        self.woken = True

    def set_attributes(self, id: str = "", **changes: str | None) -> None:
        """A step or somebody outside sets attributes; nobody is woken."""
        self.append(EventKind.ATTR_SET, id, payload=attributes.encode(changes))
        self.attributes = attributes.merge(self.attributes, changes)

    def cancel(self) -> None:
        self.append(EventKind.CANCEL_REQUESTED)
        self.woken = True


OBSERVABLE = {
    EventKind.STEP_COMPLETED,
    EventKind.STEP_FAILED,
    EventKind.WAIT_COMPLETED,
    EventKind.HOOK_RECEIVED,
    EventKind.CANCEL_REQUESTED,
}


def echo(name: str, *args: Any) -> str:
    """The default script: a step gives its name and arguments."""
    return ":".join([name, *map(str, args)])


class Driver:
    """Runs one workflow warm against a Store; ``choose`` picks among open steps and waits (default: the first)."""

    def __init__(
        self,
        workflow: Workflow[..., Any],
        *args: Any,
        script: Script = echo,
        run_id: str = "run-1",
        taken: dict[str, str] | None = None,
        created: bool = False,
        store: Store | None = None,
    ) -> None:
        self.workflow = workflow
        self.input = workflow.signature.encode_call(args, {})
        self.script = script
        self.run_id = run_id
        self.store = store or Store()
        if created:
            payload = msgspec.msgpack.encode(RunCreated(input=self.input))
            self.store.log.append(Event(EventKind.RUN_CREATED, "", 0, START, "", payload))
        self.instance = self.new_instance()
        self.instance.start()
        self.store.taken |= taken or {}
        self.step_once()
        self.follow()

    def new_instance(self) -> Instance:
        return Instance(run_id=self.run_id, workflow=self.workflow, input=self.input, at=START)

    def step_once(self, between: Callable[[], None] = lambda: None) -> Pass:
        """One pass: deliver what is new, commit what is asked; ``between`` happens before the commit."""
        self.instance.learn(passed_to=self.store.passed_to, patches=self.store.patches)
        for event in self.store.log[self.instance.consumed :]:
            self.instance.deliver(event)
        asked = self.instance.commands()
        between()
        self.store.commit(asked, self.instance.consumed)
        self.instance.committed()
        return asked

    def finish(self, id: str) -> None:
        """Let one open step or wait end; continue if that woke the run."""
        self.end(id)
        self.follow()

    def resume(self, token: str, payload: Any) -> None:
        """Hand a payload to an open hook, and continue."""
        self.store.resume(token, payload)
        self.follow()

    def follow(self) -> None:
        """Passes as long as something wakes the run."""
        while self.store.woken and self.instance.outcome is None:
            self.step_once()

    def end(self, id: str) -> None:
        """Complete one open step by the script, or fire one open wait."""
        if id in self.store.waits:
            self.store.fire(id)
        else:
            name, data = self.store.open[id]
            self.store.complete(id, self.script(name, *values.decode(data).values()))

    def named(self, name: str) -> list[str]:
        """Ids of the open steps of one name, in the order asked for."""
        return [id for id, (step, _) in self.store.open.items() if step == name]

    def run(self, choose: Callable[[int], int] = lambda count: 0) -> Any:
        """Run to the end. The result, or the ErrorInfo, or None when cancelled. Fails when the run is stuck."""
        while self.instance.outcome is None:
            candidates = [*self.store.open, *self.store.waits]
            assert candidates, "the run is stuck: nothing is open and nothing woke it"
            self.finish(candidates[choose(len(candidates))])
        outcome = self.instance.outcome
        if isinstance(outcome, Completed):
            return self.workflow.signature.decode_result(outcome.result)
        return outcome.error if isinstance(outcome, Failed) else None

    def deploy(self, body: Callable[..., Any]) -> int:
        """Other code takes over, from the start of the log; the length of the log then."""
        self.instance.close()
        self.workflow = Workflow(body)
        passed_to = self.store.passed_to
        self.instance = self.cold(passed_to, None, passed_to)
        self.instance.passed()
        return len(self.store.log)

    async def checked(self) -> Verdict:
        """What the checker says of the run as it is now, with a log in pages of three."""
        log, outcome, ended = [*self.store.log], self.instance.outcome, Status.RUNNING
        if isinstance(outcome, Completed):
            ended = Status.COMPLETED
            log.append(Event(EventKind.RUN_COMPLETED, "", 0, self.store.clock, "", outcome.result))
        elif isinstance(outcome, Failed):
            ended = Status.FAILED
            error = failures.encode(outcome.error)
            log.append(Event(EventKind.RUN_FAILED, "", 0, self.store.clock, "USER_ERROR", error))
        row = RunRow(
            run_id=self.run_id,
            status=ended,
            workflow=self.workflow.name,
            started_at=START,
            replayed_to=0 if ended.terminal else self.store.passed_to,
            patches=tuple(self.store.patches),
            log_length=len(log),
            finished_event=len(log) if ended.terminal else 0,
        )

        async def pages() -> AsyncIterator[list[bytes]]:
            for first in range(0, len(log), 3):
                yield [element(event) for event in log[first : first + 3]]

        return await check(row, self.workflow, pages())

    def check_every_prefix(self, since: int = 0) -> None:
        """Replay the log cold to every prefix: the commands must be those of a warm instance, and of the passes.

        ``since``: the length of the log when this code was deployed.
        """
        commits = {consumed for consumed, _ in self.store.passes}
        before = max((c for c in commits if c < since), default=None)
        warm = self.cold(since, before)
        for length in range(since, len(self.store.log) + 1):
            if length > since:
                before = length - 1 if length - 1 in commits else before
                warm.learn(**self.known(before or 0))
                warm.deliver(self.store.log[length - 1])
            assert warm.commands() == self.asked(length, before), f"cold and warm differ after {length} events"
            if length in commits:
                warm.committed()
        for number, (consumed, asked) in enumerate(self.store.passes):
            if consumed < since:
                continue
            before = self.store.passes[number - 1][0] if number else None
            assert self.asked(consumed, before) == asked, f"pass {number} was not repeated"
        warm.close()

    def asked(self, length: int, committed_at: int | None) -> Pass:
        """What a body asks for that is replayed up to ``length``."""
        instance = self.cold(length, committed_at)
        try:
            return instance.commands()
        finally:
            instance.close()

    def known(self, passed_to: int) -> dict[str, Any]:
        """What the row said when the pass that had consumed so much was the last."""
        if not self.store.patches:
            return {"passed_to": passed_to, "patches": ()}
        patches = [name for consumed, asked in self.store.passes if consumed <= passed_to for name in asked.patches]
        return {"passed_to": passed_to, "patches": patches}

    def cold(self, length: int, committed_at: int | None, passed_to: int | None = None) -> Instance:
        instance = self.new_instance()
        instance.learn(**self.known(committed_at or 0 if passed_to is None else passed_to))
        instance.start()
        for index in range(length + 1):
            if index == committed_at:
                instance.committed()
            if index < length:
                instance.deliver(self.store.log[index])
        return instance


def element(event: Event) -> bytes:
    """The event as an element of the log."""
    header = f"{event.kind} {event.id or '-'} {event.attempt or '-'} {event.at} {event.detail}".rstrip()
    return header.encode() + b"\n" + event.payload
