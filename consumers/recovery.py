"""Who sends again what a person has deleted: a wake, the message of a step? (design section 8)

One worker per partition at a time looks at open runs, page by page, rarely. What waits is remembered, and looked at
again at a later tick: nearly all of it is at work and has moved on by then. Only for what has not are the streams
looked through, as far as a tick allows; the next one goes on there. Nothing here has to be right about time: a script
proves each loss before it sends anything. How long all of it takes at most says docs/guarantees.md.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from consumers.pauses import Pauses, rest
from redisworld.errors import MalformedMessage
from redisworld.facts import fact
from redisworld.keys import Partition
from redisworld.observe import RunRecovered, observe
from redisworld.runs import Status
from redisworld.workflows import Workflows
from redisworld.world import Stream, World
from redisworld.world.living import Living, discover, look_through, nothing_seen
from redisworld.world.recovering import RowCursor, Suspect

PAGE = 50
"""Open runs that are asked for at once, and looked at by one script, as far as their rows are short."""
LOOKS = 25
"""Scripts of a tick that look at open runs: 10,000 fields of rows, or 1,250 runs."""
REMEMBERED = 10_000
"""Suspects of a partition. Where there are more, the next page waits until these are judged."""
ENTRIES = 20_000
"""Entries of streams that a tick looks through. Measured: 0.2 s of a worker, 0.7 s where all are of runs that wait."""
SENT = 1_000
"""Messages that a tick sends again for a partition."""
ENTRIES_PER_QUIET_TICK, MOST_QUIET_TICKS = 200, 30
"""After a search that found everything: who waits in a long backlog is not looked for again and again."""


class _Search(msgspec.Struct):
    """Who is looked for, and how far that has come. ``wide``: in all streams, not only those this worker reads."""

    suspects: set[Suspect]
    runs: set[str]
    streams: list[str]
    seen: Living
    wide: bool = False
    entries: int = 0

    @property
    def missing(self) -> list[Suspect]:
        return [suspect for suspect in self.suspects if not suspect.seen_in(self.seen)]


class Recovery:
    """Recovers runs of all partitions; a tick looks at a page of one of them."""

    def __init__(self, world: World, app: Workflows | None, streams: Iterable[Stream]) -> None:
        self._world = world
        self._app = app
        self._known: dict[Partition, list[str]] = {partition: [] for partition in world.partitions}
        for partition, stream in streams:
            self._known[partition].append(stream)
        laps = [(partition, status) for status in (Status.RUNNING, Status.PENDING) for partition in world.partitions]
        self._turns = itertools.cycle(laps)
        self._cursors = dict.fromkeys(laps, 0)
        self._unread: dict[tuple[Partition, Status], list[RowCursor]] = {lap: [] for lap in laps}
        self._waiting: dict[Partition, set[Suspect]] = {partition: set() for partition in world.partitions}
        self._searches: dict[Partition, _Search] = {}
        self._quiet = dict.fromkeys(world.partitions, 0)

    @classmethod
    def of_wakes(cls, world: World) -> Recovery:
        """Without an application nobody knows the queues of steps: wakes and waits alone are recovered.

        It takes no turn away from those who recover steps too: a script proves each loss, so two may look.
        """
        return cls(world, None, ())

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Recover until ``stopping``."""
        pauses = Pauses(self._world.connection.faults)
        while await rest(self._world.settings.recover_every_ms / 1000, stopping):
            try:
                await self.tick()
                pauses.over()
            except Exception as error:  # the top of a loop
                await pauses.after("open runs not looked at, trying again", error)

    async def tick(self) -> int:
        """Go on with what waits since an earlier tick, then look at the next page; how many messages were sent.

        Raises RedisUnavailable.
        """
        sent = 0
        for partition in self._world.partitions:
            self._quiet[partition] -= 1
            with self._contained(partition):
                sent += await self._go_on(partition)
        partition, status = next(self._turns)
        with self._contained(partition):
            await self._turn(partition, status)
        return sent

    @contextmanager
    def _contained(self, partition: Partition) -> Iterator[None]:
        """A key there that is not ours: the other partitions are looked at all the same."""
        try:
            yield
        except MalformedMessage as error:
            self._searches.pop(partition, None)
            self._world.connection.faults.warn(
                "recovery", "open runs not looked at", partition=partition.number, level=logging.ERROR, error=error
            )

    async def _go_on(self, partition: Partition) -> int:
        sent = 0
        if partition not in self._searches and self._waiting[partition] and self._quiet[partition] <= 0:
            sent = await self._look_again(partition)
        if partition in self._searches:
            sent += await self._search(partition)
        return sent

    # -- who waits

    async def _turn(self, partition: Partition, status: Status) -> None:
        """Look at the next page of the open runs of a status; one that ends ends the turn, as far as it may go."""
        lap, waiting = (partition, status), self._waiting[partition]
        for _ in range(LOOKS):
            full = len(waiting) >= REMEMBERED
            if not full and not self._unread[lap]:
                # a small sorted set comes whole
                self._cursors[lap], run_ids = await self._world.recovery.page(
                    partition, status, self._cursors[lap], PAGE
                )
                self._unread[lap] = [RowCursor(run_id) for run_id in run_ids]
            page = [RowCursor(next(iter(waiting)).run_id)] if full else self._unread[lap][:PAGE]
            looked = await self._world.recovery.suspects(partition, page, ticket_ms=self._ticket_ms)
            if looked is None:  # another worker has the ticket
                self._unread[lap] = []
                waiting.clear()
                return
            if full:  # that was to keep the ticket
                return
            suspects, rest = looked
            waiting.update(suspect for suspect in suspects if suspect.what in self._recovered)
            self._unread[lap] = rest + self._unread[lap][PAGE:]
            if not self._unread[lap] and not self._cursors[lap]:
                return

    @property
    def _recovered(self) -> tuple[str, ...]:
        return ("wake", "wait") if self._app is None else ("wake", "wait", "step")

    @property
    def _ticket_ms(self) -> int:
        """Twice the time until this partition's turn comes again; 0 looks without a ticket."""
        return 0 if self._app is None else 2 * self._world.settings.recover_every_ms * len(self._cursors)

    async def _look_again(self, partition: Partition) -> int:
        """What still stands where it stood is looked for from now on. A wait without a timer gets it at once."""
        before, self._waiting[partition] = self._waiting[partition], set()
        found = await self._world.recovery.all_suspects(partition, sorted({suspect.run_id for suspect in before}))
        still = before.intersection(found)
        waits = {suspect for suspect in still if suspect.what == "wait"}
        if still - waits:
            runs = {suspect.run_id for suspect in still - waits}
            self._searches[partition] = _Search(still - waits, runs, list(self._known[partition]), nothing_seen())
        return sum([await self._restore(suspect) for suspect in waits])

    async def _restore(self, suspect: Suspect) -> bool:
        """The row knows when the wait is due."""
        try:
            answer = await self._world.recovery.delayed("wait", suspect.run_id, suspect.id, mode="mend")
        except MalformedMessage as error:
            return self._unreadable(suspect, error)
        if answer == "restored":
            observe(RunRecovered("wait", suspect.run_id))
            fact(logging.WARNING, "a wait had no timer, set again", run=suspect.run_id, wait=suspect.id)
        return answer == "restored"

    def _unreadable(self, suspect: Suspect, error: MalformedMessage) -> bool:
        """The others are recovered all the same."""
        faults = self._world.connection.faults
        faults.warn("recovery", "not recovered", _where(suspect), level=logging.ERROR, error=error)
        return False

    # -- where it is

    async def _search(self, partition: Partition) -> int:
        """Look on through the streams; at their ends send again what is in none."""
        search = self._searches[partition]
        if not await self._at_the_ends(partition, search):
            return 0
        if search.missing and not search.wide:
            # a queue that no worker of this application reads, perhaps
            search.wide, search.streams = True, await discover(self._world.connection, partition)
            if not await self._at_the_ends(partition, search):
                return 0
        lost = search.missing
        sent = sum([await self._send(suspect, search) for suspect in lost[:SENT]])
        search.suspects = set(lost[SENT:])
        if not search.suspects:
            del self._searches[partition]
            if not sent:
                self._quiet[partition] = min(MOST_QUIET_TICKS, 1 + search.entries // ENTRIES_PER_QUIET_TICK)
        return sent

    async def _at_the_ends(self, partition: Partition, search: _Search) -> bool:
        """Look through what this tick may; whether that was all there is."""
        looked = await look_through(
            self._world.connection, partition, search.streams, search.seen, runs=search.runs, most=ENTRIES
        )
        search.entries += looked
        return looked < ENTRIES

    async def _send(self, suspect: Suspect, search: _Search) -> bool:
        try:
            answer = await self._world.recovery.send(
                suspect, search.streams, search.seen, mode="mend", queue_of=self._queue_of, runs=search.runs
            )
        except MalformedMessage as error:
            return self._unreadable(suspect, error)
        if answer.outcome not in ("recovered", "dispatched"):
            fact(logging.DEBUG, "not lost", _where(suspect), answer=answer.outcome)
            return False
        observe(RunRecovered(suspect.what, suspect.run_id))
        what = "the message that a run waited for was nowhere, sent again"
        fact(logging.WARNING, what, _where(suspect), sent_as=answer.detail)
        return True

    def _queue_of(self, name: str) -> str | None:
        step = None if self._app is None else self._app.steps.get(name)
        return None if step is None else step.queue


def _where(suspect: Suspect) -> dict[str, object]:
    return {"run": suspect.run_id, "lost": suspect.what, "id": suspect.id}
