"""Where are messages of a run now: unread in a stream, or held by whom, since when, for the how many-th time?

A message was published at a time that the log knows, and the ids of entries are times. So a look begins there, not at
the head of a stream that may be long, and goes a bounded way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from redisworld import messages
from redisworld.errors import MalformedMessage
from redisworld.keys import GROUP, Partition
from redisworld.world.queue import fields_of
from redisworld.world.refusals import is_transient
from redisworld.world.replies import text_of

if TYPE_CHECKING:
    from redisworld.world.world import World

_PAGE = 100
_PAGES = 10
_EARLIER_MS = 1_000
"""An event's time is never below the one before, so it may be a little later than the entry's."""


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is. Without a ``consumer`` it is unread; ``held`` says that one has it."""

    stream: str
    entry: str
    consumer: str = ""
    idle_ms: int = 0
    """Since the consumer was handed it, or has last renewed it."""
    deliveries: int = 0

    @property
    def held(self) -> bool:
        """Whether somebody has it."""
        return bool(self.consumer)


async def find_messages(
    world: World, run_id: str, ids: Collection[str], *, streams: Sequence[str], since: int
) -> dict[str, Whereabouts]:
    """The places of those of a run's messages, by message id, that stand in the first 1,000 entries since then.

    ``since`` is epoch ms. At most ten commands for each stream, and one for each message that is found.
    """
    partition = world.partition(run_id)
    found: dict[str, tuple[str, str]] = {}
    for stream in streams:
        start = f"{max(0, since - _EARLIER_MS)}-0"
        for _ in range(_PAGES):
            if len(found) == len(ids):
                break
            page = await _page(world, partition.tag + stream, start)
            for entry, pairs in page:
                if (id := _message_id(fields_of(pairs), run_id)) in ids:
                    found[id] = (stream, entry.decode())
            if len(page) < _PAGE:
                break
            start = f"({page[-1][0].decode()}"
    places = await holders(world, partition, list(found.values()))
    return {
        id: place or Whereabouts(stream=stream, entry=entry)
        for (id, (stream, entry)), place in zip(found.items(), places, strict=True)
    }


async def holders(world: World, partition: Partition, entries: Sequence[tuple[str, str]]) -> list[Whereabouts | None]:
    """Who holds these entries (stream and id): None for one that is pending under nobody. One command each."""

    def look(pipe: Any) -> None:
        for stream, entry in entries:
            pipe.xpending_range(partition.tag + stream, GROUP, entry, entry, count=1)

    answers = await world.connection.pipe("find_holders", look, raises="none") if entries else []
    places: list[Whereabouts | None] = []
    for (stream, entry), answer in zip(entries, answers, strict=True):
        if isinstance(answer, Exception) and is_transient(answer):
            raise answer
        if isinstance(answer, Exception) or not answer:  # no such stream or group: nobody holds it
            places.append(None)
            continue
        pending = answer[0]
        places.append(
            Whereabouts(
                stream=stream,
                entry=entry,
                consumer=text_of(pending["consumer"]),
                idle_ms=pending["time_since_delivered"],
                deliveries=pending["times_delivered"],
            )
        )
    return places


async def _page(world: World, key: str, start: str) -> Any:
    connection = world.connection
    return await connection.run("find_messages", lambda: connection.commands.xrange(key, start, "+", count=_PAGE))


def _message_id(fields: dict[str, bytes], run_id: str) -> str:
    """The id of a message of this run, else ``""``."""
    if fields.get("run", run_id.encode()) != run_id.encode():
        return ""
    try:
        message = messages.decode(fields.get("msg", b""))
    except MalformedMessage:
        return ""
    return message.message_id if message.run_id == run_id else ""
