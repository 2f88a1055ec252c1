"""How does a construct run on the real consumers, and how does its worker die before one of its script calls?

Everything is serial and the clock is pinned, so a run's n-th script call is the same each time. A worker dies there:
the call is not made, its task is gone with all it had in memory, and another one takes its deliveries over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import redis

from redisworld import ErrorInfo, Settings, World, scripts
from redisworld.events import Event, EventKind
from redisworld.keys import GROUP
from redisworld.runs import TERMINAL
from redisworld.world import Committed, Delivery
from tests.chaos import invariants
from tests.conformance.harness import Consumers
from tests.constructs.everything import Construct
from tests.constructs.steps import NOW, clock, wf

_KINDS = ("steps", "workflows")
_TAKEN = ("committed", "again", "ended")


@dataclass
class Played:
    """What one run came to."""

    run_id: str
    outcome: Any
    log: list[Event]
    commits: list[int] = field(default_factory=list)
    """How much of the log each committed pass had consumed."""
    died: bool = False
    """Whether its worker died on the way."""


class Player:
    """One World, and the worker that lives on it at the moment."""

    def __init__(self, world: World, raw: redis.Redis) -> None:
        self.world, self.raw = world, raw
        self.consumers = Consumers(world, wf, raw, metrics=False)
        self.commits: list[int] = []
        self._calls_left: int | None = None
        self._dead: asyncio.Future[None] | None = None
        self._buried = asyncio.Event()
        self._call, self._commit = world.call, world.deliveries.commit
        world.clock = clock
        world.call = self._call_or_die  # type: ignore[method-assign]
        world.deliveries.commit = self._note_commit  # type: ignore[method-assign]

    async def play(
        self, construct: Construct, run_id: str, *, die_before: int | None = None, alternate: bool = False
    ) -> Played:
        """Run it to its end and until nothing is left to do.

        ``die_before``: the n-th script call, counted from 1. ``alternate``: two workers take turns, each of which keeps
        its own bodies in memory.
        """
        clock.ms = NOW
        self.commits, self._calls_left = [], die_before
        self.new_worker()
        acts = list(construct.acts)
        resting = Consumers(self.world, wf, self.raw, metrics=False)
        await self.world.start(construct.workflow, run_id=run_id)
        while True:
            held = await self.world.queue.read([self.consumers.stream(kind) for kind in _KINDS], count=1)
            if held:
                while held:
                    if alternate:
                        self.consumers, resting = resting, self.consumers
                    if not await self._process(held.pop(0)):
                        held = await self._taken_over()
            elif acts and not self._ended(run_id):
                act = acts.pop(0)
                await act(self.world, run_id)
                if self._idle():
                    await self._let_time_pass()
            elif not await self._let_time_pass():
                break
        resting.orchestrator.close()
        died, self._calls_left = self._calls_left == 0, None
        log = self.consumers.log(run_id)
        assert self._ended(run_id), f"the run is stuck after {[str(event.kind) for event in log]}"
        return Played(run_id, outcome_of(construct, log), log, self.commits, died)

    def new_worker(self) -> None:
        """A worker that has nothing in memory."""
        self.consumers.orchestrator.close()
        self.consumers = Consumers(self.world, wf, self.raw, metrics=False)

    async def _process(self, delivery: Delivery) -> bool:
        """Process a delivery to its end, if the worker does not die meanwhile."""
        loop = asyncio.get_running_loop()
        self._dead, self._buried = loop.create_future(), asyncio.Event()
        worker = asyncio.ensure_future(self.consumers.process(delivery))
        await asyncio.wait({worker, self._dead}, return_when=asyncio.FIRST_COMPLETED)
        died, self._dead = self._dead.done(), None
        if not died:
            await worker
            return True
        worker.cancel()
        await asyncio.wait({worker})
        self._buried.set()
        self.new_worker()
        return False

    async def _taken_over(self) -> list[Delivery]:
        """What the dead worker held, delivered again."""
        found: list[Delivery] = []
        for kind in _KINDS:
            stream = self.consumers.stream(kind)
            key = stream[0].tag + stream[1]
            held: list[Any] = [entry["message_id"] for entry in self.raw.xpending_range(key, GROUP, "-", "+", 100)]
            if held:
                self.raw.xclaim(key, GROUP, "a-dead-worker", 0, held, idle=10**8, justid=True)
                self.raw.delete(stream[0].reclaim_ticket(stream[1]))
                answer = await self.world.deliveries.reclaim(stream, "0-0", 100)
                found += answer.taken
        return found

    async def _call_or_die(self, *args: Any, **kwargs: Any) -> list[Any]:
        if self._dead is not None and self._calls_left:
            self._calls_left -= 1
            if self._calls_left == 0:
                self._dead.set_result(None)
                await self._buried.wait()
                raise RuntimeError("this call was never made: its process is dead")
        return await self._call(*args, **kwargs)

    async def _note_commit(self, *args: Any, **kwargs: Any) -> Committed:
        answer = await self._commit(*args, **kwargs)
        if kwargs.get("last", True) and answer.outcome in _TAKEN:
            self.commits.append(kwargs["consumed"])
        return answer

    async def _let_time_pass(self) -> bool:
        """Go to the next due time; whether there was one."""
        due = self.raw.zrange(self.consumers.partition.delayed, 0, 0, withscores=True)
        if not due:
            return False
        clock.ms = max(clock.ms, int(due[0][1]))
        await self.world.upkeep.promote(self.consumers.partition)
        return True

    def _idle(self) -> bool:
        return not (self.consumers.queued("steps") or self.consumers.queued("workflows"))

    def _ended(self, run_id: str) -> bool:
        status: Any = self.raw.hget(self.consumers.partition.run(run_id), "status")
        return bool(status) and status.decode() in TERMINAL


def outcome_of(construct: Construct, log: list[Event]) -> Any:
    """How a run ended, in the words of the catalogue."""
    [end] = [
        event for event in log if event.kind in (EventKind.RUN_COMPLETED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED)
    ]
    if end.kind is EventKind.RUN_COMPLETED:
        return construct.workflow.signature.decode_result(end.payload)
    if end.kind is EventKind.RUN_CANCELLED:
        return "cancelled"
    error = msgspec.msgpack.decode(end.payload, type=ErrorInfo)
    return f"failed: {error.type} {error.message}"


@asynccontextmanager
async def player(url: str, raw: redis.Redis, **settings: Any) -> AsyncIterator[Player]:
    """A player on an emptied Redis."""
    for name in scripts.names():
        raw.script_load(scripts.load(name).text)
    async with World.connect(settings=Settings(url=url, partitions=1, **settings)) as world:
        found = Player(world, raw)
        consumers = found.consumers
        await world.queue.ensure_groups([consumers.stream("steps"), consumers.stream("workflows")])
        try:
            yield found
        finally:
            found.consumers.orchestrator.close()


def check_promises(raw: redis.Redis) -> None:
    """Every step of every run was created once and ended once, nothing is left, and cold replays agree."""
    invariants.check(raw, wf)
