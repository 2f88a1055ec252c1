"""How does a process keep what it counts at every step? In plain dicts by label values: nothing is cheaper.

They know no lock: one thread at a time writes them, and any may copy them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

Labels = str | tuple[str, ...]
"""The values of the labels of a series: of one label by itself; of none ``()``."""


def as_they_are(labels: Labels) -> Labels:
    """All values may be labels."""
    return labels


class Numbers(dict[Labels, float]):
    """A number for each series, 0 from when it is first asked for."""

    def __missing__(self, labels: Labels) -> float:
        self[labels] = 0
        return 0


class Spreads(dict[Labels, list[float]]):
    """How many values each bucket of a series has, the last one those above all ``bounds``; after them their sum.

    ``named`` makes values to labels that are bounded: those that it changes have the series of what it makes of them.
    """

    def __init__(self, bounds: tuple[float, ...], named: Callable[[Labels], Labels] = as_they_are) -> None:
        super().__init__()
        self.bounds = bounds
        self._named = named

    def __missing__(self, labels: Labels) -> list[float]:
        known = self._named(labels)
        if known != labels:
            return self[known]
        self[labels] = cells = [0.0] * (len(self.bounds) + 2)
        return cells

    def add(self, labels: Labels, value: float) -> None:
        """One more value."""
        cells = self[labels]
        cells[bisect_left(self.bounds, value)] += 1
        cells[-1] += value

    def by(self, first: int) -> dict[tuple[str, ...], list[float]]:
        """A copy, of which only so many first labels are left: all series that share them are one."""
        merged: dict[tuple[str, ...], list[float]] = {}
        for labels, cells in self.copy().items():
            words = words_of(labels)[:first]
            there = merged.get(words)
            merged[words] = cells.copy() if there is None else [a + b for a, b in zip(there, cells, strict=True)]
        return merged

    def counts(self) -> dict[Labels, float]:
        """How many values each series has."""
        return {labels: sum(cells[:-1]) for labels, cells in self.copy().items()}


def words_of(labels: Labels) -> tuple[str, ...]:
    """As a tuple, whatever they are."""
    return (labels,) if isinstance(labels, str) else labels
