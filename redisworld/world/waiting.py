"""What does a run wait for, since when, who holds it, and what would wake it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from redisworld.errors import LetterNotFound
from redisworld.events import EventKind
from redisworld.runs import RunRow, Status, Step
from redisworld.world.finding_messages import Whereabouts, find_messages
from redisworld.world.listing_delayed import Due, find_delayed
from redisworld.world.listing_steps import ListedStep, by_creation, read_events, tell_steps
from redisworld.world.reading import States, read_states
from redisworld.world.recent import find_recent
from redisworld.world.replies import entry_ms, text_of
from redisworld.world.serving import Serving, read_serving

if TYPE_CHECKING:
    from redisworld.world.world import World

_TOLD = 20
"""Open steps, timers and hooks of each kind that are looked at: a person reads no more."""
_LOOKS = 3
_LOOK_AGAIN_S = 0.05
_UNSURE = ("lost", "nothing")
_BEGINNINGS = {EventKind.STEP_STARTED, EventKind.WAIT_CREATED, EventKind.HOOK_CREATED}


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a run waits for. Times are epoch ms by Redis; 0 where unknown or none.

    ``what`` is one of

    - step: its message is in a stream, or its body runs
    - retry: a step that is tried again at ``due_at``
    - timer: a wait that is over at ``due_at``
    - start: the run begins at ``due_at``
    - hook: somebody has to resume ``token``
    - wake: a message tells a worker to look at the run
    - handed_back: a step or wake that no worker could process; it is offered again at ``due_at``
    - letter: a dead letter holds the run; ``name`` is its reason
    - lost: a step or wake whose message was not found where it should be
    - nothing: no step, timer, hook or message of the run is open
    """

    what: str
    id: str = ""
    name: str = ""
    attempt: int = 0
    since: int = 0
    due_at: int = 0
    token: str = ""
    error: str = ""
    """Of the last attempt of a step."""
    running: bool = False
    """A step whose body has been started."""
    stream: str = ""
    entry: str = ""
    consumer: str = ""
    """Who holds the message; nobody has read it without one."""
    consumer_lives: bool = False
    deliveries: int = 0
    """How often the message was handed to a worker; of one that was handed back, how often that was."""
    lease_left_ms: int = 0
    """Until another worker takes the message over, if it is not renewed; negative when that time is over."""
    readers: int = 0
    """Live workers that read the stream."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands at ``at_ms``. ``more`` counts what is open besides and was not looked at."""

    row: RunRow
    at_ms: int
    steps: dict[str, int]
    """Steps by status."""
    waits_for: list[Waiting]
    more: int
    workers: int
    """Live workers of the namespace."""


async def read_standing(world: World, run_id: str) -> Standing:
    """What a run waits for. Raises RunNotFound.

    A command for each 1,000 fields of its row, six for each of at most 20 open steps, timers and hooks, at most ten for
    each stream that may hold a message, ten for the end of its log, and about ten besides; three times that where
    something seems to be lost: a run that moves while it is read looks like that, and is looked at again.
    """
    for _ in range(_LOOKS - 1):
        standing = await _read_once(world, run_id)
        if not any(what.what in _UNSURE for what in standing.waits_for):
            return standing
        await anyio.sleep(_LOOK_AGAIN_S)
    return await _read_once(world, run_id)


async def _read_once(world: World, run_id: str) -> Standing:
    row, now = await world.row(run_id), await world.connection.time_ms()
    states, serving = await read_states(world, run_id), await read_serving(world)
    look = _Look(world, row, states, serving, now)
    found = [] if row.status.terminal else await look.all()
    return Standing(
        row=row,
        at_ms=look.now,
        steps={status: sum(s.status is status for s in states.steps.values()) for status in Status if states.steps},
        waits_for=found,
        more=look.more,
        workers=len(serving.workers),
    )


class _Look:
    """One look at an open run."""

    def __init__(self, world: World, row: RunRow, states: States, serving: Serving, now: int) -> None:
        self._world = world
        self._row = row
        self._states = states
        self._serving = serving
        self.now = now
        self.more = 0

    async def all(self) -> list[Waiting]:
        """Letters first, then what is on its way to a worker, then what has its time, then what needs somebody."""
        open_steps = self._first([(id, s) for id, s in by_creation(self._states.steps) if not s.status.terminal])
        steps = await tell_steps(self._world, self._row.run_id, open_steps)
        running = {step.id for step in steps if step.status is Status.RUNNING}
        began = await self._beginnings(running | self._states.waits.keys() | set(self._open_hooks()))
        found = [
            *await self._letters(),
            *await self._messages(dict(open_steps), steps, began),
            *self._timers(began),
            *await self._hooks(began),
        ]
        return found or [Waiting(what="nothing", since=await self._last_event())]

    def _first(self, items: list[Any]) -> list[Any]:
        self.more += max(0, len(items) - _TOLD)
        return items[:_TOLD]

    async def _letters(self) -> list[Waiting]:
        found = []
        for name in self._row.parked:
            try:
                letter = await self._world.dead.show(name)
            except LetterNotFound:
                continue  # dropped: recovery sees to the run
            told = Waiting(what="letter", id=name, name=letter.reason, since=letter.at, error=letter.detail)
            found.append(told)
        return found

    async def _messages(self, states: dict[str, Step], steps: list[ListedStep], began: dict[str, int]) -> list[Waiting]:
        """The wake, and open steps: held, delayed, unread in a stream, or nowhere."""
        wake, parked = self._row.wake, bool(self._row.parked)
        carriers = {step.id: states[step.id].message_id or step.id for step in steps}  # an inline step's is a wake
        astray = [step for step in steps if step.place is None]
        wanted = {carriers[step.id] for step in astray} | ({wake} if wake else set())
        delayed = await self._delayed(wanted)
        places = await self._find(wanted - delayed.keys(), [s for s in astray if carriers[s.id] not in delayed])
        found = []
        if wake and wake not in carriers.values():
            found.append(self._of_message("wake", wake, delayed.get(wake), places.get(wake)))
        for step in steps:
            carrier = carriers[step.id]
            told = self._of_message("step", step.id, delayed.get(carrier), step.place or places.get(carrier))
            found.append(_with_step(told, step, began.get(step.id, 0)))
        # A letter is the message of a parked run that is nowhere else.
        return [told for told in found if not (parked and told.what == "lost")]

    async def _delayed(self, ids: set[str]) -> dict[str, Due]:
        members = [f"{kind} {self._row.run_id} {id}" for id in sorted(ids) for kind in ("step", "workflow")]
        return {due.id: due for due in (await find_delayed(self._world, self._row.run_id, members)).values()}

    async def _find(self, wanted: set[str], steps: list[ListedStep]) -> dict[str, Whereabouts]:
        if not wanted:
            return {}
        times = [max(step.created_at, step.retry_at) for step in steps]
        if self._row.wake in wanted:
            first_unseen = min(self._row.replayed_to + 1, self._row.log_length)
            seen = await read_events(self._world, self._row.run_id, {first_unseen})
            times.append(max(seen[first_unseen].at if seen else 0, self._row.start_at))
        return await find_messages(
            self._world, self._row.run_id, wanted, streams=self._streams(), since=min(times, default=0)
        )

    def _streams(self) -> list[str]:
        """Those that may hold a message of the run."""
        pins = ("", self._row.deployment, self._row.moved_from)
        return [stream for stream in self._serving.streams if stream.partition("@")[2] in pins]

    def _of_message(self, what: str, id: str, due: Due | None, place: Whereabouts | None) -> Waiting:
        if due is not None:
            return Waiting(
                what=due.what,
                id=id,
                name=due.name,
                since=due.refused_since,
                due_at=due.due_at,
                stream=due.stream,
                deliveries=due.deliveries - 1,
                readers=self._serving.readers(due.stream),
            )
        if place is None:
            return Waiting(what="lost", id=id)
        lease_ms = self._serving.lease_ms or self._world.settings.lease_ms
        return Waiting(
            what=what,
            id=id,
            stream=place.stream,
            entry=place.entry,
            since=entry_ms(place.entry),
            consumer=place.consumer,
            consumer_lives=place.consumer in self._serving.workers,
            deliveries=place.deliveries,
            lease_left_ms=lease_ms - place.idle_ms if place.held else 0,
            readers=self._serving.readers(place.stream),
        )

    def _timers(self, began: dict[str, int]) -> list[Waiting]:
        ordered = sorted(self._states.waits.items(), key=lambda item: item[1])
        return [Waiting(what="timer", id=id, since=began.get(id, 0), due_at=due) for id, due in self._first(ordered)]

    def _open_hooks(self) -> list[str]:
        return [id for id, state in self._states.hooks.items() if state == "open"]

    async def _hooks(self, began: dict[str, int]) -> list[Waiting]:
        if not (ids := self._first(self._open_hooks())):
            return []
        connection = self._world.connection
        key = self._world.partition(self._row.run_id).hooks(self._row.run_id)
        tokens = await connection.run("read_tokens", lambda: connection.commands.hmget(key, ids))
        return [
            Waiting(what="hook", id=id, since=began.get(id, 0), token=text_of(token or b""))
            for id, token in zip(ids, tokens, strict=True)
        ]

    async def _beginnings(self, ids: set[str]) -> dict[str, int]:
        """When they began: the latest start of a step, the creation of the others."""
        row = self._row
        found = await find_recent(self._world, row.run_id, row.log_length, ids=ids, kinds=_BEGINNINGS)
        return {id: event.at for id, event in found.items()}

    async def _last_event(self) -> int:
        number = self._row.log_length
        found = await read_events(self._world, self._row.run_id, {number} if number else set())
        return found[number].at if found else 0


def _with_step(told: Waiting, step: ListedStep, began: int) -> Waiting:
    running = step.status is Status.RUNNING
    since = (began or step.started_at) if running else step.created_at
    return msgspec.structs.replace(
        told,
        name=step.name,
        attempt=step.attempt,
        error=step.error,
        running=running,
        since=told.since if told.what == "handed_back" else since,
    )
