"""What would KEDA read of a stream, and how many pods would it want?

The arithmetic of its redis-streams scaler (kedacore/keda 2.20 on go-redis 9.22) and of the HPA behind it, for the
trigger metadata that the chart renders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import redis

NULL_LAG = -1
"""What go-redis makes of a lag that Redis does not know: KEDA takes it for an empty queue and scales down."""


def reading(client: redis.Redis, trigger: Mapping[str, str]) -> int:
    """The number KEDA gets for a trigger. Raises redis.ResponseError where its scaler would fail."""
    stream, group = trigger["stream"], trigger.get("consumerGroup", "")
    if not group:
        whole: int = client.xlen(stream)
        return whole
    if "lagCount" not in trigger:
        pending: int = client.xpending(stream, group)["pending"]
        return pending
    if int(client.info("server")["redis_version"].split(".")[0]) < 7:
        raise RuntimeError("KEDA asks for Redis 7 to read a lag")
    try:
        groups = client.xinfo_groups(stream)
    except redis.ResponseError as error:
        if "no such key" in str(error):
            return 0
        raise
    for each in groups:
        if each["name"] == group.encode():
            return NULL_LAG if each["lag"] is None else int(each["lag"])
    length: int = client.xlen(stream)
    return length


def readings(client: redis.Redis, triggers: Iterable[Mapping[str, str]]) -> list[int | None]:
    """The number of each trigger; None for one whose scaler fails, which counts as inactive."""

    def one(trigger: Mapping[str, str]) -> int | None:
        try:
            return reading(client, trigger)
        except redis.exceptions.NoPermissionError:
            raise
        except redis.ResponseError:
            return None

    return [one(trigger) for trigger in triggers]


def target(trigger: Mapping[str, str]) -> int:
    """How much of what is counted one more pod is worth."""
    (count,) = (trigger[name] for name in ("lagCount", "pendingEntriesCount", "streamLength") if name in trigger)
    return int(count)


def wanted(client: redis.Redis, triggers: list[Mapping[str, str]]) -> int:
    """Pods that KEDA wants: none while no trigger is above its activation of 0, else the most that one asks for."""
    counts = [
        (count or 0, target(trigger)) for count, trigger in zip(readings(client, triggers), triggers, strict=True)
    ]
    if all(count <= 0 for count, _ in counts):
        return 0
    return max(1, *(math.ceil(count / each) for count, each in counts))
