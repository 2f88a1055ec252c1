"""What is there to know about the hook that holds a token? Its pointer, its state and its log say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redisworld import events, values
from redisworld.errors import HookNotFound
from redisworld.events import Event, EventKind
from redisworld.keys import check_token

if TYPE_CHECKING:
    from redisworld.world.world import World

_OF_HOOKS = b"hook_"
"""How the headers of their events begin: only those are parsed of a long log."""


class HookInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An open hook. ``created_at`` is epoch ms by Redis; ``received`` counts the payloads it was handed so far."""

    token: str
    run_id: str
    hook_id: str
    created_at: int
    metadata: Any = None
    received: int = 0


async def read_hook(world: World, token: str) -> HookInfo:
    """The open hook that holds a token; reads the log of its run page by page. Raises HookNotFound, InvalidInput."""
    holder = await world.hooks.find(check_token(token))
    created: Event | None = None
    received = number = 0
    while page := await world.log(holder.run_id, number):
        number += len(page)
        for event in (events.parse(element) for element in page if element.startswith(_OF_HOOKS)):
            if event.id != holder.hook_id:
                continue
            match event.kind:
                case EventKind.HOOK_CREATED:
                    created = event
                case EventKind.HOOK_RECEIVED:
                    received += 1
                case EventKind.HOOK_DISPOSED:  # since its state was read
                    raise HookNotFound(token)
    if created is None:  # still claiming the token
        raise HookNotFound(token)
    return HookInfo(
        token=token,
        run_id=holder.run_id,
        hook_id=holder.hook_id,
        created_at=created.at,
        metadata=values.decode(created.payload) if created.payload else None,
        received=received,
    )
