"""Which keys lie in a partition? Where nothing lists them only a scan of all keys of its server can tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from redisworld.keys import Partition
from redisworld.world.connection import Connection


async def scan(
    connection: Connection, partition: Partition, op: str, *, type: str | None = None
) -> AsyncIterator[list[str]]:
    """Pages of the names of its keys, within it; some maybe twice. Raises RedisUnavailable."""
    pattern = "".join(f"\\{c}" if c in "[]*?\\" else c for c in partition.tag) + "*"
    cursor, server = 0, None
    while True:

        async def call(at: int = cursor, begun_at: Any = server) -> Any:
            return await connection.nodes.scan(partition.stats, begun_at, at, match=pattern, count=1000, _type=type)

        server, cursor, keys = await connection.run(op, call)
        yield [partition.short(key.decode("utf-8", "replace")) for key in keys]
        if not cursor:
            return
