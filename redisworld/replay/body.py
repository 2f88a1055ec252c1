"""What does code in a workflow body reach: its steps, its timers, its random numbers?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any, cast

from redisworld.attributes import Changes
from redisworld.replay.attributes import AskedAttributes, Attributes
from redisworld.replay.calls import StepCall, StepLike
from redisworld.replay.groups import Groups
from redisworld.replay.hooks import AskedHook
from redisworld.replay.ids import ending_of, hash_base, number_from, number_of, secret_id
from redisworld.replay.ledger import AskedWait, Ledger
from redisworld.replay.loop import DurableTimer, ReplayLoop
from redisworld.replay.patches import Patches


class Body:
    """The inside of one instance. The loop and the step calls report to it; the engine reads its ledger and groups."""

    def __init__(self, run_id: str, *, at: int, max_payload: int | None) -> None:
        self.run_id = run_id
        self.ledger = Ledger()
        self.groups = Groups()
        self.patches = Patches()
        self.attributes = Attributes()
        self.consumed = 0
        """Events delivered so far."""
        number = number_from(run_id)
        self.loop = ReplayLoop(self, hash_base=hash_base(number))  # type: ignore[abstract]  # what it may not call is set by name
        self.loop.now_ms = at
        self.max_payload = max_payload
        self._ending = ending_of(number)
        self._numbers = 0
        self._randoms = 0
        self._uuid1s = 0

    @property
    def dropped(self) -> bool:
        """Whether the instance has been dropped."""
        return self.loop.is_closed()

    def call_step(self, step: StepLike, args: Sequence[Any], kwargs: Mapping[str, Any]) -> StepCall[Any]:
        """A call of a step. Raises InvalidArguments or InvalidValue, right there in the body."""
        number, id = self._next_id("s")
        data = step.signature.encode_call(args, kwargs, max_bytes=self.max_payload)
        return StepCall(self, number=number, id=id, step=step, input=data)

    def ask_hook(self, token: str | None, metadata: bytes) -> AskedHook:
        """A hook; without a token it gets one that no other run has."""
        number, id = self._next_id("h")
        asked = AskedHook(self, number=number, id=id, token=token or secret_id(self.run_id, number), metadata=metadata)
        self.ledger.ask_hook(asked)
        return asked

    def dispose_hook(self, asked: AskedHook) -> None:
        """A hook was disposed of."""
        self.loop.check_alive()
        self.ledger.dispose_hook(asked)

    def set_attributes(self, changes: Changes) -> None:
        """Set attributes of the run with the next commit. Raises InvalidInput where they would be too many."""
        number, id = self._next_id("a")
        self.attributes.set(changes)
        self.ledger.ask_attributes(AskedAttributes(number, id, changes))

    def asked_by_body(self, kind: str, id: str) -> bool:
        """Whether this is an id that this run's body gives; others set attributes under ids of their own."""
        return id == f"{kind}{number_of(id)}_{self._ending}"

    def create_future(self) -> asyncio.Future[Any]:
        """A future of the body's loop."""
        return self.loop.create_future()

    def random(self) -> Random:
        """A new generator, seeded alike in every replay and differently in every run and call."""
        self.loop.check_alive()
        self._randoms += 1
        return Random(f"{self.run_id}:random:{self._randoms}")

    @cached_property
    def chance(self) -> Random:
        """What the functions of the ``random`` module draw from; the body may seed it."""
        return Random(f"{self.run_id}:chance")

    @cached_property
    def entropy(self) -> Random:
        """What ``os.urandom`` and all above it draw from; ``random.seed`` does not touch it."""
        return Random(f"{self.run_id}:entropy")

    def count_uuid1(self) -> int:
        """How many version 1 UUIDs the body has made, this one included."""
        self._uuid1s += 1
        return self._uuid1s

    def patched(self, name: str) -> bool:
        """Whether this run goes with a change of its code."""
        self.loop.check_alive()
        return self.patches.decide(name, self.consumed)

    def all_tasks(self) -> set[asyncio.Task[Any]]:
        """The body's tasks that are not done, as ``asyncio.all_tasks`` tells them."""
        steps = [cast("asyncio.Task[Any]", call.task) for call in self.ledger.open_steps.values() if call.task]
        made = sorted({*self.loop.tasks(), *steps}, key=hash)  # the order of a set depends on that of its making
        return {task for task in made if not task.done()}

    def emit(self, call: StepCall[Any]) -> None:
        """A step call is awaited for the first time."""
        if self.dropped:
            return
        self.ledger.ask_step(call)
        self.groups.opened(call)

    def abandon(self, call: StepCall[Any]) -> None:
        """A step call stopped waiting before the step completed."""
        self.groups.changed(call)

    def observed(self, call: StepCall[Any], observer: Callable[..., object]) -> object | None:
        """A bare step's task got an observer: what it shares with the others of its join, or None."""
        return self.groups.observed(call, observer)

    def unobserved(self, call: StepCall[Any]) -> None:
        """A bare step's task lost an observer."""
        self.groups.changed(call)

    def start_wait(self, timer: DurableTimer, due_ms: int) -> None:
        """A timer was made."""
        number, timer.wait_id = self._next_id("w")
        self.ledger.ask_wait(AskedWait(number, timer.wait_id, due_ms, timer))

    def drop_wait(self, timer: DurableTimer) -> None:
        """A timer was cancelled before it fired."""
        self.ledger.drop_wait(timer.wait_id)

    def _next_id(self, kind: str) -> tuple[int, str]:
        self.loop.check_alive()
        self._numbers += 1
        return self._numbers, f"{kind}{self._numbers}_{self._ending}"
