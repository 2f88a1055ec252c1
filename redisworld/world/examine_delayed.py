"""Does the delayed set hold together, and is somebody promoting what is due?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from redisworld.errors import MalformedMessage
from redisworld.keys import Partition
from redisworld.world.findings import Finding
from redisworld.world.recovering import Mode

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
    now, _ = await world.connection.run("time", world.connection.commands.time)

    async def count() -> Any:
        return await world.connection.commands.zcount(partition.delayed, "-inf", now * 1_000 - _LATE_MS)

    if overdue := await world.connection.run("count_overdue", count):
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
    cursor = 0
    while True:

        async def call(at: int = cursor) -> Any:
            return await world.connection.commands.zscan(partition.delayed, at, count=_PAGE)

        cursor, found = await world.connection.run("scan_delayed", call)
        members = [member for member, _ in found if not member.startswith(b"wait ")]  # timers have no body
        tick(len(found))
        if members:

            async def bodies(members: list[bytes] = members) -> Any:
                pipeline = world.connection.commands.pipeline(transaction=False)
                for member in members:
                    pipeline.hexists(partition.delayed_body, member)
                return await pipeline.execute()

            there = await world.connection.run("find_bodies", bodies)
            for member, has_body in zip(members, there, strict=True):
                if not has_body:
                    yield member.decode("utf-8", "replace")
        if not int(cursor):
            return


async def _bodies_without_member(world: World, partition: Partition, tick: Callable[[int], None]) -> AsyncIterator[str]:
    cursor = 0
    while True:

        async def call(at: int = cursor) -> Any:
            return await world.connection.commands.hscan(partition.delayed_body, at, count=50)  # bodies come along

        cursor, found = await world.connection.run("scan_bodies", call)
        members = list(found)
        tick(len(members))
        if members:

            async def scores(members: list[bytes] = members) -> Any:
                pipeline = world.connection.commands.pipeline(transaction=False)
                for member in members:
                    pipeline.zscore(partition.delayed, member)
                return await pipeline.execute()

            for member, due in zip(members, await world.connection.run("find_members", scores), strict=True):
                if due is None:
                    yield member.decode("utf-8", "replace")
        if not int(cursor):
            return
