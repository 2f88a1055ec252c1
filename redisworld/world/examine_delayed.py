"""Does the delayed set hold together, and is somebody promoting what is due?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from redisworld.errors import MalformedMessage
from redisworld.keys import Partition
from redisworld.world.findings import Finding
from redisworld.world.recovering import Mode
from redisworld.world.replies import text_of
from redisworld.world.scanning import pages

if TYPE_CHECKING:
    from redisworld.world.world import World

_PAGE = 500
_LATE_MS = 10_000


async def examine_delayed(
    world: World, partition: Partition, *, fix: bool, tick: Callable[[int], None]
) -> AsyncIterator[Finding]:
    """Members without a body, bodies without a member, and what is overdue."""
    async for member in _members_without_body(world, partition, tick):
        async for finding in _mend(world, partition, member, "delayed_without_body", fix=fix):
            yield finding
    async for member in _bodies_without_member(world, partition, tick):
        async for finding in _mend(world, partition, member, "body_without_delayed", fix=fix):
            yield finding
    connection = world.connection
    latest = await connection.time_ms() - _LATE_MS
    if overdue := await connection.run(
        "count_overdue", lambda: connection.commands.zcount(partition.delayed, "-inf", latest)
    ):
        what = f"{overdue} timers and delayed messages are more than {_LATE_MS // 1000} s overdue"
        yield Finding(code="overdue", what=what, where=(partition.delayed,))


async def _mend(world: World, partition: Partition, member: str, code: str, *, fix: bool) -> AsyncIterator[Finding]:
    """What a script says of a member, at one moment: what was seen before may have been a promotion."""
    where = (partition.delayed, partition.delayed_body)
    words = member.split(" ")
    if len(words) != 3 or words[0] not in ("step", "workflow"):
        yield Finding(code=code, what=f"{member!r} is no member of ours", where=where)
        return
    mode: Mode = "mend" if fix else "look"
    try:
        word = await world.recovery.delayed(words[0], words[1], words[2], mode=mode)
    except MalformedMessage as error:
        yield Finding(code="unreadable", what=str(error), where=(partition.run(words[1]),))
        return
    if word == "fits":
        return
    done = {"restored": "put it back as due now", "dropped": "dropped it"}[word]
    yield Finding(code=code, what=f"{member!r}", where=where, mended=done if fix else "")


async def _members_without_body(world: World, partition: Partition, tick: Callable[[int], None]) -> AsyncIterator[str]:
    bodies, page = partition.delayed_body, partial(world.connection.commands.zscan, partition.delayed, count=_PAGE)
    async for found in pages(world.connection, "scan_delayed", page):
        members = [member for member, _ in found if not member.startswith(b"wait ")]  # timers have no body
        tick(len(found))
        there = await _of_each(world, "find_bodies", members, lambda pipe, member: pipe.hexists(bodies, member))
        for member, has_body in zip(members, there, strict=True):
            if not has_body:
                yield text_of(member)


async def _bodies_without_member(world: World, partition: Partition, tick: Callable[[int], None]) -> AsyncIterator[str]:
    key, page = partition.delayed, partial(world.connection.commands.hscan, partition.delayed_body, count=50)
    async for members in pages(world.connection, "scan_bodies", page):  # bodies come along, so they are few
        tick(len(members))
        dues = await _of_each(world, "find_members", members, lambda pipe, member: pipe.zscore(key, member))
        for member, due in zip(members, dues, strict=True):
            if due is None:
                yield text_of(member)


async def _of_each(world: World, op: str, members: Collection[bytes], ask: Callable[[Any, bytes], object]) -> list[Any]:
    if not members:
        return []
    return await world.connection.pipe(op, lambda pipe: [ask(pipe, member) for member in members])
