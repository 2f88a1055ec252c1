"""What do the chaos tests look at in Redis?"""

from __future__ import annotations

from collections import Counter

import redis

from redisworld.events import EventKind
from redisworld.keys import GROUP
from tests.chaos import invariants
from tests.chaos.processes import eventually


def notes(raw: redis.Redis, run_id: str) -> Counter[str]:
    """How often each body of a run has really run."""
    return Counter(note.decode() for note in raw.lrange(f"probe:{run_id}", 0, -1))


def logged(raw: redis.Redis, run_id: str, namespace: str = "default") -> dict[EventKind, list[tuple[str, int]]]:
    """(step or wait id, attempt) of each event of a run, by kind."""
    found: dict[EventKind, list[tuple[str, int]]] = {kind: [] for kind in EventKind}
    for partition in invariants.partitions(raw, namespace):
        for event in invariants.log_of(raw, partition, run_id):
            found[event.kind].append((event.id, event.attempt))
    return found


async def settled(raw: redis.Redis, namespace: str = "default", *, timeout: float = 10) -> None:
    """Wait until nothing is queued or pending any more."""
    await eventually(lambda: invariants.queued(raw, namespace) == 0, timeout=timeout, what="all streams empty")


def consumers(raw: redis.Redis, namespace: str = "default") -> set[str]:
    """Names of all consumers that Redis still lists."""
    return {
        consumer["name"].decode()
        for partition in invariants.partitions(raw, namespace)
        for stream in invariants.streams(raw, partition)
        for consumer in (raw.xinfo_consumers(stream, GROUP) if raw.xinfo_groups(stream) else [])
    }


def held_by(raw: redis.Redis, pid: int, kind: str = "steps", namespace: str = "default") -> int:
    """Deliveries pending under the process ``pid``."""
    total = 0
    for partition in invariants.partitions(raw, namespace):
        for stream in invariants.streams(raw, partition):
            if partition.short(stream).startswith(kind) and raw.xinfo_groups(stream):
                total += sum(
                    c["pending"] for c in raw.xinfo_consumers(stream, GROUP) if f":{pid}:" in c["name"].decode()
                )
    return total
