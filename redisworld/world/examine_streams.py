"""Do the streams of a partition get read, and do their deliveries have living holders?"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from redisworld.keys import GROUP, Partition
from redisworld.world.findings import Finding
from redisworld.world.refusals import is_transient
from redisworld.world.replies import entry_ms, our_group, text_of

if TYPE_CHECKING:
    from redisworld.world.world import World

_PAGE = 100
_PAGES = 10
"""A thousand stale deliveries of a stream are enough to name."""


async def examine_streams(
    world: World, partition: Partition, streams: list[str], *, fix: bool
) -> AsyncIterator[Finding]:
    """Groups, consumers and deliveries of these streams."""
    for stream in streams:
        key = partition.tag + stream
        if not await _has_group(world, key):
            mended = ""
            if fix:
                await world.queue.ensure_groups([(partition, stream)])
                mended = "made the group at 0: every message in the stream is delivered"
            yield Finding(code="group_missing", what=f"the stream has no group {GROUP!r}", where=(key,), mended=mended)
            continue
        async for finding in _deliveries(world, key, fix=fix):
            yield finding
        if (unread := await _unread(world, key)) is not None:
            yield unread


async def _has_group(world: World, key: str) -> bool:
    groups = await world.connection.run("groups", lambda: world.connection.commands.xinfo_groups(key))
    return our_group(groups) is not None


async def _deliveries(world: World, key: str, *, fix: bool) -> AsyncIterator[Finding]:
    """Deliveries whose lease ended long ago, and among them those whose entry is gone."""
    old_ms = 2 * world.settings.lease_ms + 5 * world.settings.reclaim_every_ms
    stale: Counter[str] = Counter()
    deleted: list[str] = []
    start = "-"
    for _ in range(_PAGES):
        page = partial(world.connection.commands.xpending_range, key, GROUP, start, "+", count=_PAGE, idle=old_ms)
        try:
            pending = await world.connection.run("stale_deliveries", page)
        except ResponseError as error:
            if is_transient(error):
                raise
            return  # the group is gone by now
        there = await _there(world, key, [text_of(item["message_id"]) for item in pending])
        for item in pending:
            entry = text_of(item["message_id"])
            if entry in there:
                stale[text_of(item["consumer"])] += 1
            else:
                deleted.append(entry)
        if len(pending) < _PAGE:
            break
        start = f"({text_of(pending[-1]['message_id'])}"
    for consumer, number in stale.items():
        yield Finding(
            code="stale_delivery",
            what=f"{number} deliveries of consumer {consumer} have not been renewed for more than {old_ms // 1000} s",
            where=(key,),
        )
    if deleted:
        mended = ""
        if fix:
            await world.connection.run(
                "forget_deliveries", lambda: world.connection.commands.xack(key, GROUP, *deleted)
            )
            mended = "acknowledged them; what waited for them is looked at below"
        yield Finding(
            code="deleted_delivery",
            what=f"{len(deleted)} pending deliveries whose entry is gone, the first is {deleted[0]}",
            where=(key,),
            mended=mended,
        )


async def _there(world: World, key: str, entries: list[str]) -> set[str]:
    """Those of these entries that the stream still has."""
    if not entries:
        return set()
    found = await world.connection.pipe("find_entries", lambda pipe: [pipe.xrange(key, id, id) for id in entries])
    return {entry for entry, item in zip(entries, found, strict=True) if item}


async def _unread(world: World, key: str) -> Finding | None:
    """Messages that wait where nobody reads."""
    connection = world.connection
    try:
        groups, consumers = await connection.pipe(
            "readers", lambda pipe: (pipe.xinfo_groups(key), pipe.xinfo_consumers(key, GROUP))
        )
    except ResponseError as error:
        if is_transient(error):
            raise
        return None
    if (ours := our_group(groups)) is None:
        return None
    behind = f"({text_of(ours['last-delivered-id'])}"
    waiting = await connection.run("first_unread", lambda: connection.commands.xrange(key, behind, "+", count=1))
    quiet_ms = 2 * world.settings.lease_ms
    now = await connection.time_ms()
    if not waiting or now - entry_ms(waiting[0][0]) < quiet_ms:
        return None
    if any(consumer["idle"] < quiet_ms for consumer in consumers):
        return None
    return Finding(
        code="no_worker",
        what=f"messages wait since entry {text_of(waiting[0][0])}, and no consumer has read for {quiet_ms // 1000} s",
        where=(key,),
    )


async def examine_dead_letters(world: World, partition: Partition) -> AsyncIterator[Finding]:
    """How many wait, and of which reasons the latest are."""
    count, latest = await world.connection.pipe(
        "read_letters", lambda pipe: (pipe.xlen(partition.dead), pipe.xrevrange(partition.dead, count=_PAGE))
    )
    if count:
        reasons = Counter(text_of(fields.get(b"reason", b"?")) for _, fields in latest)
        told = ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
        of = "" if count <= _PAGE else f", of the latest {_PAGE}"
        yield Finding(
            code="dead_letters",
            what=f"{count} dead letter{'' if count == 1 else 's'} ({told}{of})",
            where=(partition.dead,),
        )
