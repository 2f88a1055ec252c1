"""What has the body asked for, what of it does the log hold, and where do the two disagree?"""

from __future__ import annotations

from typing import Any

from redisworld import attributes
from redisworld.errors import ReplayDivergence
from redisworld.events import Event, EventKind
from redisworld.replay.attributes import AskedAttributes
from redisworld.replay.calls import StepCall
from redisworld.replay.commands import CreateWait
from redisworld.replay.hooks import AskedHook
from redisworld.replay.ids import number_of
from redisworld.replay.loop import DurableTimer


class AskedWait:
    """A durable timer the body asked for. ``timer`` is None when it fired or was dropped."""

    def __init__(self, number: int, id: str, due_ms: int, timer: DurableTimer) -> None:
        self.number = number
        self.id = id
        self.due_ms = due_ms
        self.timer: DurableTimer | None = timer

    def __str__(self) -> str:
        return f"a wait until {self.due_ms}"

    def command(self) -> CreateWait:
        """The command that creates it."""
        return CreateWait(self.id, self.due_ms)


Asked = StepCall[Any] | AskedWait | AskedHook | AskedAttributes


class Ledger:
    """Both sides by correlation id. The parts a pass walks over hold only what is open or not yet recorded."""

    def __init__(self) -> None:
        self._asked: dict[str, Asked] = {}
        self.open_steps: dict[str, StepCall[Any]] = {}
        self.open_waits: dict[str, AskedWait] = {}
        self.open_hooks: dict[str, AskedHook] = {}
        self.unrecorded: dict[str, Asked] = {}
        self.to_cancel: dict[str, None] = {}
        """Recorded waits the body dropped, whose cancellation the log does not hold."""
        self.to_dispose: dict[str, None] = {}
        """Hooks the body disposed of, whose end the log does not hold."""

    def ask_step(self, call: StepCall[Any]) -> None:
        """The body asked for a step."""
        self._asked[call.id] = self.unrecorded[call.id] = self.open_steps[call.id] = call

    def ask_wait(self, asked: AskedWait) -> None:
        """The body asked for a wait."""
        self._asked[asked.id] = self.unrecorded[asked.id] = self.open_waits[asked.id] = asked

    def ask_hook(self, asked: AskedHook) -> None:
        """The body asked for a hook."""
        self._asked[asked.id] = self.unrecorded[asked.id] = self.open_hooks[asked.id] = asked

    def ask_attributes(self, asked: AskedAttributes) -> None:
        """The body set attributes."""
        self._asked[asked.id] = self.unrecorded[asked.id] = asked

    def dispose_hook(self, asked: AskedHook) -> None:
        """The body disposed of a hook. It is recorded all the same: a crashed pass may have claimed its token."""
        self.open_hooks.pop(asked.id, None)
        if not asked.holder:
            self.to_dispose[asked.id] = None

    def drop_wait(self, id: str) -> None:
        """The body dropped an open wait: the log need not hold it, or must hear that it is over."""
        wait = self.open_waits.pop(id)
        if wait.timer is not None:
            wait.timer.wait_id = ""  # whoever cancels it later, as clean-up does, drops nothing
            wait.timer = None
        if id not in self.unrecorded:
            self.to_cancel[id] = None

    def step(self, event: Event) -> StepCall[Any]:
        """The step an event is about. Raises ReplayDivergence when the body did not ask for it."""
        call = self._asked.get(event.id)
        if type(call) is not StepCall or (event.kind is EventKind.STEP_CREATED and event.detail != call.step.name):
            raise self.divergence(event)
        return call

    def wait(self, event: Event) -> AskedWait:
        """The wait an event is about. Raises ReplayDivergence when the body did not ask for it."""
        asked = self._asked.get(event.id)
        if not isinstance(asked, AskedWait):
            raise self.divergence(event)
        return asked

    def hook(self, event: Event) -> AskedHook:
        """The hook an event is about. Raises ReplayDivergence when the body did not ask for it."""
        asked = self._asked.get(event.id)
        if not isinstance(asked, AskedHook) or (event.kind is EventKind.HOOK_CREATED and event.detail != asked.token):
            raise self.divergence(event)
        return asked

    def attributes(self, event: Event) -> AskedAttributes:
        """What set the attributes of an event. Raises ReplayDivergence when the body did not, or set others."""
        asked = self._asked.get(event.id)
        if not isinstance(asked, AskedAttributes):
            raise self.divergence(event)
        if (recorded := attributes.decode(event.payload).changes) != asked.changes:
            raise ReplayDivergence(f"the log has {event.kind} {event.id} {recorded!r:.200}, the code asked for {asked}")
        return asked

    def recorded(self, id: str) -> None:
        """The log holds it."""
        asked = self.unrecorded.pop(id, None)
        if isinstance(asked, AskedWait) and asked.timer is None:
            self.to_cancel[id] = None

    def settled_wait(self, id: str) -> None:
        """The log holds the wait's end."""
        self.unrecorded.pop(id, None)
        self.open_waits.pop(id, None)
        self.to_cancel.pop(id, None)

    def committed(self) -> None:
        """The log holds everything asked for; a wait dropped before it was recorded is in no log."""
        self.unrecorded.clear()
        self.to_cancel.clear()
        self.to_dispose.clear()

    def divergence(self, event: Event) -> ReplayDivergence:
        """The error that names what the log has and what the code asked for in its place."""
        number = number_of(event.id)
        there = (other for other in self._asked.values() if other.number == number)
        asked = self._asked.get(event.id) or next(there, None)
        logged = f"{event.kind} {event.id}" + (f" {event.detail!r}" if event.detail else "")
        return ReplayDivergence(f"the log has {logged}, the code asked for {asked or 'nothing there'}")
