"""How are clients of redis-py made: those of the event loop, and the blocking one of a thread?

redis-py's own retries are off: they repeat a script whose reply was lost without telling anyone, and block far
beyond their timeouts. Who repeats is ``Connection``.
"""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry as BlockingRetry
from redis.sentinel import Sentinel as BlockingSentinel

from redisworld.errors import InvalidInput
from redisworld.settings import Settings
from redisworld.world.addresses import client_of, redacted
from redisworld.world.embedded import EMBEDDED_URL, embedded_client


def is_embedded(settings: Settings) -> bool:
    """Whether Redis is inside this process."""
    return settings.url.startswith(EMBEDDED_URL)


def client(settings: Settings, connections: int) -> Any:
    """A client of the event loop with at most so many connections. Raises InvalidInput for a URL it cannot read."""
    if is_embedded(settings):
        return embedded_client(settings.url, asynchronous=True)
    try:
        return client_of(
            settings,
            aioredis.Redis,
            Sentinel,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,  # one timer per call instead of one per read and write
            socket_connect_timeout=settings.redis_timeout_ms / 1000,
            max_connections=connections,
            health_check_interval=0,
            client_name="redisworld",
        )
    except ValueError as error:
        raise InvalidInput(f"cannot read Redis URL {redacted(settings.url)!r}: {error}") from error


def blocking_client(settings: Settings, timeout: float) -> Any:
    """A client for one thread whose calls take at most ``timeout`` seconds."""
    if is_embedded(settings):
        return embedded_client(settings.url, asynchronous=False)
    return client_of(
        settings,
        redis.Redis,
        BlockingSentinel,
        retry=BlockingRetry(NoBackoff(), 0),
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        max_connections=2,
        client_name="redisworld-leases",
    )
