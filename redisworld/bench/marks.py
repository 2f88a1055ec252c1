"""When did a body start? It writes CLOCK_MONOTONIC into a slot of a memory map that all processes of a bench share.

One clock for all processes of a machine, and well under a microsecond a mark: a message or a log line would be
measured along with the step.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redisworld.errors import RedisworldError

VARIABLE = "REDISWORLD_BENCH_MARKS"
"""Path of the map, for the processes a bench starts. No setting: it means nothing outside of one bench."""

_WIDTH = 8


class NotMeasured(RedisworldError):
    """A workload did not come to its end, so there is no figure to give."""


class Marks:
    """The slots of one bench. Slots are given out once: a late duplicate cannot be taken for another body."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._slots = memoryview(self._map).cast("q")
        self._given = 0

    def close(self) -> None:
        """Unmap."""
        self._slots.release()
        self._map.close()

    def give(self, count: int) -> int:
        """The first of ``count`` slots that nobody had."""
        first, self._given = self._given, self._given + count
        if self._given > len(self._slots):
            raise ValueError(f"this bench was made with {len(self._slots)} slots, and {self._given} are asked for")
        return first

    def mark(self, slot: int) -> None:
        """Stamp a slot, once: the first start counts. A negative slot is nobody's."""
        if slot >= 0 and not self._slots[slot]:
            self._slots[slot] = time.monotonic_ns()

    def read(self, first: int, count: int) -> list[int]:
        """The stamps, ns; 0 where no body started."""
        return self._slots[first : first + count].tolist()

    async def wait(
        self,
        first: int,
        count: int,
        *,
        timeout_s: float,
        poll_s: float = 0.001,
        alive: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[int]:
        """The stamps, once all of them are there. ``alive`` raises when waiting is useless. Raises NotMeasured."""
        deadline, done = time.monotonic() + timeout_s, 0
        while True:
            while done < count and self._slots[first + done]:
                done += 1
            if done == count:
                return self.read(first, count)
            alive()
            progress(done)
            if time.monotonic() > deadline:
                started = sum(map(bool, self.read(first, count)))
                raise NotMeasured(f"only {started} of {count} bodies started within {timeout_s:.0f} s")
            await asyncio.sleep(poll_s)


@contextmanager
def made(path: Path, count: int) -> Iterator[Marks]:
    """New slots in a new file."""
    with path.open("xb") as file:
        file.truncate(count * _WIDTH)
    marks = Marks(path)
    try:
        yield marks
    finally:
        marks.close()


def inherited() -> Marks | None:
    """The marks of the bench that started this process, or None outside of one."""
    path = os.environ.get(VARIABLE)
    return Marks(Path(path)) if path else None
