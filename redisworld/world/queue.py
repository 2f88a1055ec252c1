"""How are streams read, and what happens when their group is gone? (design section 11)"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from redisworld.errors import MalformedMessage
from redisworld.keys import GROUP, Partition
from redisworld.observe import GroupRecreated, observe
from redisworld.world.connection import Connection
from redisworld.world.deliveries import Delivery
from redisworld.world.earliest import earliest
from redisworld.world.refusals import is_transient
from redisworld.world.replies import our_group, text_of

Stream = tuple[Partition, str]
"""A stream: its partition, and its name within the partition."""


def key_of(stream: Stream) -> str:
    """The Redis key of a stream."""
    return stream[0].tag + stream[1]


def _pairs(reply: Any) -> Iterable[tuple[bytes, Any]]:
    return reply.items() if isinstance(reply, dict) else reply or []


_NAMES = {name.encode(): name for name in ("kind", "spec", "run", "step", "name", "reason", "at", "msg")}

_OF_STEPS = ("kind", "spec", "run", "step", "name", "msg")
_OF_STEPS_ENCODED = [name.encode() for name in _OF_STEPS]
"""The fields of nearly every entry, in the order in which scripts write them."""


def fields_of(pairs: Sequence[bytes] | dict[bytes, bytes]) -> dict[str, bytes]:
    """Entry fields by name, as redis-py hands them over, or names and values in turn."""
    if isinstance(pairs, list) and pairs[::2] == _OF_STEPS_ENCODED:
        return dict(zip(_OF_STEPS, pairs[1::2], strict=True))
    items = pairs.items() if isinstance(pairs, dict) else zip(pairs[::2], pairs[1::2], strict=True)
    return {_NAMES.get(name) or name.decode("utf-8", "replace"): value for name, value in items}


class Queue:
    """Reads the streams of all partitions through the one consumer group."""

    def __init__(self, connection: Connection, consumer: str, restore: Callable[[], Awaitable[None]]) -> None:
        self._connection = connection
        self._consumer = consumer
        self._restore = restore

    async def ensure_groups(self, streams: list[Stream], *, lost: bool = False) -> None:
        """Create the group at 0 on every stream that has none, the stream included.

        At 0, never at ``$``: what was dispatched before the first worker came must run. Where a group was ``lost``,
        all of Redis may be: the namespace's meta hash is put back too. Raises RedisUnavailable, and MalformedMessage
        for a key that is no stream.
        """
        if lost:
            await self._restore()
        foreign: MalformedMessage | None = None
        for stream in streams:
            key = key_of(stream)

            async def create(key: str = key) -> bool:
                if await self._has_group(key):  # a full Redis refuses to create even what exists
                    return False
                try:
                    await self._connection.commands.xgroup_create(key, GROUP, id="0", mkstream=True)
                except ResponseError as error:
                    if "BUSYGROUP" not in str(error):
                        raise
                    return False
                return True

            patience_ms = self._connection.settings.redis_timeout_ms
            try:
                if await self._connection.run("create_group", create, patience_ms=patience_ms) and lost:
                    observe(GroupRecreated(stream[1]))
            except ResponseError as error:  # the others get theirs first
                foreign = foreign or MalformedMessage(f"key {key} cannot be used as a stream: {error}")
        if foreign is not None:
            raise foreign

    async def _has_group(self, key: str) -> bool:
        try:
            groups = await self._connection.commands.xinfo_groups(key)
        except ResponseError as error:
            if is_transient(error):
                raise
            return False  # no such stream
        return our_group(groups) is not None

    async def read(self, streams: list[Stream], *, count: int, block_ms: int | None = None) -> list[Delivery]:
        """New deliveries: at most ``count`` of each stream. Blocks when ``block_ms`` is given and all are empty.

        A stream whose group is gone gets it again, and the read answers nothing this time. Raises RedisUnavailable.
        """
        by_key = {key_of(stream).encode(): stream for stream in streams}
        block = [] if block_ms is None else ["BLOCK", block_ms]
        command = ["XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count, *block, "STREAMS"]
        try:
            replies = await self._replies("read", command, dict.fromkeys(by_key, ">"), block_ms)
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            await self.ensure_groups(streams, lost=True)
            return []
        return [
            Delivery(*by_key[key], entry_id.decode(), fields_of(fields or ()))
            for key, entries in replies
            for entry_id, fields in entries
        ]

    async def wait_nudge(self, seen: dict[Partition, str], block_ms: int) -> None:
        """Return when something is due earlier than before in one of the partitions, at the latest after ``block_ms``.

        ``seen`` holds the last nudge of each partition and is brought up to date.
        """
        by_key = {partition.nudge.encode(): partition for partition in seen}
        after = dict(zip(by_key, seen.values(), strict=True))
        command = ["XREAD", "BLOCK", max(1, block_ms), "STREAMS"]
        for key, entries in await self._replies("wait_nudge", command, after, block_ms):
            seen[by_key[key]] = text_of(entries[-1][0])

    async def end_reads(self) -> None:
        """End every read and every wait for a nudge that waits now; returns when they are over.

        What Redis refuses to end waits its time. An end loses nothing: what came first comes with the read.
        """
        await self._connection.end_reads()

    async def _replies(
        self, op: str, command: Sequence[Any], after: dict[bytes, str], block_ms: int | None
    ) -> Iterable[tuple[bytes, Any]]:
        """Streams that have something behind where they are read ``after``, and their entries."""
        connection = self._connection
        timeout = (block_ms + connection.settings.redis_timeout_ms) / 1000 if block_ms else None
        if len(after) == 1 or not connection.clustered:
            first = next(iter(after)).decode()
            return _pairs(await connection.block(op, first, *command, *after, *after.values(), timeout=timeout))
        by_tag: dict[bytes, list[bytes]] = {}
        for key in after:
            by_tag.setdefault(key.partition(b"}")[0], []).append(key)
        commands = {keys[0].decode(): [*command, *keys, *(after[key] for key in keys)] for keys in by_tag.values()}
        found = await earliest(connection, op, commands, timeout=timeout)
        return [pair for reply in found for pair in _pairs(reply)]

    async def idle_consumers(self, stream: Stream, idle_ms: int) -> list[str]:
        """Consumers that hold nothing and have not read for ``idle_ms``."""
        commands = self._connection.commands
        try:
            consumers = await self._connection.run(
                "consumers", lambda: commands.xinfo_consumers(key_of(stream), GROUP), patience_ms=0
            )
        except ResponseError:
            return []  # the stream or its group is gone; the reader makes it again
        return [text_of(c["name"]) for c in consumers if not c["pending"] and c["idle"] > idle_ms]


def flat(entries: Any) -> Any:
    """redis-py wraps the entries of a stream in one more list under RESP3."""
    return (
        entries[0]
        if entries and isinstance(entries[0], list) and entries[0] and isinstance(entries[0][0], (tuple, list))
        else entries
    )
