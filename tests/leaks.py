"""Which keys did a test leave in Redis that no key of ours may be? (style guide 15, design section 5)"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
    ours = [name for name in names if name.startswith(PREFIX)]
    statuses = _run_rows(raw, ours)
    rows = {name: row for name in ours if (row := _owner(name, statuses)) and statuses[row] not in TERMINAL}
    return [
        f"key {name!r} of the open run in {row!r} ({statuses[row]}) has a TTL of {ttl_ms} ms"
        for (name, row), ttl_ms in zip(rows.items(), _asked(raw, "PTTL", rows), strict=True)
        if ttl_ms != -1
    ]


def _run_rows(raw: redis.Redis, names: list[str]) -> dict[str, str]:
    """Status by the key of each run row: a hash named ``…}:run:…`` that holds a status."""
    named = [name for name in names if "}:run:" in name]
    hashes = [name for name, kind in zip(named, _asked(raw, "TYPE", named), strict=True) if kind == b"hash"]
    found = zip(hashes, _asked(raw, "HGET", hashes, "status"), strict=True)
    return {name: status.decode() for name, status in found if status is not None}


def _asked(raw: redis.Redis, command: str, names: Iterable[str], *more: str) -> list[Any]:
    """What a command says of each key, all in one round trip."""
    with raw.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.execute_command(command, name, *more)
        return pipeline.execute()


def _owner(name: str, rows: dict[str, str]) -> str | None:
    """The row a key belongs to: the longest that the key is, or begins with before a colon; run ids may hold some."""
    parts = name.split(":")
    heads = (":".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((head for head in heads if head in rows), None)
