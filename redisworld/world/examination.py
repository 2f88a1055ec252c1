"""What stands still in a namespace, and what of it can be mended? (``redisworld doctor``)

Everything is read in pages, so that a big Redis does not notice; nothing is judged by two reads that may not fit
together: a script confirms at one moment what looks wrong. Without ``fix`` nothing is written.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from redisworld.world.examine_delayed import examine_delayed
from redisworld.world.examine_keys import examine_keys
from redisworld.world.examine_meta import examine_meta
from redisworld.world.examine_runs import examine_listings, examine_open_runs
from redisworld.world.examine_server import examine_leases, examine_server
from redisworld.world.examine_streams import examine_dead_letters, examine_streams
from redisworld.world.examine_types import examine_types, types_of, types_of_lists
from redisworld.world.findings import Finding
from redisworld.world.living import discover

if TYPE_CHECKING:
    from redisworld.world.world import World


async def examine(
    world: World,
    *,
    fix: bool = False,
    deep: bool = False,
    queue_of: Callable[[str], str | None] = lambda _: None,
    progress: Callable[[str, int], None] = lambda _, __: None,
) -> AsyncGenerator[Finding, None]:
    """Everything that is wrong, as it is found. ``fix`` mends what is safe to mend.

    ``deep`` scans all keys, for what no listing names. ``queue_of`` knows the queue of a step by its name: without it
    lost steps are told and not sent again. ``progress`` is told what is looked at and how many so far. Raises
    RedisUnavailable.
    """
    told: set[tuple[str, str]] = set()  # a run is looked at from more than one listing
    async for finding in _all(world, fix=fix, deep=deep, queue_of=queue_of, progress=progress):
        if (finding.code, finding.what) not in told:
            told.add((finding.code, finding.what))
            yield finding


async def _all(
    world: World,
    *,
    fix: bool,
    deep: bool,
    queue_of: Callable[[str], str | None],
    progress: Callable[[str, int], None],
) -> AsyncGenerator[Finding, None]:
    if (lost := await examine_meta(world.connection, len(world.partitions), fix=fix)) is not None:
        yield lost
    async for finding in examine_server(world):
        yield finding
    strangers = await examine_types(world, types_of_lists(world.settings.namespace))
    for finding in strangers:
        yield finding
    if not strangers and (leases := await examine_leases(world)) is not None:
        yield leases
    counted: dict[str, int] = {}

    def ticker(what: str) -> Callable[[int], None]:
        def tick(more: int) -> None:
            counted[what] = counted.get(what, 0) + more
            progress(what, counted[what])

        return tick

    for partition in world.partitions:
        if foreign := await examine_types(world, types_of(partition)):
            for finding in foreign:
                yield finding
            continue  # the rest of it cannot be looked at before
        streams = await discover(world.connection, partition, lambda: progress("keys", 0))
        async for finding in examine_streams(world, partition, streams, fix=fix):
            yield finding
        async for finding in examine_dead_letters(world, partition):
            yield finding
        async for finding in examine_delayed(world, partition, fix=fix, tick=ticker("delayed")):
            yield finding
        async for finding in examine_open_runs(
            world, partition, streams, fix=fix, queue_of=queue_of, tick=ticker("open runs")
        ):
            yield finding
        async for finding in examine_listings(world, partition, fix=fix, tick=ticker("listed runs")):
            yield finding
        if deep:
            async for finding in examine_keys(world, partition, fix=fix, tick=ticker("keys")):
                yield finding
