"""How does a command reach Redis, and what happens when it does not?

Every script here may be repeated (design section 7), so one policy serves them all: repeat with growing pauses until
the caller's patience is over, then raise RedisUnavailable.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Literal

import anyio
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    NoScriptError,
    ResponseError,
)

from redisworld import clock
from redisworld.errors import InvalidInput, RedisUnavailable
from redisworld.observe import RedisCalled, observe
from redisworld.scripts import Script
from redisworld.settings import Settings
from redisworld.world.addresses import Address, node_named, nodes_named, redacted
from redisworld.world.clients import blocking_client, is_embedded
from redisworld.world.faults import FaultLog
from redisworld.world.nodes import COMMANDS_AT_ONCE, Alone, BlockingRead, Cluster
from redisworld.world.refusals import RAISED, checked, error_word, is_transient, unwrapped, why
from redisworld.world.routed_blocking import RoutedBlocking

_CLOSE_S = 1.0
"""A connection into a black hole never says that it is closed."""

_END_AGAIN_S = 0.002
_END_AGAIN_MOST_S = 0.1
"""A read that had not come to Redis when it was ended waits on: it is ended again after the first, then twice that."""


class Connection:
    """The Redis clients of one process on one event loop. An async context manager.

    ``commands`` serves all but the hot paths: scripts share one connection of their own, and each blocking read has one
    to itself, so that it never holds up a command. ``followers`` is for those who follow output streams or subscribe,
    a connection for each. With a cluster, which a URL of one of its nodes is enough for, there are those of each node
    (``nodes``). Raises InvalidInput for a URL it cannot read, RedisUnavailable where nothing answers within
    ``redis_timeout_ms``; with ``patience_ms`` it waits that long for a Redis that is down or loading, but not for one
    that refuses the user.
    """

    def __init__(self, settings: Settings, *, patience_ms: int = 0) -> None:
        self.settings = settings
        self.faults = FaultLog()
        """Where everything that meets the state of this Redis warns: one line a second and fault."""
        self._boot_patience_ms = patience_ms
        self.embedded = is_embedded(settings)
        self._timeout = settings.redis_timeout_ms / 1000
        self._slots = asyncio.Semaphore(COMMANDS_AT_ONCE)
        self._seeds: list[Address] = []
        self._most_patience = math.inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[BlockingRead] = set()

    async def __aenter__(self) -> Connection:
        self._loop = asyncio.get_running_loop()
        self._seeds = nodes_named(self.settings.url)
        self._use(Cluster(self.settings, self._seeds) if self._seeds else Alone(self.settings))
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

    def _use(self, nodes: Alone | Cluster) -> None:
        self.nodes = nodes
        self.commands: Any = nodes.commands
        self.followers: Any = nodes.followers

    @property
    def clustered(self) -> bool:
        """Whether keys of different slots may lie at different nodes, and one command cannot name both."""
        return bool(self._seeds)

    async def _greet(self) -> None:
        """Raises RedisUnavailable where nobody answers, InvalidInput where Redis cannot serve us."""
        try:
            await self._first_ping()
        except ResponseError as error:  # Redis is there and says no: a database that does not exist
            database = self.nodes.database
            refused = "this URL" if database is None else f"database {database} of this URL"
            raise InvalidInput(f"Redis at {redacted(self.settings.url)} refuses {refused}: {error}") from error
        if self.clustered or self.embedded or not await self._is_of_a_cluster():
            return
        node = node_named(self.settings.url)
        if node is None:
            raise InvalidInput(
                f"Redis at {redacted(self.settings.url)} is a node of a cluster: name it by host and port, as its "
                "other nodes do"
            )
        await self.nodes.aclose()
        self._seeds = [node]
        self._use(Cluster(self.settings, self._seeds))
        await self.run("ping", self.commands.ping)

    async def _is_of_a_cluster(self) -> bool:
        async def ask() -> bool:
            try:
                server = await self.commands.info("server")
            except NoPermissionError:  # an ACL without INFO is fine
                pass
            else:
                return bool(server.get("redis_mode") == "cluster")
            try:
                await self.commands.execute_command("CLUSTER", "SLOTS")
            except ResponseError:
                return False
            return True

        try:
            return bool(await self.run("info", ask, patience_ms=0))
        except RedisUnavailable:
            return False

    async def _first_ping(self) -> None:
        try:
            await self.run("ping", self.commands.ping, patience_ms=0)
        except RedisUnavailable as error:
            if isinstance(error.__cause__, (AuthenticationError, NoPermissionError)) or not self._boot_patience_ms:
                raise
            await self.run("ping", self.commands.ping, patience_ms=self._boot_patience_ms)

    async def __aexit__(self, *_: object) -> None:
        self._loop = None
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await self.nodes.aclose()

    def connections(self) -> dict[str, int]:
        """How many connections are ``in_use`` and how many ``idle``; that of the scripts is always in use.

        From any thread. redis-py keeps its lists for itself: of one that has others there is nothing to tell.
        """
        try:
            in_use, idle = self.nodes.connections()
        except AttributeError:
            return {}
        return {"in_use": in_use, "idle": idle}

    @property
    def lease_timeout_s(self) -> float:
        """How long a call about leases may take: one that Redis holds back for longer must not be carried out later."""
        return min(self._timeout, max(self.settings.lease_ms / 4_000, 0.25))

    def sync_client(self) -> Any:
        """A blocking client on the same Redis, for the lease thread; the caller closes it.

        It gives up on a call early enough to renew once more within the lease.
        """
        if self.clustered:
            return RoutedBlocking(self.settings, self._seeds, self.lease_timeout_s)
        return blocking_client(self.settings, self.lease_timeout_s)

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

    async def pipe(
        self,
        op: str,
        fill: Callable[[Any], object],
        *,
        raises: Literal["all", "transient", "none"] = "all",
        patience_ms: int | None = None,
    ) -> list[Any]:
        """The replies to commands that are sent together and may be repeated: ``fill`` puts them into a pipeline.

        Never in MULTI, which a full Redis refuses, and with a cluster they may go to many nodes. ``fill`` is called
        again for each repeat. ``raises`` says which error replies are raised, as by ``run``; others are among the
        replies.
        """

        async def call() -> list[Any]:
            pipeline = self.commands.pipeline(transaction=False)
            fill(pipeline)
            replies: list[Any] = await pipeline.execute(raise_on_error=raises == "all")
            return checked(replies) if raises == "transient" else replies

        replies: list[Any] = await self.run(op, call, patience_ms=patience_ms)
        return replies

    async def time_ms(self, *, patience_ms: int | None = None) -> int:
        """Redis TIME in epoch ms. Raises as ``run``."""
        seconds, micros = await self.run("time", self.commands.time, patience_ms=patience_ms)
        return int(seconds * 1_000 + micros // 1_000)

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
        channel, keys = self.nodes.scripts(key), self.nodes.keys(key)

        async def attempt() -> Any:
            try:
                return await channel.call("EVALSHA", script.sha, *keys, *args, timeout=timeout)
            except NoScriptError:
                return await channel.call("EVAL", script.text, *keys, *args, timeout=timeout)

        return await self._repeat(script.name, attempt, patience_ms)

    async def block(self, op: str, key: str, *args: Any, timeout: float | None = None) -> Any:
        """The reply to a command on ``key`` that may wait inside Redis, as Redis gives it.

        Not repeated; raises as ``run``.
        """
        return await self.wait(op, self.nodes.reads(key), *args, timeout=timeout)

    async def wait(self, op: str, read: BlockingRead, *args: Any, timeout: float | None = None) -> Any:
        """As ``block``, by a read that ``end_read`` ends."""
        self._waiting.add(read)
        try:
            return await self._repeat(op, partial(read.call, *args, timeout=timeout or self._timeout), 0)
        finally:
            self._waiting.discard(read)
            read.over.set()

    async def end_read(self, read: BlockingRead) -> None:
        """Return when a read is over, which it is soon: it brings what it has, or nothing.

        Raises RedisUnavailable, and ResponseError where Redis refuses to end it; then it waits its time.
        """
        pause = _END_AGAIN_S
        while not read.over.is_set():
            await self._repeat("end_read", partial(read.end, timeout=self._timeout), 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await read.over.wait()
            pause = min(2 * pause, _END_AGAIN_MOST_S)

    async def end_reads(self) -> None:
        """As ``end_read`` all that wait now, at once. Nothing is raised: what cannot be ended waits its time."""
        async with anyio.create_task_group() as tasks:
            for read in tuple(self._waiting):
                tasks.start_soon(self._end_or_leave, read)

    async def _end_or_leave(self, read: BlockingRead) -> None:
        try:
            await self.end_read(read)
        except (RedisUnavailable, ResponseError) as error:
            self.faults.warn("end", "a read cannot be ended and waits its time", level=logging.INFO, error=error)

    def _tls(self, op: str, error: BaseException) -> str:
        """A word where, at the first call, one side may speak TLS and the other not, or lacks a file: none says so."""
        if op != "ping":
            return ""
        if self.settings.url.startswith("rediss"):
            if "No such file" in str(error):
                return "; the files of the options ssl_… of the URL have to be there"
            return "; it may not speak TLS at this port (redis:// is without)" if error_word(error) == "timeout" else ""
        hung_up = "closed by server" in str(error) or "reset by peer" in str(error)
        return "; it may want TLS (rediss://)" if hung_up else ""

    async def _repeat(self, op: str, attempt: Callable[[], Awaitable[Any]], patience_ms: int | None) -> Any:
        patience = (self.settings.retry_redis_ms if patience_ms is None else patience_ms) / 1000
        began = clock.monotonic()
        failed = 0
        while True:
            self.check_place()  # each time: a World that was closed meanwhile closes no connection that is made now
            started = clock.perf_counter()
            try:
                reply = await attempt()
            except RAISED as raised:
                error = unwrapped(raised)
                observe(RedisCalled(op, clock.perf_counter() - started, error_word(error)))
                if not is_transient(error):
                    raise error from error.__cause__
                failed += 1
                pause = min(0.05 * 2 ** min(failed, 6), 2.0) * random.uniform(0.5, 1.0)
                if clock.monotonic() + pause > began + min(patience, self._most_patience):
                    raise RedisUnavailable(
                        f"Redis at {redacted(self.settings.url)} {why(error)}{self._tls(op, error)} (while: {op})"
                    ) from error
                if failed == 1 and error_word(error) == "connection":  # servers and networks close what was idle
                    self.faults.warn(
                        "closed", "connection lost, repeating", level=logging.INFO, op=op, error=why(error)
                    )
                else:
                    self.faults.warn("redis", "redis unavailable, repeating", op=op, error=why(error))
                await asyncio.sleep(pause)
            else:
                observe(RedisCalled(op, clock.perf_counter() - started))
                return reply
