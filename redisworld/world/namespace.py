"""How many partitions does a namespace have, and may this process work in it? (design section 5)"""

from __future__ import annotations

from typing import Any

from redisworld.errors import NamespaceMismatch, NamespaceNotFound
from redisworld.keys import Partition, meta
from redisworld.settings import DATA_VERSION, MOST_PARTITIONS
from redisworld.world.addresses import redacted
from redisworld.world.connection import Connection
from redisworld.world.deliveries import number_in
from redisworld.world.refusals import readable


async def open_namespace(connection: Connection, required: int | None, *, create: bool) -> tuple[int, int]:
    """The partition count of the namespace, which the first who comes fixes, and Redis TIME in ms.

    Reads only, where the namespace exists: a full Redis must not lock out those who free memory. Raises
    NamespaceMismatch, also where the meta hash is gone and the keys of the namespace are not, NamespaceNotFound
    where there is none and it is not to be made, and MalformedMessage for a key of another type in its place.
    """
    settings = connection.settings
    where = f"namespace {settings.namespace!r} at {redacted(settings.url)}"
    stored, (seconds, micros) = await _read(connection)
    if None in stored:
        if not create:
            raise NamespaceNotFound(f"there is no {where}: nothing has been started in it yet")
        if required is None and await used_partitions(connection):
            raise NamespaceMismatch(
                f"{where} has lost {meta(settings.namespace)}, which told its partition count: redisworld doctor --fix"
            )
        stored, _ = await _write(connection, required or (1 if connection.embedded else 4))
    partitions, version = (number_in(value) for value in stored)
    if not 1 <= partitions <= MOST_PARTITIONS or version < 1:
        raise NamespaceMismatch(f"{where} cannot be read: {meta(settings.namespace)} holds {stored}")
    if required is not None and required != partitions:
        raise NamespaceMismatch(
            f"{where} has {partitions} partitions, but this process is set to {required}: "
            f"set REDISWORLD_PARTITIONS={partitions} or leave it out"
        )
    if version > DATA_VERSION:
        raise NamespaceMismatch(
            f"{where} holds data of version {version}; this redisworld knows {DATA_VERSION}: upgrade it"
        )
    return partitions, seconds * 1_000 + micros // 1_000


async def used_partitions(connection: Connection, *, start: int = 0) -> list[Partition]:
    """The partitions, from this number on, that have been written to."""
    asked = [Partition(connection.settings.namespace, number) for number in range(start, MOST_PARTITIONS)]
    if not asked:
        return []
    found = await connection.pipe("find_partitions", lambda pipe: [pipe.exists(each.stats) for each in asked])
    return [partition for partition, there in zip(asked, found, strict=True) if there]


async def _read(connection: Connection) -> Any:
    key = meta(connection.settings.namespace)
    with readable(f"the meta hash of namespace {connection.settings.namespace!r}, {key},"):
        return await connection.pipe(
            "open_namespace",
            lambda pipe: (pipe.hmget(key, "partitions", "data_version"), pipe.time()),
            patience_ms=connection.settings.redis_timeout_ms,
        )


async def _write(connection: Connection, partitions: int) -> Any:
    """Fix the partition count, unless somebody else is faster; what is stored then.

    Two writers may each write one field: the version is the same, and whoever reads half of it writes too.
    """
    key = meta(connection.settings.namespace)
    await connection.pipe(
        "open_namespace",
        lambda pipe: (pipe.hsetnx(key, "partitions", partitions), pipe.hsetnx(key, "data_version", DATA_VERSION)),
        patience_ms=connection.settings.redis_timeout_ms,
    )
    return await _read(connection)
