"""How many partitions does a namespace have, and may this process work in it? (design section 5)"""

from __future__ import annotations

from typing import Any

from redisworld.errors import NamespaceMismatch
from redisworld.keys import meta
from redisworld.settings import DATA_VERSION
from redisworld.world.connection import Connection, redacted


async def open_namespace(connection: Connection, required: int | None) -> tuple[int, int]:
    """The partition count of the namespace, which the first who comes fixes, and Redis TIME in ms.

    Raises NamespaceMismatch.
    """
    settings, commands = connection.settings, connection.commands
    wanted = required or (1 if connection.embedded else 4)
    key = meta(settings.namespace)

    async def call() -> Any:
        pipeline = commands.pipeline(transaction=True)
        pipeline.hsetnx(key, "partitions", wanted)
        pipeline.hsetnx(key, "data_version", DATA_VERSION)
        pipeline.hmget(key, "partitions", "data_version")
        pipeline.time()
        return (await pipeline.execute())[2:]

    stored, (seconds, micros) = await connection.run("open_namespace", call, patience_ms=settings.redis_timeout_ms)
    partitions, version = (int(value) for value in stored)
    where = f"namespace {settings.namespace!r} at {redacted(settings.url)}"
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
