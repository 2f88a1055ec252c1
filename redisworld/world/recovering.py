"""Which open runs wait for a message that lives nowhere, and how do they go on? (design section 8)

A crash loses no message. A person can: XDEL, XACK, DEL of a stream. Three looks find what is lost and nothing else: the
rows of open runs tell who waits for what; the streams are looked through for it; and a script that finds it neither
delayed nor behind the place where that look ended sends it again, in one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from redisworld import events, messages
from redisworld.errors import MalformedMessage, RunNotFound
from redisworld.events import EventKind
from redisworld.keys import Partition
from redisworld.runs import Status, Step
from redisworld.settings import SPEC_VERSION
from redisworld.world.deliveries import Answer
from redisworld.world.dispatch import context_of, step_message, step_stream
from redisworld.world.living import Living, look_through
from redisworld.world.replies import detail_of, text_of, word_of

if TYPE_CHECKING:
    from redisworld.world.world import World

_MOST_FIELDS = 400
"""Fields of rows that one call looks at inside Redis, about. Measured: 2 ms where each is a step that is queued, 9 ms
where each is one that runs, of which there are no more than slots. Bigger rows take more calls than one."""

_MOST_RUNS = 100
"""Runs of one call: a row has two dozen fields at least that nobody waits for."""

Mode = Literal["look", "mend"]


class RowCursor(NamedTuple):
    """How far the row of a run has been read; its steps are in no order."""

    run_id: str
    cursor: str = "0"


class Suspect(msgspec.Struct, frozen=True):
    """An open run that waits for something: ``what`` is wake, step, wait or broken.

    wake: ``id`` is the message id that the row names. step, wait: its id, and ``state`` as the row has it; a wait is
    told when it has no timer. broken: it cannot be read, and ``state`` says why.
    """

    run_id: str
    what: str
    id: str
    state: str

    def seen_in(self, seen: Living) -> bool:
        """Whether a look through the streams has found what a wake or step waits for."""
        if self.what == "wake":
            return bool(self.id) and seen.has_message(self.run_id, self.id)
        owner = Step.parse(self.state).message_id
        return seen.has_step(self.run_id, self.id) or bool(owner and seen.has_message(self.run_id, owner))


class Recovering:
    """Finds and mends what stands still."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def page(self, partition: Partition, status: Status, cursor: int, count: int) -> tuple[int, list[str]]:
        """About so many open runs of a status, from a cursor on, and the next cursor (0: that was all)."""
        connection, key = self._world.connection, partition.index(f"status:{status}")
        after, members = await connection.run(
            "page_open_runs", lambda: connection.commands.zscan(key, cursor, count=count)
        )
        return int(after), [text_of(member) for member, _ in members]

    async def suspects(
        self, partition: Partition, places: Sequence[RowCursor], *, ticket_ms: int = 0
    ) -> tuple[list[Suspect], list[RowCursor]] | None:
        """Of these open runs those that may wait in vain, in one call, and where rows have to be read on.

        None while another consumer has the ticket.
        """
        if not places:
            return [], []
        items = [part for place in places for part in place]
        reply = await self._world.call("look_at_runs", partition, self._world.consumer, ticket_ms, _MOST_FIELDS, *items)
        if word_of(reply) == "busy":
            return None
        found = [Suspect(*(text_of(part) for part in item)) for item in reply[1:]]
        rest = [RowCursor(suspect.run_id, suspect.id) for suspect in found if suspect.what == "more"]
        return [suspect for suspect in found if suspect.what != "more"], rest

    async def all_suspects(self, partition: Partition, run_ids: Iterable[str]) -> list[Suspect]:
        """Of these open runs all that may wait in vain, in as many calls as their rows take."""
        found: dict[Suspect, None] = {}  # a row that is made bigger meanwhile may show a step twice
        places = [RowCursor(run_id) for run_id in run_ids]
        while places:
            suspects, rest = await self.suspects(partition, places[:_MOST_RUNS]) or ([], [])
            found |= dict.fromkeys(suspects)
            places = rest + places[_MOST_RUNS:]
        return list(found)

    async def wake(self, run_id: str, wake: str, seen: Living, *, mode: Mode) -> Answer:
        """Send a recovery wake, if the run's wake lives nowhere. ``look`` only says so: ``stranded``.

        ``recovered`` and the new wake; ``lives``, ``changed``, ``parked``, ``gone``, ``not_found``: it needs none;
        ``unsure``: too much is new behind the places, look on and ask again.
        """
        world = self._world
        reply = await world.call(
            "recover_run", world.partition(run_id), world.clock(), run_id, wake, mode, *seen.args()
        )
        return Answer(word_of(reply), detail_of(reply))

    async def step(
        self, suspect: Suspect, seen: Living, *, mode: Mode, queue_of: Callable[[str], str | None]
    ) -> Answer:
        """Publish a step's message again from its log, if it lives nowhere: ``dispatched`` and its entry.

        Else as for ``wake``. ``queue_of`` knows the queue of a step by its name; where it answers None nobody knows
        where the message belongs: ``unknown_name`` and the name. Raises MalformedMessage.
        """
        world, partition = self._world, self._world.partition(suspect.run_id)
        try:
            row = await world.row(suspect.run_id)
        except RunNotFound:
            return Answer("not_found")
        created = await world.log(row.run_id, Step.parse(suspect.state).input_event - 1, 1)
        event = events.parse(created[0]) if created else None
        if event is None or event.kind is not EventKind.STEP_CREATED or event.id != suspect.id:
            raise MalformedMessage(f"the log of run {row.run_id!r} does not have its step {suspect.id!r}")
        queue = queue_of(event.detail) if mode == "mend" else None
        message = step_message(
            world,
            run_id=row.run_id,
            workflow=row.workflow,
            step_id=suspect.id,
            name=event.detail,
            context=context_of(row.run_id, row),
            data=event.payload,
        )
        reply = await world.call(
            "redispatch_step",
            partition,
            world.clock(),
            row.run_id,
            suspect.id,
            suspect.state,
            "look" if queue is None else "mend",
            event.detail,
            step_stream(world, partition, queue or "", row.deployment),
            SPEC_VERSION,
            messages.encode(message),
            *seen.args(),
        )
        if word_of(reply) == "stranded" and mode == "mend":
            return Answer("unknown_name", event.detail)
        return Answer(word_of(reply), detail_of(reply))

    async def send(
        self,
        suspect: Suspect,
        streams: Sequence[str],
        seen: Living,
        *,
        mode: Mode,
        queue_of: Callable[[str], str | None],
        runs: Collection[str],
    ) -> Answer:
        """``wake`` or ``step``, and where the script is unsure ``streams`` are looked through on: never ``unsure``.

        ``runs`` are all that ``seen`` is asked about: what is passed on the way is noted for the others, too.
        """
        while True:
            if suspect.what == "wake":
                answer = await self.wake(suspect.run_id, suspect.id, seen, mode=mode)
            else:
                answer = await self.step(suspect, seen, mode=mode, queue_of=queue_of)
            if answer.outcome != "unsure":
                return answer
            partition = self._world.partition(suspect.run_id)
            await look_through(self._world.connection, partition, streams, seen, runs=runs)
            if suspect.seen_in(seen):
                return Answer("lives")

    async def delayed(self, kind: str, run_id: str, id: str, *, mode: Mode) -> str:
        """Bring a member of the delayed set together with its wait or body: fits, restored or dropped."""
        world = self._world
        reply = await world.call("mend_delayed", world.partition(run_id), world.clock(), mode, kind, run_id, id)
        return word_of(reply)

    async def listing(self, run_id: str, *, mode: Mode) -> str:
        """Bring a run and the listings together: fits, absent, unlisted, listed_wrong or expires."""
        world = self._world
        reply = await world.call(
            "mend_run", world.partition(run_id), world.clock(), mode, run_id, world.settings.retention_ms
        )
        return word_of(reply)
