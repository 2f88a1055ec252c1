"""Which steps has a run, what is their state, and who holds them?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from redisworld import events, failures
from redisworld.errors import InvalidInput, MalformedMessage, RunNotFound
from redisworld.events import Event, EventKind
from redisworld.runs import Status, Step
from redisworld.world.finding_messages import Whereabouts, holders
from redisworld.world.reading import read_steps
from redisworld.world.recent import find_recent

if TYPE_CHECKING:
    from redisworld.world.world import World


class ListedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step. Times are epoch ms by Redis, 0 where not reached; ``started_at`` is its first start.

    ``error`` is that of its last attempt that failed; ``place`` is where the message of a running one is.
    """

    id: str
    name: str
    status: Status
    attempt: int
    created_at: int
    started_at: int
    retry_at: int
    error: str
    place: Whereabouts | None


class StepPage(msgspec.Struct, frozen=True):
    """Steps, and the step id to go on behind, or ``""`` where that was all. ``total`` counts all that fit."""

    steps: list[ListedStep]
    after: str
    total: int


async def page_of_steps(
    world: World, run_id: str, *, statuses: Collection[Status] = (), limit: int, after: str = ""
) -> StepPage:
    """At most ``limit`` steps of a run behind the step ``after``, in the order in which the body asked for them.

    A command for each 1,000 fields of the row, four for each step that is told, and about ten. Raises RunNotFound,
    InvalidInput for an ``after`` that the run does not have.
    """
    states = await read_steps(world, run_id)
    if not states:
        await world.row(run_id)  # an unknown run is not one without steps
    if after and after not in states:
        raise InvalidInput(f"after={after!r}: run {run_id!r} has no step {after!r}")
    behind = states[after].input_event if after else 0
    fits = [(id, step) for id, step in by_creation(states) if not statuses or step.status in statuses]
    left = [(id, step) for id, step in fits if step.input_event > behind]
    return StepPage(
        await tell_steps(world, run_id, left[:limit]), left[limit - 1][0] if len(left) > limit else "", len(fits)
    )


def by_creation(states: dict[str, Step]) -> list[tuple[str, Step]]:
    """Steps in the order in which they were created."""
    return sorted(states.items(), key=lambda item: item[1].input_event)


async def tell_steps(world: World, run_id: str, steps: Sequence[tuple[str, Step]]) -> list[ListedStep]:
    """What the log and the streams say of these steps; four commands each at most, and eleven. Raises RunNotFound."""
    numbers = {number for _, step in steps for number in (step.input_event, step.started_event, step.error_event)}
    log = await read_events(world, run_id, numbers - {0})
    held = [(id, entry_of(step)) for id, step in steps if step.entry_id]
    failures_of = await _failures(world, run_id, [id for id, step in steps if step.status is Status.FAILED])
    places = await holders(world, world.partition(run_id), [entry for _, entry in held])
    place_of = {id: place for (id, _), place in zip(held, places, strict=True)}
    told = []
    for id, step in steps:
        created, started, failed = (log.get(n) for n in (step.input_event, step.started_event, step.error_event))
        if created is None:
            raise RunNotFound(run_id)  # it has been reaped meanwhile
        told.append(
            ListedStep(
                id=id,
                name=created.detail,
                status=step.status,
                attempt=step.attempt,
                created_at=created.at,
                started_at=started.at if started else 0,
                retry_at=step.retry_at if step.status is Status.PENDING else 0,
                error=_error(failures_of.get(id, failed)),
                place=place_of.get(id),
            )
        )
    return told


async def _failures(world: World, run_id: str, ids: list[str]) -> dict[str, Event]:
    """How these steps failed: their states do not say where in the log that is."""
    if not ids:
        return {}
    length = (await world.row(run_id)).log_length
    return await find_recent(world, run_id, length, ids=ids, kinds={EventKind.STEP_FAILED})


async def read_events(world: World, run_id: str, numbers: Collection[int]) -> dict[int, Event]:
    """These events of a run's log, by their numbers from 1; one command each. What is no event is left out."""
    if not numbers:
        return {}
    key, ordered = world.partition(run_id).log(run_id), sorted(numbers)
    elements = await world.connection.pipe(
        "read_some_events", lambda pipe: [pipe.lindex(key, number - 1) for number in ordered]
    )
    return {number: event for number, data in zip(ordered, elements, strict=True) if (event := _event(data))}


def entry_of(step: Step) -> tuple[str, str]:
    """The stream and the entry that is being worked on, from their short form in the step's state."""
    entry, _, stream = step.entry_id.partition("/")
    return {"": "steps", "w": "workflows"}.get(stream, stream), entry


def _event(element: bytes | None) -> Event | None:
    try:
        return events.parse(element) if element is not None else None
    except MalformedMessage:
        return None


def _error(event: Event | None) -> str:
    try:
        return str(failures.decode(event.payload)) if event is not None else ""
    except MalformedMessage:
        return "(cannot be read)"
