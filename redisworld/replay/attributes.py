"""What does a body know of its run's attributes? What the log has set before this place, and what it set itself.

The count has to be known where the body sets one too many: it is told right there, where it can catch it. Others set
attributes too; that they were faster only the commit finds, which fails the run then (INVALID_COMMIT).
"""

from __future__ import annotations

from redisworld.attributes import MOST, Changes, decode, merge
from redisworld.errors import InvalidInput, MalformedMessage
from redisworld.replay.commands import SetAttributes


class AskedAttributes:
    """Attributes the body asked to set."""

    def __init__(self, number: int, id: str, changes: Changes) -> None:
        self.number = number
        self.id = id
        self.changes = changes

    def __str__(self) -> str:
        return f"attributes {self.changes!r:.200}"

    def command(self) -> SetAttributes:
        """The command that sets them."""
        return SetAttributes(self.id, self.changes)


class Attributes:
    """The attributes of the run as far as its body has come."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def set(self, changes: Changes) -> None:
        """The body sets some. Raises InvalidInput where they would be too many."""
        merged = merge(self._known, changes)
        if len(merged) > MOST:
            raise InvalidInput(f"the run would have {len(merged)} attributes, at most {MOST}: take some away with None")
        self._known = merged

    def others_set(self, payload: bytes) -> None:
        """The log has some that a step or somebody outside has set; what cannot be read is not the body's to judge."""
        try:
            self._known = merge(self._known, decode(payload).changes)
        except MalformedMessage:
            return
