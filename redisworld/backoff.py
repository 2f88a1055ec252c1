"""How long does a failed attempt wait before the next?"""

from __future__ import annotations

import math
from random import Random

import msgspec

from redisworld.errors import InvalidInput


class Backoff(msgspec.Struct, frozen=True):
    """Exponential backoff: ``first_ms``, then ``factor`` times as long each time, at most ``cap_ms``.

    ``jitter`` is the share by which chance may shorten a delay: 0.1 gives between 90 % and 100 % of it, so that
    steps that failed together do not come back together. Raises InvalidInput for numbers that make no sense.
    """

    first_ms: int = 1_000
    factor: float = 2.0
    cap_ms: int = 60_000
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if self.first_ms < 1 or self.cap_ms < 1:
            raise InvalidInput(f"backoff: first_ms and cap_ms must be at least 1, not {self.first_ms}, {self.cap_ms}")
        if not 1 <= self.factor < math.inf:
            raise InvalidInput(f"backoff: factor must be a finite number from 1, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise InvalidInput(f"backoff: jitter must be between 0 and 1, not {self.jitter}")

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
