"""How do people write and read a length of time, and what is it in milliseconds?"""

from __future__ import annotations

import math
import re
from datetime import timedelta

from redisworld.errors import InvalidInput

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|s|m|h|d|w)\s*)+")

MAX_MS = 100 * 365 * 86_400_000
"""A hundred years: longer is a mistake of units, and still far inside a double's exact integers."""


def parse_ms(duration: timedelta | float | str) -> int:
    """Milliseconds of a timedelta, of a number of seconds, or of text like ``"1h 30m"`` or ``"250ms"``.

    Rounded up to a whole millisecond. Raises InvalidInput for anything else, negative, NaN or beyond 100 years.
    """
    if isinstance(duration, timedelta):
        ms = duration / timedelta(milliseconds=1)
    elif isinstance(duration, str):
        if not _WHOLE.fullmatch(duration.strip()):
            raise InvalidInput(f"cannot read duration {duration!r}: write it like '90s', '1h 30m' or '250ms'")
        ms = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(duration))
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        ms = duration * 1_000.0 if abs(duration) < MAX_MS else math.inf
    else:
        raise InvalidInput(f"cannot read duration {duration!r}: give seconds, a timedelta, or text like '1h 30m'")
    if not 0 <= ms <= MAX_MS:
        raise InvalidInput(f"duration {duration!r} is out of range: between 0 and 100 years")
    return math.ceil(round(ms, 6))


def named_ms(name: str, duration: timedelta | float | str) -> int:
    """As ``parse_ms``; what it refuses is told under the name of the parameter."""
    try:
        return parse_ms(duration)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error


def length(ms: float) -> str:
    """A length of time with the digits that matter."""
    if ms < 1_000:
        return f"{ms:.4g} ms"
    if ms < 120_000:
        return f"{ms / 1000:.2f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return " ".join(f"{number}{unit}" for number, unit in parts if number)
