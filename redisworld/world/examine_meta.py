"""Is the meta hash of a namespace there? If not: do its runs tell how many partitions it had?"""

from __future__ import annotations

from redisworld.keys import Partition, meta, partition_of
from redisworld.settings import MOST_PARTITIONS, Settings
from redisworld.world.connection import Connection
from redisworld.world.findings import Finding
from redisworld.world.namespace import open_namespace, used_partitions
from redisworld.world.replies import text_of

_RUNS = 100
"""Run ids of a partition that are asked: the wrong count fits each of them by chance, once in two at best."""


async def examine_lost_meta(settings: Settings, *, fix: bool) -> Finding | None:
    """The finding of a namespace that cannot be opened for want of its meta hash; None where there are no keys of it.

    Raises RedisUnavailable.
    """
    async with Connection(settings) as connection:
        used = await used_partitions(connection)
        if not used:
            return None
        counts = await _counts_that_fit(connection, used)
        if settings.partitions is not None:
            counts = [count for count in counts if count == settings.partitions]
        if len(counts) == 1:
            return await _with_count(connection, counts[0], fix=fix)
        told = "its runs fit " + (f"{counts[0]} to {counts[-1]} partitions" if counts else "no count of partitions")
        if settings.partitions is not None:
            told = f"its runs do not fit {settings.partitions} partitions"
        return _finding(settings, told)


async def examine_meta(connection: Connection, count: int, *, fix: bool) -> Finding | None:
    """The finding of a namespace that is open, and has lost its meta hash since."""
    key = meta(connection.settings.namespace)
    if None not in await connection.run(
        "read_meta", lambda: connection.commands.hmget(key, "partitions", "data_version")
    ):
        return None
    return await _with_count(connection, count, fix=fix)


async def _with_count(connection: Connection, count: int, *, fix: bool) -> Finding:
    """The finding where the partition count is known, by which ``fix`` makes the meta hash again."""
    if fix:
        await open_namespace(connection, count, create=True)
    plural = "" if count == 1 else "s"
    mended = f"wrote it again, with {count} partition{plural}" if fix else ""
    return _finding(connection.settings, f"by its runs it has {count} partition{plural}", mended)


def _finding(settings: Settings, told: str, mended: str = "") -> Finding:
    key = meta(settings.namespace)
    what = f"the meta hash of namespace {settings.namespace!r} is gone; {told}"
    return Finding(code="meta_lost", what=what, where=(key,), mended=mended)


async def _counts_that_fit(connection: Connection, used: list[Partition]) -> list[int]:
    """The partition counts under which each run lies where it lies."""
    found = await connection.pipe(
        "read_run_ids", lambda pipe: [pipe.zrange(partition.index("created"), 0, _RUNS - 1) for partition in used]
    )
    lies = [(text_of(run), partition.number) for partition, runs in zip(used, found, strict=True) for run in runs]
    least = max(partition.number for partition in used) + 1
    return [
        count
        for count in range(least, MOST_PARTITIONS + 1)
        if all(partition_of(run_id, count) == number for run_id, number in lies)
    ]
