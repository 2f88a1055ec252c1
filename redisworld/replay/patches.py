"""Does a run go with a change of its code, or had it passed that place before? The same answer in every replay.

The first call of a name decides for the whole run:

1. A patch the log holds: True.
2. Else, where a pass has been at this place whose doings the log holds (the events consumed so far are at most
   ``passed_to``): False, for that pass ran code without this call. Nothing is recorded; it stays so, since
   ``passed_to`` only grows and a patch is recorded by its first call alone.
3. Else the body has never been here: True, and the commit of this pass records it with what the body asks for.

So a decision is known before the body begins (both facts are in the row, read in one script with the log), a pass that
is lost takes its decisions with it, and a body in memory agrees with one replayed from the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from redisworld.errors import InvalidInput

MOST_PATCHES = 100
"""Names of one run: they are read with every load. A run that meets more changes has outlived its code."""

_NAME = re.compile(r"[^\s|]{1,100}")


class Patches:
    """The decisions of one instance."""

    def __init__(self) -> None:
        self._passed_to = 0
        self._recorded: frozenset[str] = frozenset()
        self._decided: dict[str, bool] = {}
        self.unrecorded: dict[str, None] = {}
        """Decided here, and not in the log yet."""

    def learn(self, passed_to: int, recorded: Iterable[str]) -> None:
        """What the row says."""
        self._passed_to = passed_to
        self._recorded = frozenset(recorded)

    def decide(self, name: str, consumed: int) -> bool:
        """Whether the body at this place goes with the change. Raises InvalidInput."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.isprintable():
            raise InvalidInput(f"patched({name!r}): a name is a word of 1 to 100 characters without blanks and |")
        if name not in self._decided:
            if len(self._decided) >= MOST_PATCHES:
                raise InvalidInput(f"patched({name!r}): a run has at most {MOST_PATCHES} patches")
            self._decided[name] = self._first(name, consumed)
        return self._decided[name]

    def committed(self) -> None:
        """The log holds all decisions."""
        self.unrecorded.clear()

    def _first(self, name: str, consumed: int) -> bool:
        if name in self._recorded:
            return True
        if 0 < self._passed_to >= consumed:
            return False
        self.unrecorded[name] = None
        return True
