"""Is each key that a namespace and its partitions have of its type? One that is not, nobody can work with or list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redisworld.keys import Partition, listed_streams, listed_workers
from redisworld.runs import Status
from redisworld.world.findings import Finding

if TYPE_CHECKING:
    from redisworld.world.world import World


async def examine_types(world: World, wanted: dict[str, str]) -> list[Finding]:
    """Keys in the place of ours that are of another type than ``wanted`` for them; one round trip."""
    found = await world.connection.pipe("look_at_types", lambda pipe: [pipe.type(key) for key in wanted])
    return [
        Finding(code="foreign_key", what=f"{key} is a {there.decode()}, and has to be a {kind}", where=(key,))
        for (key, kind), there in zip(wanted.items(), found, strict=True)
        if there.decode() not in ("none", kind)
    ]


def types_of_lists(namespace: str) -> dict[str, str]:
    """Of the lists of a namespace, as the table in ``keys.py`` has them."""
    return {listed_workers(namespace): "set", listed_streams(namespace): "zset"}


def types_of(partition: Partition) -> dict[str, str]:
    """Of the keys that every partition has, likewise."""
    indexes = [partition.index("created"), *(partition.index(f"status:{status}") for status in Status)]
    return {
        **dict.fromkeys((partition.steps(), partition.workflows(), partition.dead, partition.nudge), "stream"),
        **dict.fromkeys((partition.delayed, partition.expiring, *indexes), "zset"),
        **dict.fromkeys((partition.delayed_body, partition.stats, partition.releases), "hash"),
    }
