"""How are the attributes of a run read, and set from outside its body?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redisworld.attributes import Changes
from redisworld.errors import InvalidInput, MalformedMessage, RunGone, RunNotFound
from redisworld.messages import UNREADABLE
from redisworld.world.refusals import readable

if TYPE_CHECKING:
    from redisworld.world.world import World


class Attributes:
    """The attributes of runs."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def read(self, run_id: str) -> dict[str, str]:
        """All of them, also of a run that has ended. Raises RunNotFound, and MalformedMessage."""
        connection, key = self._world.connection, self._world.partition(run_id).run(run_id)
        with readable(f"run {run_id!r}"):
            status, found = await connection.run(
                "read_attributes", lambda: connection.commands.hmget(key, "status", "attributes")
            )
        if status is None:
            raise RunNotFound(run_id)
        try:
            return msgspec.json.decode(found, type=dict[str, str]) if found else {}
        except UNREADABLE as error:
            raise MalformedMessage(f"the attributes of run {run_id!r} cannot be read: {error}") from error

    async def set(self, run_id: str, changes: Changes, *, writer: str = "") -> None:
        """Set them now, once, also when the reply is lost and the call is made again.

        ``writer`` is the id of the step that sets them. Raises RunNotFound, RunGone for a run that has ended,
        InvalidInput where they would be too many, RedisUnavailable.
        """
        answer = await self._world.events.attr_set(run_id, changes, id=self._world.next_token(), writer=writer)
        if answer.outcome == "not_found":
            raise RunNotFound(run_id)
        if answer.outcome == "gone":
            raise RunGone(f"run {run_id!r} is {answer.detail}: its attributes stay as they are", run_id=run_id)
        if answer.outcome == "full":
            raise RunGone(f"run {run_id!r} has ended: its log was full (MAX_EVENTS_EXCEEDED)", run_id=run_id)
        if answer.outcome == "invalid":
            raise InvalidInput(f"run {run_id!r}: {answer.detail}; take some away with None")
