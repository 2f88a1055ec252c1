"""Who sends again what a person has deleted: a wake, the message of a step? (design section 8)

One worker per partition at a time looks at a small page of open runs, rarely. What waits is remembered, and looked at
again a tick later: nearly all of it is at work and has moved on by then. Only for what has not are the streams looked
through. Nothing here has to be right about time: a script proves each loss before it sends anything.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable

import anyio

from redisworld.errors import MalformedMessage, RedisUnavailable
from redisworld.keys import Partition
from redisworld.observe import RunRecovered, observe
from redisworld.runs import Status
from redisworld.workflows import Workflows
from redisworld.world import Stream, World
from redisworld.world.living import Living, discover, length_of, look_through, nothing_seen
from redisworld.world.recovering import Suspect

log = logging.getLogger("redisworld")

_PAGE = 50
"""Rows a tick. One script looks at them, and at 400 fields at most: the rest is for the next tick."""
_LONGEST = 2_000
"""Entries that are looked through for what is missing. A longer backlog says why a run waits."""
_REMEMBERED = 200
_KINDS = ("wake", "step", "wait")
_QUIET_TICKS = 30
"""After a look through the streams that found everything: who waits in a backlog is not looked for again and again."""


class Recovery:
    """Recovers runs of all partitions, one partition a tick."""

    def __init__(self, world: World, app: Workflows, streams: Iterable[Stream]) -> None:
        self._world = world
        self._app = app
        self._known: dict[Partition, set[str]] = {partition: set() for partition in world.partitions}
        for partition, stream in streams:
            self._known[partition].add(stream)
        self._turns = itertools.cycle(
            [(partition, status) for status in (Status.RUNNING, Status.PENDING) for partition in world.partitions]
        )
        self._cursors = dict.fromkeys(itertools.product(world.partitions, (Status.RUNNING, Status.PENDING)), 0)
        self._waiting: dict[Partition, set[Suspect]] = {partition: set() for partition in world.partitions}
        self._later: dict[Partition, list[str]] = {partition: [] for partition in world.partitions}
        self._quiet = dict.fromkeys(world.partitions, 0)

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Recover until ``stopping``."""
        while True:
            every_s = self._world.settings.recover_every_ms / 1000
            for _ in range(max(1, int(every_s))):
                await anyio.sleep(min(1.0, every_s))
                if stopping():
                    return
            try:
                await self.tick()
            except (RedisUnavailable, MalformedMessage) as error:
                log.warning("open runs not looked at, trying again: %s", error)

    async def tick(self) -> int:
        """Look again at what waited at the last tick, then at the next page; how many messages were sent.

        Raises RedisUnavailable.
        """
        sent = 0
        for partition, before in self._waiting.items():
            self._quiet[partition] -= 1
            if before:
                sent += await self._again(partition, before)
        partition, status = next(self._turns)
        at, run_ids = (partition, status), self._later[partition][:_PAGE]
        if not run_ids:
            # a small sorted set comes whole, and more than a page of it is for later too
            self._cursors[at], run_ids = await self._world.recovery.page(partition, status, self._cursors[at], _PAGE)
        page, self._later[partition] = run_ids[:_PAGE], [*run_ids[_PAGE:], *self._later[partition][_PAGE:]]
        suspects = await self._suspects(partition, page)
        self._later[partition] += [suspect.run_id for suspect in suspects if suspect.what == "later"]
        self._waiting[partition] |= {suspect for suspect in suspects[:_REMEMBERED] if suspect.what in _KINDS}
        return sent

    async def _suspects(self, partition: Partition, run_ids: list[str]) -> list[Suspect]:
        ticket_ms = 2 * self._world.settings.recover_every_ms * len(self._cursors)
        found = await self._world.recovery.suspects(partition, run_ids, ticket_ms=ticket_ms)
        return found or []

    async def _again(self, partition: Partition, before: set[Suspect]) -> int:
        """What still stands where it stood is looked for, and sent again if it is nowhere."""
        self._waiting[partition] = set()
        now = await self._suspects(partition, sorted({suspect.run_id for suspect in before}))
        still = [suspect for suspect in now if suspect in before and suspect.what in ("wake", "step")]
        timers = sum([await self._restore(suspect) for suspect in now if suspect.what == "wait"])
        return timers + (await self._look_for(partition, still) if still else 0)

    async def _restore(self, suspect: Suspect) -> bool:
        """A wait without a timer gets it again: the row knows when it is due."""
        restored = await self._world.recovery.delayed("wait", suspect.run_id, suspect.id, mode="mend") == "restored"
        if restored:
            observe(RunRecovered("wait", suspect.run_id))
            log.warning("a wait had no timer, set again: run=%s wait=%s", suspect.run_id, suspect.id)
        return restored

    async def _look_for(self, partition: Partition, still: list[Suspect]) -> int:
        """Look for their messages through the streams, and send again what is in none."""
        if self._quiet[partition] > 0:
            return 0
        known, runs = self._known[partition], {suspect.run_id for suspect in still}
        if await length_of(self._world.connection, partition, known) > _LONGEST:
            log.debug("a backlog of more than %d messages: nobody is recovered in %s", _LONGEST, partition.tag)
            return 0
        seen = nothing_seen()
        await look_through(self._world.connection, partition, known, seen, runs=runs)
        if lost := [suspect for suspect in still if not suspect.seen_in(seen)]:
            # a queue that no worker of this application reads, perhaps
            others = set(await discover(self._world.connection, partition)) - known
            if await length_of(self._world.connection, partition, others) > _LONGEST:
                return 0
            await look_through(self._world.connection, partition, others, seen, runs=runs)
        else:
            self._quiet[partition] = _QUIET_TICKS
        return sum([await self._send(partition, suspect, seen) for suspect in lost if not suspect.seen_in(seen)])

    async def _send(self, partition: Partition, suspect: Suspect, seen: Living) -> bool:
        if suspect.what == "wake":
            answer = await self._world.recovery.wake(suspect.run_id, suspect.id, seen, mode="mend")
        else:
            answer = await self._world.recovery.step(suspect, seen, mode="mend", queue_of=self._queue_of)
        if answer.outcome not in ("recovered", "dispatched"):
            log.debug("not lost: run=%s %s=%s answer=%s", suspect.run_id, suspect.what, suspect.id, answer.outcome)
            return False
        observe(RunRecovered(suspect.what, suspect.run_id))
        log.warning(
            "the message that a run waited for was nowhere, sent again: run=%s %s=%s as=%s",
            suspect.run_id, suspect.what, suspect.id, answer.detail,
        )  # fmt: skip
        return True

    def _queue_of(self, name: str) -> str | None:
        step = self._app.steps.get(name)
        return None if step is None else step.queue
