"""What do asyncio and anyio put into sets that hashes by its address, and how does it get an order that repeats?

A set of such objects iterates in another order in every process, and with it the steps that are asked for: anyio
cancels the scopes of a task group so, and ``asyncio.wait`` gives back gathers so. Tasks, futures and step calls are our
own classes and hash by number; these two classes are not.

The scope of ours is also where anyio's cancellation is kept from spinning.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import math
from asyncio import events
from typing import Any, Final

from anyio._backends import _asyncio as anyio_asyncio

from redisworld.replay.loop import ReplayLoop

MAX_DELIVERIES = 100
"""How often in one piece of a body a scope cancels what does not end for it."""

_Gather: Final[Any] = getattr(asyncio.tasks, "_GatheringFuture")  # noqa: B009  # typeshed does not have it


class _Scope(anyio_asyncio.CancelScope):
    """A cancel scope that in a body hashes by its number and does not spin, and is as ever elsewhere.

    anyio cancels what is in a cancelled scope again and again, in every cycle of the loop, until it ends. A task that
    waits for another one's clean-up, such as the host of an ``asyncio.TaskGroup``, ends only after a later event.
    """

    __slots__ = ("_deliveries", "_hash", "_piece")

    def __init__(self, deadline: float = math.inf, shield: bool = False) -> None:
        super().__init__(deadline, shield)
        self._piece, self._deliveries = 0, 0
        loop = events._get_running_loop()
        if isinstance(loop, ReplayLoop):
            self._hash = loop.hash_base + loop.next_number()
        else:
            self._hash = object.__hash__(self)

    def __hash__(self) -> int:
        return self._hash

    def _deliver_cancellation(self, origin: anyio_asyncio.CancelScope) -> bool:
        again = super()._deliver_cancellation(origin)
        loop = events._get_running_loop()
        if origin is self and self._cancel_handle is not None and isinstance(loop, ReplayLoop):
            if self._piece != loop.piece:
                self._piece, self._deliveries = loop.piece, 0
            self._deliveries += 1
            if self._deliveries >= MAX_DELIVERIES:
                loop.put_off(self._cancel_handle)
        return again


def _hash_of_gather(self: Any) -> int:
    if type(self.get_loop()) is ReplayLoop:
        return hash(self._children[0])  # without children, gather makes a future of the loop
    return object.__hash__(self)


def install() -> None:
    """Let what anyio and asyncio make from now on hash so; a repeat changes nothing."""
    _Gather.__hash__ = _hash_of_gather
    # A class of the same name in the place where all of anyio looks it up.
    _Scope.__name__, _Scope.__qualname__ = (anyio_asyncio.CancelScope.__name__,) * 2
    anyio_asyncio.CancelScope = _Scope  # type: ignore[misc]
