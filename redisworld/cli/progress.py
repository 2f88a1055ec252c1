"""How does a person see that a command moves? A bar on stderr, where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WIDTH = 30
_EVERY_S = 0.05


class Bar:
    """A line that is drawn over itself; silent where stderr is no terminal."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._terminal = sys.stderr.isatty()
        self._drawn = 0.0

    def show(self, done: int, note: str = "") -> None:
        """Draw, at most 20 times a second and always when it is full."""
        now = time.monotonic()
        if not self._terminal or (done < self._total and now - self._drawn < _EVERY_S):
            return
        self._drawn = now
        full = _WIDTH * done // self._total
        bar = "█" * full + "░" * (_WIDTH - full)
        print(f"\r{self._label} {bar} {done}/{self._total}  {note}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line, so that what follows begins on its own."""
        if self._terminal and self._drawn:
            print(file=sys.stderr)


@contextmanager
def bar(label: str, total: int) -> Iterator[Bar]:
    """A bar for the length of the ``with`` block."""
    shown = Bar(label, total)
    try:
        yield shown
    finally:
        shown.end()


@contextmanager
def moving() -> Iterator[Callable[[str, int, int], None]]:
    """For what has several parts: called with a part's label, how much is done and of how much."""
    current: list[tuple[str, Bar]] = []

    def show(label: str, done: int, total: int) -> None:
        if not current or current[-1][0] != label:
            current[:] = [(label, Bar(label, total))]
        current[-1][1].show(done)

    try:
        yield show
    finally:
        if current:
            current[-1][1].end()
