"""Which keys did a test leave in Redis that no key of ours may be? (style guide 15, design section 5)"""

from __future__ import annotations

import redis

from redisworld.keys import PREFIX
from redisworld.runs import TERMINAL

PROBE_PREFIX = "probe:"
"""Keys a test makes for itself, e.g. a list that step bodies push to, begin with this."""


def problems(raw: redis.Redis) -> list[str]:
    """One sentence for every key with a foreign name, and for every key of an open run that would expire."""
    names = sorted(name.decode() for name in raw.scan_iter(count=1000))
    foreign = [
        f"key {name!r} begins with neither {PREFIX!r} nor {PROBE_PREFIX!r}"
        for name in names
        if not name.startswith((PREFIX, PROBE_PREFIX))
    ]
    return foreign + _expiring_keys_of_open_runs(raw, names)


def _expiring_keys_of_open_runs(raw: redis.Redis, names: list[str]) -> list[str]:
    statuses = _run_rows(raw, names)
    found = []
    for name in names:
        row = _owner(name, statuses)
        if row is None or statuses[row] in TERMINAL:
            continue
        if (ttl_ms := int(raw.pttl(name))) != -1:
            found.append(f"key {name!r} of the open run in {row!r} ({statuses[row]}) has a TTL of {ttl_ms} ms")
    return found


def _run_rows(raw: redis.Redis, names: list[str]) -> dict[str, str]:
    """Status by the key of each run row: a hash named ``…}:run:…`` that holds a status."""
    rows = {}
    for name in names:
        if name.startswith(PREFIX) and "}:run:" in name and raw.type(name) == b"hash":
            status = raw.hget(name, "status")
            if isinstance(status, bytes):
                rows[name] = status.decode()
    return rows


def _owner(name: str, rows: dict[str, str]) -> str | None:
    """The row a key belongs to; of two, the longer one, because run ids may hold colons."""
    owners = [row for row in rows if name == row or name.startswith(f"{row}:")]
    return max(owners, key=len, default=None)
