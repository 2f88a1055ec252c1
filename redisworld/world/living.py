"""Which messages of some runs live, in streams that may be long?

Streams are read in pages, as they are while others work. What this finds is true only for the moment; what it does not
find is proof together with ``places``: a script looks at what stands behind them and at the delayed set in one moment
(``include/living.lua``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from redisworld import messages
from redisworld.errors import MalformedMessage
from redisworld.keys import GROUP, Partition
from redisworld.messages import StepMessage
from redisworld.world.connection import Connection
from redisworld.world.queue import fields_of
from redisworld.world.replies import entry_number, our_group, text_of
from redisworld.world.scanning import scan

_PAGE = 100


class Living(msgspec.Struct):
    """What a look through the streams has found, and how far it has seen each of them.

    ``messages`` are pairs of run and message id, ``steps`` of run and step id. ``illegible`` are runs that an entry
    names whose bytes are no message: it will be a dead letter soon, and may be any message of the run.
    ``settled_by_hand`` are entries that were delivered, are pending under nobody, and so come to nobody again.
    """

    places: dict[str, str]
    messages: set[tuple[str, str]]
    steps: set[tuple[str, str]]
    illegible: set[str]
    settled_by_hand: list[tuple[str, str, str]]

    def has_message(self, run_id: str, message_id: str) -> bool:
        """Whether a message may live."""
        return (run_id, message_id) in self.messages or run_id in self.illegible

    def has_step(self, run_id: str, step_id: str) -> bool:
        """Whether a message of a step may live."""
        return (run_id, step_id) in self.steps or run_id in self.illegible

    def place(self, stream: str) -> str:
        """The last entry of a stream that has been seen."""
        return self.places.get(stream, "0-0")

    def args(self) -> list[str]:
        """The places as scripts take them."""
        return [part for place in self.places.items() for part in place]


def nothing_seen() -> Living:
    """Before the first look."""
    return Living({}, set(), set(), set(), [])


async def discover(connection: Connection, partition: Partition, tick: Callable[[], None] = lambda: None) -> list[str]:
    """The names of all streams of a partition, within it. There is no list of them: this scans the keys of Redis."""
    found: set[str] = set()
    async for names in scan(connection, partition, "find_streams", type="stream"):
        found.update(names)
        tick()
    return sorted(name for name in found if name.startswith(("steps", "workflows")))


async def look_through(
    connection: Connection,
    partition: Partition,
    streams: Iterable[str],
    seen: Living,
    *,
    runs: Collection[str],
    most: float = inf,
    tick: Callable[[], None] = lambda: None,
) -> int:
    """Add to ``seen`` what stands in these streams behind the places it has come to, of these runs.

    How many entries that were. It stops behind ``most`` of them, and goes on from there when it is called again.
    """
    count = 0
    for stream in streams:
        while count < most and (entries := await _page(connection, partition.tag + stream, seen.place(stream))):
            texts = [(entry.decode(), fields_of(pairs)) for entry, pairs in entries]
            mine = [(entry, fields, run) for entry, fields in texts if (run := _run_of(fields)) in runs]
            alive = await _deliverable(connection, partition.tag + stream, [entry for entry, _, _ in mine])
            for entry, fields, run in mine:
                if entry not in alive:
                    seen.settled_by_hand.append((stream, entry, run))
                else:
                    _note(seen, run, fields)
            seen.places[stream] = texts[-1][0]
            count += len(entries)
            tick()
            if len(entries) < _PAGE:
                break
        seen.places.setdefault(stream, "0-0")
    return count


async def _page(connection: Connection, key: str, after: str) -> Any:
    return await connection.run("read_entries", lambda: connection.commands.xrange(key, f"({after}", "+", count=_PAGE))


async def _deliverable(connection: Connection, key: str, entries: list[str]) -> set[str]:
    """Those of these entries that a worker holds or will be handed: not what somebody has acknowledged and left."""
    if not entries:
        return set()
    try:
        found = await connection.run("look_at_group", lambda: connection.commands.xinfo_groups(key))
    except ResponseError:
        found = []  # the stream is gone
    ours = our_group(found)
    if ours is None:
        return set(entries)  # the group will be made again at 0 and deliver them all
    last = entry_number(ours["last-delivered-id"])
    delivered = [entry for entry in entries if entry_number(entry) <= last]
    return set(entries).difference(delivered) | await _held(connection, key, delivered)


async def _held(connection: Connection, key: str, delivered: list[str]) -> set[str]:
    """Those of these entries that are pending under somebody.

    Asked after the group: what is delivered in between counts as undelivered.
    """
    if not delivered:
        return set()

    def look(pipe: Any) -> None:
        for entry in delivered:
            pipe.xpending_range(key, GROUP, entry, entry, count=1)

    pending = await connection.pipe("look_at_entries", look, raises="none")
    return {entry for entry, found in zip(delivered, pending, strict=True) if isinstance(found, Exception) or found}


def _note(seen: Living, run: str, fields: dict[str, bytes]) -> None:
    try:
        message = messages.decode(fields.get("msg", b""))
    except MalformedMessage:
        seen.illegible.add(run)
        return
    seen.messages.add((run, message.message_id))
    if isinstance(message, StepMessage):
        seen.steps.add((run, message.step_id))


def _run_of(fields: dict[str, bytes]) -> str:
    if run := text_of(fields.get("run", b"")):
        return run
    try:
        return messages.decode(fields.get("msg", b"")).run_id
    except MalformedMessage:
        return ""
