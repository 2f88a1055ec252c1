"""What stands in for Redis inside this process? fakeredis: for trying out and for tests.

Nothing survives the process.
"""

from __future__ import annotations

import asyncio
from typing import Any

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
    in_use = idle = 0

    def __init__(self, client: Any) -> None:
        self._client = client
        for name in ("XREADGROUP", "XREAD"):
            client.set_response_callback(name, lambda reply, **_: reply)

    async def call(self, *args: Any, timeout: float) -> Any:
        """As that of a Channel."""
        async with asyncio.timeout(timeout):
            return await self._client.execute_command(*args)

    def close(self) -> None:
        """Nothing to do: the client is closed by its owner."""
