"""What lies in a key, or in a partition, that is read in pages, from one cursor to the next?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from redisworld.keys import Partition
from redisworld.world.connection import Connection
from redisworld.world.replies import text_of


async def scan(
    connection: Connection, partition: Partition, op: str, *, type: str | None = None
) -> AsyncIterator[list[str]]:
    """Pages of the names of its keys, within it; some maybe twice. Raises RedisUnavailable.

    Where nothing lists them only a scan of all keys of its server can tell.
    """
    pattern = "".join(f"\\{c}" if c in "[]*?\\" else c for c in partition.tag) + "*"
    cursor, server = 0, None
    while True:
        call = partial(connection.nodes.scan, partition.stats, server, cursor, match=pattern, count=1000, _type=type)
        server, cursor, keys = await connection.run(op, call)
        yield [partition.short(text_of(key)) for key in keys]
        if not cursor:
            return


async def pages(connection: Connection, op: str, page: Callable[[int], Awaitable[Any]]) -> AsyncIterator[Any]:
    """What ``page`` reads from a cursor on (ZSCAN, HSCAN), page by page; some maybe twice. Raises as ``run``."""
    cursor = 0
    while True:
        cursor, found = await connection.run(op, partial(page, cursor))
        yield found
        if not int(cursor):
            return
