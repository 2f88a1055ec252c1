"""How are a run's row, steps and log read? For whoever is not on the hot path: passes load theirs in one script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from redisworld.errors import MalformedMessage, RunNotFound
from redisworld.keys import Partition
from redisworld.runs import RunRow, Status, Step
from redisworld.world.refusals import readable
from redisworld.world.replies import number_of, text_of

if TYPE_CHECKING:
    from redisworld.world.world import World

_ROW = (
    "status",
    "workflow",
    "deployment",
    "spec",
    "root",
    "created_at",
    "started_at",
    "finished_at",
    "woken_at",
    "replayed_to",
    "wake",
    "code",
    "finished_event",
    "begun_to",
    "patches",
    "start_at",
    "parked",
    "moved_from",
)


async def read_row(world: World, run_id: str) -> RunRow:
    """The fixed fields of the run row, never all of it: a row of 10,000 steps is megabytes.

    Raises RunNotFound, MalformedMessage for a row that is none of ours.
    """
    partition = world.partition(run_id)
    row, log = partition.run(run_id), partition.log(run_id)
    values, length = await _read(
        run_id, world.connection.pipe("read_row", lambda pipe: (pipe.hmget(row, _ROW), pipe.llen(log)))
    )
    text = [text_of(value or b"") for value in values]
    if not text[0]:
        raise RunNotFound(run_id)
    try:
        return _row(partition, run_id, text, length)
    except ValueError as error:  # a status or number that is none
        raise MalformedMessage(f"the row of run {run_id!r} cannot be read: {error}") from error


async def _read(run_id: str, replies: Awaitable[Any]) -> Any:
    """What Redis replies. Raises MalformedMessage for a key of another type, and RedisUnavailable."""
    with readable(f"run {run_id!r}"):
        return await replies


def _row(partition: Partition, run_id: str, text: list[str], length: int) -> RunRow:
    return RunRow(
        run_id=run_id,
        status=Status(text[0]),
        workflow=text[1],
        deployment=text[2],
        spec_version=number_of(text[3]) or 1,
        root_run_id=text[4],
        created_at=number_of(text[5]),
        started_at=number_of(text[6]),
        finished_at=number_of(text[7]),
        woken_at=number_of(text[8]),
        replayed_to=number_of(text[9]),
        wake=text[10],
        code=text[11],
        finished_event=number_of(text[12]),
        begun_to=number_of(text[13]),
        patches=tuple(text[14].split()),
        start_at=number_of(text[15]),
        parked=tuple(f"{partition.number}/{letter}" for letter in text[16].split()),
        moved_from=text[17],
        log_length=length,
    )


class States(msgspec.Struct, frozen=True):
    """What a run row says of everything the body has asked for, by id: steps, waits with their due time, hooks."""

    steps: dict[str, Step]
    waits: dict[str, int]
    """The open ones, to their due time in epoch ms."""
    hooks: dict[str, str]
    """To their state: claiming, open, conflict or disposed."""


async def read_steps(world: World, run_id: str) -> dict[str, Step]:
    """The states of all steps by step id."""
    return {name[2:]: Step.parse(state) async for name, state in _fields(world, run_id, "s:*")}


async def read_states(world: World, run_id: str) -> States:
    """The states of all steps, open waits and hooks; a command for each 1,000 fields of the row."""
    found = States({}, {}, {})
    async for name, state in _fields(world, run_id, "[swh]:*"):
        kind, id = name[0], name[2:]
        if kind == "s":
            found.steps[id] = Step.parse(state)
        elif kind == "h":
            found.hooks[id] = state
        elif state.startswith("waiting|"):
            found.waits[id] = _due(run_id, state)
    return found


def _due(run_id: str, state: str) -> int:
    try:
        return int(state.partition("|")[2])
    except ValueError as error:
        raise MalformedMessage(f"{state[:80]!r} is no state of a wait of run {run_id!r}") from error


async def _fields(world: World, run_id: str, pattern: str) -> AsyncIterator[tuple[str, str]]:
    key, cursor = world.partition(run_id).run(run_id), 0
    while True:
        page = partial(world.connection.commands.hscan, key, cursor, match=pattern, count=1000)
        cursor, fields = await _read(run_id, world.connection.run("read_states", page))
        for name, state in fields.items():
            yield text_of(name), text_of(state)
        if not cursor:
            return


async def read_log(world: World, run_id: str, start: int, count: int) -> list[bytes]:
    """``count`` log elements from index ``start``, or as many as there are."""
    connection, key, last = world.connection, world.partition(run_id).log(run_id), start + count - 1
    elements: list[bytes] = await _read(
        run_id, connection.run("read_log", lambda: connection.commands.lrange(key, start, last))
    )
    return elements
