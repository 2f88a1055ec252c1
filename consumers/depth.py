"""What do the gauges of depth show? What Redis says at the moment of the scrape, never what this process remembers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from redisworld.errors import RedisUnavailable
from redisworld.observe import DepthSeen, WaitingSeen, observe
from redisworld.world import DepthReader, Stream, World

_FRESH_S = 0.5
"""Scrapers that come together share one look."""


class DepthGauges:
    """Tells observers how much waits; a context manager. ``look`` may be called from any thread."""

    def __init__(self, world: World, streams: Sequence[Stream]) -> None:
        self._faults = world.connection.faults
        self._reader = DepthReader(world.connection, world.partitions, streams)
        self._lock = threading.Lock()
        self._looked = 0.0

    def __enter__(self) -> DepthGauges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()

    def look(self) -> None:
        """Ask Redis and tell. While Redis is away the gauges keep what they showed; ``redis_unavailable`` says so."""
        with self._lock:
            if time.monotonic() - self._looked < _FRESH_S:
                return
            try:
                seen = self._reader.read()
            except RedisUnavailable as error:
                self._faults.warn("redis", str(error))
                return
            self._looked = time.monotonic()
        for name, depth in seen.streams.items():
            observe(DepthSeen(name, depth.length, depth.pending, depth.oldest_pending_s, depth.oldest_unread_s))
        observe(WaitingSeen(seen.delayed, seen.dead_letters))
