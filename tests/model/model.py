"""What does the store remember, and how do messages travel in it? Design sections 5, 8, 11 in plain Python.

Written from the design and kept naive: nothing here is fast, nothing is counted down. ``steps.py`` and ``passes.py``
say what claims, completions and passes do. An entry is named by its stream and its place in it: ``steps#3``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

TERMINAL = frozenset({"completed", "failed", "cancelled"})
MODES = {"g1": "all", "f1": "fail_fast"}
"""The join groups of the model's workflows, and what their bodies wait for."""

Answer = tuple[str | int | bool | None, ...]
"""The outcome word and its details."""


class Event(msgspec.Struct, frozen=True):
    """One element of a log, without its payload."""

    kind: str
    id: str
    attempt: int
    at: int


class Step(msgspec.Struct, frozen=True):
    """A step. ``message`` and ``entry`` name the delivery that runs it, and are empty when none does."""

    status: str = "pending"
    attempt: int = 0
    uncharged: int = 0
    token: str = ""
    message: str = ""
    entry: str = ""
    group: str = ""
    retry_at: int = 0

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL


class Group(msgspec.Struct, frozen=True):
    """A join group. ``untold``: a step of it has failed since somebody last looked."""

    mode: str = "all"
    sealed: bool = False
    untold: bool = False


class Entry(msgspec.Struct, frozen=True):
    """An entry of a stream. ``holder``: the consumer under which it is pending, ``""`` before its first delivery."""

    name: str
    kind: str
    run: str
    step: str
    message: str
    holder: str = ""
    deliveries: int = 0

    @property
    def stream(self) -> str:
        return self.name.partition("#")[0]


class Delayed(msgspec.Struct, frozen=True):
    """What waits for its time: a wait of a run (kind ``wait``), or a message for a stream."""

    due: int
    kind: str
    run: str
    id: str
    step: str = ""
    stream: str = ""

    @property
    def member(self) -> str:
        return f"{self.kind} {self.run} {self.id}"


class Run(msgspec.Struct):
    """The row of a run and its log."""

    id: str
    status: str = "pending"
    log: list[Event] = []
    floor: int = 0
    """No event comes before this time."""
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    finished_event: int = 0
    code: str = ""
    cancel_requested: int = 0
    woken_at: int = 0
    replayed_to: int = 0
    begun_to: int = 0
    delays: int = 0
    """1 where a wait or a retry was put among the delayed."""
    wake: str = ""
    committed: tuple[str, Answer] = ("", ())
    """Token and answer of the last pass."""
    steps: dict[str, Step] = {}
    groups: dict[str, Group] = {}
    waits: dict[str, tuple[str, int]] = {}
    """State and due time."""
    hooks: dict[str, str] = {}
    tokens: dict[str, str] = {}
    """What claiming and open hooks hold."""
    resumes: dict[str, tuple[int, bytes, str]] = {}
    """Number of the event, payload and token."""
    attributes: dict[str, str] = {}
    attribute_events: dict[str, int] = {}
    owners: dict[str, str] = {}
    """Message id -> the inline step that it owns."""

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def news(self) -> bool:
        """Whether the body has not seen all that it can observe."""
        return self.woken_at > self.replayed_to


class Store:
    """All that the scripts keep in one partition."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.runs: dict[str, Run] = {}
        self.entries: dict[str, Entry] = {}
        self.delayed: dict[str, Delayed] = {}
        self.letters: list[Entry] = []
        self.pointers: dict[str, tuple[str, str, str]] = {}
        """Token -> run and hook that hold it, and the run before."""
        self.releases: dict[str, str] = {}
        self.ceiling = 1_000_000
        """Events that a log may hold."""
        self.counts: Counter[str] = Counter()
        self._published: Counter[str] = Counter()

    # -- events and wakes

    def append(self, run: Run, kind: str, id: str = "", attempt: int = 0, at: int | None = None) -> int:
        """Write an event; its number. Its time is never below the last one's."""
        run.floor = max(run.floor, self.now, at or 0)
        run.log.append(Event(kind, id, attempt, run.floor if at is None else at))
        return len(run.log)

    def observe(self, run: Run, message: str = "", *, may_take: bool = False) -> str:
        """The body can see the last event: who sees to that. responsible, woken or settled."""
        run.woken_at = len(run.log)
        if run.wake:
            return "responsible" if may_take and run.wake == message else "settled"
        if may_take:
            run.wake = message
            return "responsible"
        self.publish_wake(run)
        return "woken"

    def publish_wake(self, run: Run) -> None:
        run.wake = f"w{len(run.log)}"
        self.publish("workflows", "workflow", run.id, message=run.wake)
        self.counts["wakes"] += 1

    # -- streams

    def publish(self, stream: str, kind: str, run: str, *, step: str = "", message: str = "") -> None:
        self._published[stream] += 1
        name = f"{stream}#{self._published[stream]}"
        self.entries[name] = Entry(name, kind, run, step, message)

    def holds(self, consumer: str, entry: str) -> bool:
        return entry in self.entries and self.entries[entry].holder == consumer

    def settle(self, consumer: str, entry: str) -> bool:
        """Acknowledge and delete a delivery; only its holder may."""
        if not self.holds(consumer, entry):
            return False
        del self.entries[entry]
        return True

    def undelivered(self, stream: str) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.stream == stream and not entry.holder]

    def deliver(self, consumer: str, stream: str, most: int) -> list[Entry]:
        """A consumer reads the next entries of a stream."""
        return [self.take(consumer, entry.name) for entry in self.undelivered(stream)[:most]]

    def take(self, consumer: str, name: str) -> Entry:
        """An entry is delivered (again): whoever had it has lost its lease."""
        entry = self.entries[name]
        taken = msgspec.structs.replace(entry, holder=consumer, deliveries=entry.deliveries + 1)
        self.entries[name] = taken
        return taken

    def living(self, run_id: str) -> Iterator[tuple[str, str]]:
        """Message and step ids of all messages of a run that somebody will still see; dead letters can be redriven."""
        for entry in [*self.entries.values(), *self.letters]:
            if entry.run == run_id:
                yield entry.message, entry.step
        for delayed in self.delayed.values():
            if delayed.run == run_id and delayed.kind != "wait":
                yield delayed.id, delayed.step

    # -- what happens to deliveries

    def move(self, consumer: str, entry: str, to: Entry, delay_ms: int) -> Answer:
        """Hand a delivery back as another message; a run that waits for the old one waits for the new one."""
        if not self.holds(consumer, entry):
            return (False,)
        old = self.entries.pop(entry)
        if delay_ms:
            self.delay(Delayed(self.now + delay_ms, to.kind, to.run, to.message, to.step, to.stream))
        else:
            self.publish(to.stream, to.kind, to.run, step=to.step, message=to.message)
        run = self.runs.get(old.run)
        if run is not None and old.message != to.message:
            if run.wake == old.message:
                run.wake = to.message
            if owned := run.owners.pop(old.message, ""):
                run.owners[to.message] = owned
                run.steps[owned] = msgspec.structs.replace(run.steps[owned], message=to.message)
        self.counts["messages_moved"] += 1
        return (True,)

    def bury(self, consumer: str, entry: str, code: str) -> Answer:
        """Move a delivery to the dead letters; with a code its run fails."""
        if not self.holds(consumer, entry):
            return (False,)
        letter = self.entries.pop(entry)
        self.letters.append(letter)
        self.counts["buried"] += 1
        run = self.runs.get(letter.run)
        if code and run is not None and not run.terminal:
            self.finish(run, "failed", code)
        return (True,)

    def delay(self, delayed: Delayed) -> None:
        self.delayed[delayed.member] = delayed

    def promote(self) -> Answer:
        """Make what is due happen, in order of due time; ms until the next, then how late each was."""
        due = sorted((d for d in self.delayed.values() if d.due <= self.now), key=lambda d: (d.due, d.member))
        for delayed in due:
            del self.delayed[delayed.member]
            if delayed.kind == "wait":
                run = self.runs.get(delayed.run)
                if run is not None and not run.terminal and run.waits.get(delayed.id, ("",))[0] == "waiting":
                    self.complete_wait(run, delayed.id)
            else:
                self.publish(delayed.stream, delayed.kind, delayed.run, step=delayed.step, message=delayed.id)
        following = min((d.due - self.now for d in self.delayed.values()), default=None)
        return (following, *(self.now - d.due for d in due))

    def complete_wait(self, run: Run, wait: str) -> None:
        self.append(run, "wait_completed", wait)
        run.waits[wait] = ("completed", 0)
        self.counts["waits_completed"] += 1
        self.observe(run)

    # -- the end

    def finish(self, run: Run, status: str, code: str) -> None:
        """End a run; nobody continues it, and its timers go when they are due."""
        run.finished_event = self.append(run, f"run_{status}")
        run.status, run.code, run.finished_at = status, code, run.floor
        run.wake, run.woken_at, run.replayed_to = "", 0, 0
        self.releases |= {f"{run.id} {hook}": token for hook, token in run.tokens.items()}
        run.tokens = {}
        self.counts[f"runs_{status}"] += 1

    def release(self, run: Run, hook: str) -> None:
        """A hook gives its token up; what points at it counts no more, and goes later."""
        if hook in run.tokens:
            self.releases[f"{run.id} {hook}"] = run.tokens.pop(hook)

    def is_full(self, run: Run) -> bool:
        """Whether the log is at its ceiling: then the run ends here and now."""
        if len(run.log) < self.ceiling:
            return False
        self.finish(run, "failed", "MAX_EVENTS_EXCEEDED")
        return True

    def drop_first_message(self, run: Run) -> bool:
        """Of a run that has not begun, where it waits among the delayed; whether it did."""
        return run.status == "pending" and self.delayed.pop(f"workflow {run.id} {run.wake}", None) is not None

    def reap(self, retention_ms: int) -> Answer:
        """Forget the runs that ended so long ago."""
        over = [run.id for run in self.runs.values() if run.terminal and run.finished_at + retention_ms <= self.now]
        for run_id in over:
            run = self.runs.pop(run_id)
            gone = [f"wait {run_id} {wait}" for wait, (state, _) in run.waits.items() if state == "waiting"]
            gone += [f"step {run_id} {id}" for id, step in run.steps.items() if step.status == "pending"]
            for member in gone if run.delays else []:
                self.delayed.pop(member, None)
        if over:
            self.counts["runs_reaped"] += len(over)
        return (len(over),)
