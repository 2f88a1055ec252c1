"""How does a command reach Redis, and what happens when it does not?

redis-py's own retries are off: they repeat a script whose reply was lost without telling anyone, and block far
beyond their timeouts. Every script here may be repeated (design section 7), so one policy serves them all: repeat
with growing pauses until the caller's patience is over, then raise RedisUnavailable.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import anyio
import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterError,
    InvalidResponse,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from redisworld.errors import InvalidInput, RedisUnavailable
from redisworld.observe import RedisCalled, observe
from redisworld.scripts import Script
from redisworld.settings import Settings
from redisworld.world.addresses import client_of
from redisworld.world.channel import Channel
from redisworld.world.faults import FaultLog

EMBEDDED_URL = "redisworld://embedded"
"""Redis inside this process (fakeredis): for trying out and for tests. Nothing survives the process."""

_REFUSED = (
    OutOfMemoryError,
    ReadOnlyError,
    BusyLoadingError,
    MasterDownError,
    ClusterError,
    TryAgainError,
    NoPermissionError,
    AuthenticationError,
    InvalidResponse,  # not Redis at all, or a reply cut short
)
_REFUSED_PREFIXES = (
    "MISCONF",
    "NOREPLICAS",
    "UNBLOCKED",
    "BUSY ",
    "NOAUTH",
    "WRONGPASS",
    "CLUSTERDOWN",
    "OOM ",
    "LOADING",
    "READONLY",
    "The user executing the script can't run",  # NOPERM inside a script
    "ACL failure in script",
)
"""Error replies by which a connection says "not now"; redis-py has classes, without the prefix, for most of them."""

_QUOTES = "\"'(),"
"""What redis-py puts around the error of one command in a pipeline."""

_CLOSE_S = 1.0
"""A connection into a black hole never says that it is closed."""

_COMMANDS_AT_ONCE = 32
"""Connections of one process for commands. Batches keep it far below; more only queue up inside Redis."""

_FOLLOWERS_AT_ONCE = 1_000
"""Output streams that one process follows at once; Redis takes 10,000 connections by default."""


def redacted(url: str) -> str:
    """The URL without its password, for people."""
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
        netloc, password = parts.netloc, parts.password
    except ValueError:
        return f"{scheme}://***"
    if "@" in parts.path + parts.query + parts.fragment:  # a password with '/', '?' or '#' in it
        return f"{scheme}://***"
    if password:
        netloc = f"{parts.username or ''}:***@{netloc.rpartition('@')[2]}"
    query = re.sub(r"(^|&)(password|username)=[^&]*", r"\1\2=***", parts.query)
    if (netloc, query) == (parts.netloc, parts.query):
        return url
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def error_word(error: BaseException) -> str:
    """A bounded word for metrics: timeout, connection, noscript, oom, readonly, loading, refused or reply."""
    if isinstance(error, (TimeoutError, RedisTimeoutError)):
        return "timeout"
    if isinstance(error, NoScriptError):
        return "noscript"
    if isinstance(error, BusyLoadingError):
        return "loading"
    if isinstance(error, ReadOnlyError):
        return "readonly"
    if isinstance(error, (RedisConnectionError, OSError)) or _wrote_to_nobody(error):
        return "connection"
    if isinstance(error, OutOfMemoryError) or _reply_of(error).startswith("OOM"):
        return "oom"
    return "refused" if is_transient(error) else "reply"


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later: a lost connection, a timeout, or a refusal for now."""
    if isinstance(error, (RedisConnectionError, RedisTimeoutError, OSError, *_REFUSED)):  # OSError: TimeoutError too
        return True
    if _wrote_to_nobody(error):
        return True
    return isinstance(error, ResponseError) and _reply_of(error).startswith(_REFUSED_PREFIXES)


def _wrote_to_nobody(error: BaseException) -> bool:
    """What redis-py 8 lets through when a connection dies while it writes: from asyncio, and from uvloop."""
    if isinstance(error, AttributeError):
        return "writelines" in str(error) or "NoneType" in str(error)
    return isinstance(error, RuntimeError) and "the handler is closed" in str(error)


def _reply_of(error: BaseException) -> str:
    """The error reply itself: Redis 6.2 wraps one that came up in a script, redis-py one of a pipeline."""
    text = str(error)
    if text.startswith("Error running script"):
        return text.rpartition(": -")[2]
    return text.partition("caused error: ")[2].lstrip("('\"") if text.startswith("Command #") else text


class _Pooled:
    """A Channel of the embedded Redis, which has no connection to hand over."""

    connected = False
    """Connections are those of the client."""

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


class Connection:
    """The Redis clients of one process on one event loop. An async context manager.

    ``commands`` serves all but the hot paths: scripts share one connection of their own, and each blocking read has one
    to itself, so that it never holds up a command. ``followers`` is for those who follow output streams or subscribe,
    a connection for each. Raises InvalidInput for a URL it cannot read,
    RedisUnavailable where nothing answers within ``redis_timeout_ms``; with ``patience_ms`` it waits that long for a
    Redis that is down or loading, but not for one that refuses the user.
    """

    def __init__(self, settings: Settings, *, patience_ms: int = 0) -> None:
        self.settings = settings
        self.faults = FaultLog()
        """Where everything that meets the state of this Redis warns: one line a second and fault."""
        self._boot_patience_ms = patience_ms
        self.embedded = settings.url.startswith(EMBEDDED_URL)
        self._timeout = settings.redis_timeout_ms / 1000
        self._slots = asyncio.Semaphore(_COMMANDS_AT_ONCE)
        self._idle: list[Channel | _Pooled] = []
        self._blocked: set[Channel | _Pooled] = set()
        self._server: Any = None
        self._most_patience = math.inf
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Connection:
        self._loop = asyncio.get_running_loop()
        self.commands = self._client(_COMMANDS_AT_ONCE + 4)
        self.followers = self._client(_FOLLOWERS_AT_ONCE)
        self._scripts = self._channel()
        try:
            await self._greet()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def check_place(self) -> None:
        """Raises InvalidInput after the end of the context, and on another event loop than the one it began on.

        A call from there would take the connections of this loop along, for all who share them.
        """
        if self._loop is None:
            raise InvalidInput("this World is closed: use it, and the runs it gives, inside its 'async with'")
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidInput(
                "this World belongs to the event loop that connected it: connect another one here; "
                "a thread of that loop, like a 'def' step, calls it with anyio.from_thread.run"
            )

    async def _greet(self) -> None:
        """Raises RedisUnavailable where nobody answers, InvalidInput where Redis cannot serve us."""
        try:
            await self._first_ping()
        except ResponseError as error:  # Redis is there and says no: a database that does not exist
            raise InvalidInput(f"Redis at {redacted(self.settings.url)} refuses this URL: {error}") from error
        if self.embedded:
            return
        try:
            server = await self.run("info", lambda: self.commands.info("server"), patience_ms=0)
        except RedisUnavailable:
            return  # an ACL without INFO is fine
        if server.get("redis_mode") == "cluster":
            raise InvalidInput(
                f"Redis at {redacted(self.settings.url)} runs in cluster mode, which is not supported yet: "
                "use one primary, with replicas if you like"
            )

    async def _first_ping(self) -> None:
        try:
            await self.run("ping", self.commands.ping, patience_ms=0)
        except RedisUnavailable as error:
            if isinstance(error.__cause__, (AuthenticationError, NoPermissionError)) or not self._boot_patience_ms:
                raise
            await self.run("ping", self.commands.ping, patience_ms=self._boot_patience_ms)

    async def __aexit__(self, *_: object) -> None:
        self._loop = None
        for channel in (self._scripts, *self._idle):
            channel.close()
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await self.commands.aclose()
            await self.followers.aclose()

    def _client(self, connections: int) -> Any:
        if self.embedded:
            return self._embedded(asynchronous=True)
        try:
            return client_of(
                self.settings,
                aioredis.Redis,
                Sentinel,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=None,  # one timer per call below instead of one per read and write
                socket_connect_timeout=self._timeout,
                max_connections=connections,
                health_check_interval=0,
                client_name="redisworld",
            )
        except ValueError as error:
            raise InvalidInput(f"cannot read Redis URL {redacted(self.settings.url)!r}: {error}") from error

    def _channel(self) -> Channel | _Pooled:
        return _Pooled(self.commands) if self.embedded else Channel(self.commands.connection_pool)

    def connections(self) -> dict[str, int]:
        """How many connections are ``in_use`` and how many ``idle``; that of the scripts is always in use.

        From any thread. redis-py keeps its lists for itself: of one that has others there is nothing to tell.
        """
        pools = [client.connection_pool for client in (self.commands, self.followers)]
        try:
            in_use = sum(len(pool._in_use_connections) for pool in pools)
            idle = sum(len(pool._available_connections) for pool in pools)
        except AttributeError:
            return {}
        in_use += sum(channel.connected for channel in (self._scripts, *tuple(self._blocked)))
        return {"in_use": in_use, "idle": idle + sum(channel.connected for channel in tuple(self._idle))}

    @property
    def lease_timeout_s(self) -> float:
        """How long a call about leases may take: one that Redis holds back for longer must not be carried out later."""
        return min(self._timeout, max(self.settings.lease_ms / 4_000, 0.25))

    def sync_client(self) -> Any:
        """A blocking client on the same Redis, for the lease thread; the caller closes it.

        It gives up on a call early enough to renew once more within the lease.
        """
        if self.embedded:
            return self._embedded(asynchronous=False)
        import redis
        from redis.retry import Retry as SyncRetry
        from redis.sentinel import Sentinel as SyncSentinel

        timeout = self.lease_timeout_s
        return client_of(
            self.settings,
            redis.Redis,
            SyncSentinel,
            retry=SyncRetry(NoBackoff(), 0),
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            max_connections=2,
            client_name="redisworld-leases",
        )

    def _embedded(self, *, asynchronous: bool) -> Any:
        try:
            import fakeredis
            import lupa  # noqa: F401  # fakeredis needs it for scripts, and says so only at the first one
        except ImportError as error:
            raise InvalidInput("the embedded mode needs the extra: pip install 'redisworld[embedded]'") from error
        if self._server is None:
            self._server = _embedded_server(self.settings.url)
        client = fakeredis.FakeAsyncRedis if asynchronous else fakeredis.FakeRedis
        return client(server=self._server)

    def hurry(self) -> None:
        """From now on give up on an unavailable Redis within a second: the process ends."""
        self._most_patience = 1.0

    async def run(
        self,
        op: str,
        call: Callable[[], Awaitable[Any]],
        *,
        patience_ms: int | None = None,
        timeout: float | None = None,
        counted: bool = True,
    ) -> Any:
        """Make a call that may be repeated, within ``patience_ms`` (default ``retry_redis_ms``).

        One that is not ``counted`` takes no command's place: it only waits, on a connection of its own.
        Raises RedisUnavailable when patience is over; other error replies come through as they are.
        """

        async def attempt() -> Any:
            async with self._slots if counted else nullcontext(), asyncio.timeout(timeout or self._timeout):
                return await call()

        return await self._repeat(op, attempt, patience_ms)

    async def script(
        self,
        script: Script,
        key: str,
        args: list[Any],
        *,
        patience_ms: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Run a script on the slot of ``key``; sends its text when Redis does not have it. Raises as ``run``."""
        timeout = timeout or self._timeout

        async def attempt() -> Any:
            try:
                return await self._scripts.call("EVALSHA", script.sha, 1, key, *args, timeout=timeout)
            except NoScriptError:
                return await self._scripts.call("EVAL", script.text, 1, key, *args, timeout=timeout)

        return await self._repeat(script.name, attempt, patience_ms)

    async def block(self, op: str, *args: Any, timeout: float | None = None) -> Any:
        """The reply to a command that may wait inside Redis, as Redis gives it. Not repeated; raises as ``run``."""
        channel = self._idle.pop() if self._idle else self._channel()
        self._blocked.add(channel)
        try:
            reply = await self._repeat(op, partial(channel.call, *args, timeout=timeout or self._timeout), 0)
        except BaseException:  # a reply may still come
            channel.close()
            raise
        finally:
            self._blocked.discard(channel)
        self._idle.append(channel)
        return reply

    async def _repeat(self, op: str, attempt: Callable[[], Awaitable[Any]], patience_ms: int | None) -> Any:
        self.check_place()
        patience = (self.settings.retry_redis_ms if patience_ms is None else patience_ms) / 1000
        began = time.monotonic()
        failed = 0
        while True:
            started = time.perf_counter()
            try:
                reply = await attempt()
            except (RedisError, OSError, TimeoutError, AttributeError, RuntimeError) as error:
                observe(RedisCalled(op, time.perf_counter() - started, error_word(error)))
                if not is_transient(error):
                    raise
                failed += 1
                pause = min(0.05 * 2 ** min(failed, 6), 2.0) * random.uniform(0.5, 1.0)
                if time.monotonic() + pause > began + min(patience, self._most_patience):
                    raise RedisUnavailable(
                        f"Redis at {redacted(self.settings.url)} {_why(error)} (while: {op})"
                    ) from error
                self.faults.warn("redis", "redis unavailable, repeating", op=op, error=_why(error))
                await asyncio.sleep(pause)
            else:
                observe(RedisCalled(op, time.perf_counter() - started))
                return reply


_embedded_servers: dict[str, Any] = {}


def _embedded_server(url: str) -> Any:
    """One server per embedded URL in this process, so that several Worlds meet."""
    import fakeredis

    if url not in _embedded_servers:
        _embedded_servers[url] = fakeredis.FakeServer()
    return _embedded_servers[url]


def _why(error: BaseException) -> str:
    if isinstance(error, (TimeoutError, RedisTimeoutError)):
        return "did not answer in time"
    reply = _reply_of(error)
    if isinstance(error, NoPermissionError):
        return f"does not let its user do what redisworld needs: {reply.strip(_QUOTES)}"
    if isinstance(error, AuthenticationError):
        if "HELLO must be called" in reply or "Authentication required" in reply:
            return "asks for a password, and the URL has none: redis://[user]:password@host, or REDISWORLD_PASSWORD"
        return f"refuses the user or password of the URL: {reply}"
    return f"cannot be used now: {reply}"
