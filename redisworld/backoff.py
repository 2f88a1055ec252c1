"""How long does a failed attempt wait before the next?"""

from __future__ import annotations

import math
from datetime import timedelta
from random import Random

import msgspec

from redisworld.durations import MAX_MS, named_ms
from redisworld.errors import InvalidInput

FIRST = "1s"
MAX = "1m"
JITTER = 0.1


class Backoff(msgspec.Struct, frozen=True):
    """Exponential backoff: ``first_ms``, then ``factor`` times as long each time, at most ``cap_ms``.

    ``jitter`` is the share by which chance may shorten a delay: 0.1 gives between 90 % and 100 % of it, so that
    steps that failed together do not come back together. ``Backoff.fixed`` and ``Backoff.exponential`` take durations
    as people write them. Raises InvalidInput for numbers that make no sense.
    """

    first_ms: int = 1_000
    factor: float = 2.0
    cap_ms: int = 60_000
    jitter: float = JITTER

    def __post_init__(self) -> None:
        for name in ("first_ms", "cap_ms"):
            if not _is_whole(value := getattr(self, name)) or not 1 <= value <= MAX_MS:
                raise InvalidInput(
                    f"backoff: {name} must be a whole number of milliseconds, 1 to 100 years, not {value!r}"
                )
        if not _is_number(self.factor) or not 1 <= self.factor < math.inf:
            raise InvalidInput(f"backoff: factor must be a finite number from 1, not {self.factor!r}")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise InvalidInput(f"backoff: jitter must be between 0 and 1, not {self.jitter!r}")

    @classmethod
    def fixed(cls, delay: timedelta | float | str, *, jitter: float = 0.0) -> Backoff:
        """The same delay after every failure: a timedelta, seconds, or text like ``"5s"``."""
        delay_ms = _read_ms("delay", delay)
        return cls(first_ms=delay_ms, factor=1.0, cap_ms=delay_ms, jitter=jitter)

    @classmethod
    def exponential(
        cls,
        first: timedelta | float | str = FIRST,
        *,
        factor: float = 2.0,
        max: timedelta | float | str = MAX,
        jitter: float = JITTER,
    ) -> Backoff:
        """``first``, then ``factor`` times as long after each failure, never longer than ``max``."""
        first_ms, cap_ms = _read_ms("first", first), _read_ms("max", max)
        if cap_ms < first_ms:
            raise InvalidInput(f"backoff: max={max!r} is shorter than first={first!r}")
        return cls(first_ms=first_ms, factor=factor, cap_ms=cap_ms, jitter=jitter)

    def delay_ms(self, attempt: int, rng: Random | None = None) -> int:
        """Milliseconds to wait after failed attempt number ``attempt`` (from 1), in (0, cap_ms].

        Without ``rng`` there is no jitter, and the delay never falls from one attempt to the next.
        """
        growths = max(attempt - 1, 0)
        # Compared as logarithms: factor**growths overflows a float long before min() could cap it.
        capped = growths * math.log(self.factor) >= math.log(self.cap_ms / self.first_ms)
        delay = self.cap_ms if capped else min(self.first_ms * self.factor**growths, self.cap_ms)
        if rng is not None:
            delay *= 1 - self.jitter * rng.random()
        return max(int(delay), 1)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _read_ms(name: str, duration: timedelta | float | str) -> int:
    delay_ms = named_ms(f"backoff: {name}", duration)
    if delay_ms < 1:
        raise InvalidInput(f"backoff: {name} must be at least 1 ms, not {duration!r}")
    return delay_ms
