"""What do the last events of a run's log say of some steps, timers and hooks?"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from redisworld import events
from redisworld.errors import MalformedMessage
from redisworld.events import Event, EventKind

if TYPE_CHECKING:
    from redisworld.world.world import World

_PAGE = 100
_PAGES = 10


async def find_recent(
    world: World, run_id: str, log_length: int, *, ids: Collection[str], kinds: Collection[EventKind]
) -> dict[str, Event]:
    """The latest event of these kinds of each id, as far as the last 1,000 events have one; ten commands at most."""
    found: dict[str, Event] = {}
    end = log_length
    for _ in range(_PAGES):
        start = max(0, end - _PAGE)
        if end <= 0 or len(found) == len(ids):
            break
        for element in reversed(await world.log(run_id, start, end - start)):
            try:
                event = events.parse(element)
            except MalformedMessage:
                continue
            if event.kind in kinds and event.id in ids:
                found.setdefault(event.id, event)
        end = start
    return found
