"""Which bodies stay in memory between two wakes? The ones that waited last; all others are replayed from their log.

A body that waits goes on from the events that are new to it, so a wake costs as much as what happened, not as much as
the log is long. Nothing depends on it: any worker may take the next wake and replay from the start, and a body that
does not fit the log any more is dropped (``Live.continues``).
"""

from __future__ import annotations

from collections import OrderedDict

from consumers.live import Live

MOST_EVENTS = 500_000
"""Events that all kept bodies have seen together: about 1 KB each, so half a gigabyte at the very most."""


class Sticky:
    """At most so many suspended bodies, by run id; whoever takes one has it alone."""

    def __init__(self, limit: int, *, most_events: int = MOST_EVENTS) -> None:
        self._limit = limit
        self._most_events = most_events
        self._bodies: OrderedDict[str, Live] = OrderedDict()
        self._events = 0

    def __len__(self) -> int:
        return len(self._bodies)

    def take(self, run_id: str) -> Live | None:
        """The body of this run, if it is here; it is not here any more then."""
        live = self._bodies.pop(run_id, None)
        if live is not None:
            self._events -= live.instance.consumed
        return live

    def keep(self, live: Live) -> None:
        """Keep a body that waits, and drop the ones that have waited longest where they are too many."""
        if (other := self.take(live.identity.run_id)) is not None:
            other.close()
        self._bodies[live.identity.run_id] = live
        self._events += live.instance.consumed
        while len(self._bodies) > self._limit or self._events > self._most_events:
            _, oldest = self._bodies.popitem(last=False)
            self._events -= oldest.instance.consumed
            oldest.close()

    def clear(self) -> None:
        """Drop all."""
        while self._bodies:
            self._bodies.popitem()[1].close()
        self._events = 0
