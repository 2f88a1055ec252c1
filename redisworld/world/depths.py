"""How much waits in the streams, as Redis itself says it now?

Asked when somebody scrapes, from a thread that is not the event loop's: a worker that is stuck or has read nothing
yet tells the truth all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from redis.exceptions import RedisError, ResponseError

from redisworld.errors import RedisUnavailable
from redisworld.keys import GROUP, Partition
from redisworld.world.connection import Connection
from redisworld.world.queue import Stream, key_of


class Depth(msgspec.Struct):
    """All partitions of one stream together; ages in seconds, 0 where there is nothing."""

    length: int = 0
    pending: int = 0
    oldest_pending_s: float = 0.0
    oldest_unread_s: float = 0.0


class Depths(msgspec.Struct, frozen=True):
    """``streams`` by their name within the partition."""

    streams: dict[str, Depth]
    delayed: int
    dead_letters: int


class DepthReader:
    """Reads depths through a blocking client of its own; ``close`` it."""

    def __init__(self, connection: Connection, partitions: Sequence[Partition], streams: Sequence[Stream]) -> None:
        self._client = connection.sync_client()
        self._partitions = partitions
        self._streams = streams

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def read(self) -> Depths:
        """Two round trips. Raises RedisUnavailable."""
        try:
            return self._read()
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"depths cannot be read: {error}") from error

    def _read(self) -> Depths:
        pipeline = self._client.pipeline(transaction=False)
        for stream in self._streams:
            pipeline.xlen(key_of(stream))
            pipeline.xinfo_groups(key_of(stream))
            pipeline.xpending(key_of(stream), GROUP)
        for partition in self._partitions:
            pipeline.zcard(partition.delayed)
            pipeline.xlen(partition.dead)
        pipeline.time()
        *answers, now = pipeline.execute(raise_on_error=False)
        now_ms = now[0] * 1_000 + now[1] // 1_000
        by_stream = [answers[i : i + 3] for i in range(0, 3 * len(self._streams), 3)]
        for stream, (_, groups, _) in zip(self._streams, by_stream, strict=True):
            pipeline.xrange(key_of(stream), min=f"({_last_delivered(groups)}", count=1)
        unread = pipeline.execute(raise_on_error=False)
        found: dict[str, Depth] = {}
        for stream, (length, _, pending), first in zip(self._streams, by_stream, unread, strict=True):
            depth = found.setdefault(stream[1], Depth())
            depth.length += _number(length)
            if isinstance(pending, dict) and pending["pending"]:
                depth.pending += pending["pending"]
                depth.oldest_pending_s = max(depth.oldest_pending_s, _age_s(now_ms, pending["min"]))
            if isinstance(first, list) and first:
                depth.oldest_unread_s = max(depth.oldest_unread_s, _age_s(now_ms, first[0][0]))
        others = [_number(answer) for answer in answers[3 * len(self._streams) :]]
        return Depths(found, delayed=sum(others[::2]), dead_letters=sum(others[1::2]))


def _last_delivered(groups: Any) -> str:
    """Where reading goes on; a stream without a group is all unread."""
    if isinstance(groups, ResponseError):
        return "0-0"
    ids = [group["last-delivered-id"] for group in groups if group["name"] in (GROUP, GROUP.encode())]
    return ids[0].decode() if ids else "0-0"


def _number(answer: Any) -> int:
    """A count; a key of another type counts as nothing here, its reader complains of it."""
    return answer if isinstance(answer, int) else 0


def _age_s(now_ms: int, entry: bytes) -> float:
    """Since an entry was published."""
    return max(0, now_ms - int(entry.partition(b"-")[0])) / 1_000
