"""Who asks Redis for the state of the namespace when somebody scrapes?

From the scraper's thread, through a blocking client: a worker that is stuck, or has read nothing yet, tells the truth
all the same, and so does an exporter beside no worker at all.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from redisworld.errors import RedisUnavailable
from redisworld.state import State
from redisworld.state_metrics import StateCollector
from redisworld.world import StateReader, World


class Exporter:
    """Reads the state for scrapers; a context manager. Its methods may be called from any thread.

    Who comes while a read is under way waits for it and shares what it brings, also its failure: many scrapers, or one
    that repeats itself while Redis hangs, are one reader to Redis. Nothing is kept beyond that.
    """

    def __init__(self, world: World) -> None:
        self._faults = world.connection.faults
        self._reader = StateReader(world.connection, world.partitions)
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._state: State | None = None
        self._why: str | None = None
        self.collector = StateCollector(self.look)

    def __enter__(self) -> Exporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._reader.close()

    def look(self) -> State | None:
        """The state now, or None while Redis cannot be asked."""
        came = time.monotonic()
        with self._lock:
            if self._read_at < came:
                self._read()
            return self._state

    def alive(self) -> str | None:
        """None: whoever can ask is answered."""
        return None

    def ready(self) -> str | None:
        """None when the state can be read, else why not."""
        return None if self.look() is not None else self._why

    def _read(self) -> None:
        try:
            self._state, self._why = self._reader.read(), None
        except RedisUnavailable as error:
            self._state, self._why = None, str(error)
            self._faults.warn("redis", "state not read", error=error)
        self._read_at = time.monotonic()
