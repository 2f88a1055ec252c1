"""How are moments, and lengths of time at a glance, written for people?"""

from __future__ import annotations

from datetime import UTC, datetime

_LAST_MS = 253_402_300_799_000
"""The end of the year 9999, where the calendar of Python ends: what a stranger has written may be any number."""


def iso(at_ms: int) -> str:
    """A moment, epoch ms by Redis, in UTC with milliseconds; ``-`` for 0, which stands for none."""
    if not at_ms:
        return "-"
    if not 0 < at_ms <= _LAST_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(ms: float) -> str:
    """A length of time at a glance: its two biggest units, whole seconds at least."""
    seconds = max(0, int(ms / 1000))
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days}d {hours}h" if hours else f"{days}d"
    if hours:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    return f"{minutes}m {seconds % 60}s" if minutes else f"{seconds}s"
