"""What stands in for Redis inside this process? fakeredis: for trying out and for tests.

Nothing survives the process.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import ResponseError

from redisworld.errors import InvalidInput

EMBEDDED_URL = "redisworld://embedded"

_servers: dict[str, Any] = {}


def embedded_client(url: str, *, asynchronous: bool) -> Any:
    """A client of the server of this URL: one in the process, so that several Worlds meet. Raises InvalidInput."""
    try:
        import fakeredis
        import lupa  # noqa: F401  # fakeredis needs it for scripts, and says so only at the first one
    except ImportError as error:
        raise InvalidInput("the embedded mode needs the extra: pip install 'redisworld[embedded]'") from error
    if url not in _servers:
        _servers[url] = fakeredis.FakeServer()
    client = fakeredis.FakeAsyncRedis if asynchronous else fakeredis.FakeRedis
    return client(server=_servers[url])


class Pooled:
    """A Channel of the embedded Redis, which has no connection to hand over: those of the client serve."""

    connected = False

    def __init__(self, client: Any) -> None:
        self._client = client

    async def call(self, *args: Any, timeout: float) -> Any:
        """As that of a Channel."""
        async with asyncio.timeout(timeout):
            return await self._client.execute_command(*args)

    def close(self) -> None:
        """Nothing to do: the client is closed by its owner."""


class OwnConnection:
    """A Channel of the embedded Redis for calls that wait inside it: one connection, so that they can be ended."""

    connected = False

    def __init__(self, pool: Any) -> None:
        self._connection = pool.make_connection()

    async def call(self, *args: Any, timeout: float, asking: bool = False) -> Any:
        """As that of a Channel, one call at a time."""
        async with asyncio.timeout(timeout):
            await self._connection.send_command(*args)
            return await self._connection.read_response()

    async def client_id(self, *, timeout: float) -> int | None:
        """As that of a Channel."""
        try:
            number: int = await self.call("CLIENT", "ID", timeout=timeout)
        except ResponseError:  # an older fakeredis
            return None
        return number

    def close(self) -> None:
        """Nothing to do: there is no socket, and whoever waits has an error of its own."""
