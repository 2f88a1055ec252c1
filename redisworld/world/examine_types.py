"""Is each key that every partition has of its type? One that is not, no script works with, and nobody can list it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redisworld.keys import Partition
from redisworld.runs import Status
from redisworld.world.findings import Finding

if TYPE_CHECKING:
    from redisworld.world.world import World


async def examine_types(world: World, partition: Partition) -> list[Finding]:
    """Keys in the place of ours that are of another type; one round trip."""
    wanted = _types(partition)

    async def call() -> Any:
        pipeline = world.connection.commands.pipeline(transaction=False)
        for key in wanted:
            pipeline.type(key)
        return await pipeline.execute()

    found = await world.connection.run("look_at_types", call)
    return [
        Finding(code="foreign_key", what=f"{key} is a {there.decode()}, and has to be a {kind}", where=(key,))
        for (key, kind), there in zip(wanted.items(), found, strict=True)
        if there.decode() not in ("none", kind)
    ]


def _types(partition: Partition) -> dict[str, str]:
    """As the table in ``keys.py`` has them."""
    indexes = [partition.index("created"), *(partition.index(f"status:{status}") for status in Status)]
    return {
        **dict.fromkeys((partition.steps(), partition.workflows(), partition.dead, partition.nudge), "stream"),
        **dict.fromkeys((partition.delayed, partition.expiring, *indexes), "zset"),
        **dict.fromkeys((partition.delayed_body, partition.stats, partition.releases), "hash"),
    }
