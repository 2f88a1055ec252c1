"""How are sorted sets of many partitions read as one list, page by page?

A place in the list is a score and a member, so that a page goes on where the last one ended whatever has come and gone
meanwhile. The indexes are read by score: no keys are scanned and no set is read whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redisworld.world.connection import Connection
from redisworld.world.replies import score_of

Scored = tuple[int, bytes]
"""A place in the list: score and member of an item; items of one score are ordered by their bytes."""


async def page_of(
    connection: Connection, keys: Sequence[str], *, after: Scored | None, count: int, downwards: bool, least: int = 0
) -> list[tuple[Scored, str]]:
    """The next ``count`` items behind a place over all these sorted sets, each with its key; upwards or downwards.

    One command for each key, in one pipeline; one more for each key and ``count`` of its items that have the very
    score of ``after``. ``least`` is the lowest score that counts.
    """
    found: list[tuple[Scored, str]] = []
    asked = dict.fromkeys(keys, 0)
    while asked:
        for key, page in zip(asked, await _read(connection, asked, after, count, downwards, least), strict=True):
            items = [((score_of(score), member), key) for member, score in page]
            fresh = [item for item in items if after is None or _behind(item[0], after, downwards=downwards)]
            found += fresh
            more = len(page) == count and len(fresh) < count
            asked[key] = asked[key] + count if more else -1
        asked = {key: offset for key, offset in asked.items() if offset >= 0}
    return sorted(found, reverse=downwards)[:count]


async def _read(
    connection: Connection, asked: dict[str, int], after: Scored | None, count: int, downwards: bool, least: int
) -> list[Any]:
    def read(pipe: Any) -> None:
        for key, offset in asked.items():
            if downwards:
                pipe.zrevrangebyscore(key, after[0] if after else "+inf", least, offset, count, withscores=True)
            else:
                pipe.zrangebyscore(key, after[0] if after else least, "+inf", offset, count, withscores=True)

    return await connection.pipe("page_listing", read)


def _behind(place: Scored, after: Scored, *, downwards: bool) -> bool:
    return place < after if downwards else place > after
