"""How do many calls share one connection to Redis?

redis-py makes the connection: addresses, TLS, users and Sentinels are its business. Then it hands it over, and each
call is written at once; replies come in the order of the calls. A call costs a third of one through redis-py's pool.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ReadOnlyError, ResponseError

_INCOMPLETE = object()
_ASKING = hiredis.pack_command(("ASKING",))


class Channel:
    """A connection of ``pool`` that calls share. The first call makes it, and the next one after it was lost."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._link: _Link | None = None
        self._id: tuple[_Link | None, int | None] | None = None
        self._connecting = asyncio.Lock()

    async def call(self, *args: Any, timeout: float, asking: bool = False) -> Any:
        """The reply of Redis to a command; ``asking`` a node of a cluster that a slot is on its way to.

        Raises what redis-py raises: for an error reply its class, ConnectionError where the connection is lost. After
        TimeoutError, or a reply that says this is no primary any more, the next call makes a new connection.
        """
        packed = hiredis.pack_command(args)
        link = self._link
        if link is None or link.lost:
            async with asyncio.timeout(timeout):
                link = await self._connected()
        if asking:
            link.send(_ASKING, timeout).add_done_callback(_ignore)
        return await link.send(packed, timeout)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None and not self._link.lost

    async def client_id(self, *, timeout: float) -> int | None:
        """The number by which Redis knows this connection; None where it refuses to say. Raises as ``call``."""
        if self._id is None or self._id[0] is not self._link:
            number: int | None
            try:
                number = await self.call("CLIENT", "ID", timeout=timeout)
            except ResponseError:  # an ACL, a managed Redis: asked once a connection
                number = None
            self._id = self._link, number
        return self._id[1]

    async def _connected(self) -> _Link:
        async with self._connecting:
            if self._link is None or self._link.lost:
                connection = self._pool.make_connection()
                await connection.connect()
                self._link = _Link(connection)
            return self._link

    def close(self) -> None:
        """Who still waits is told that the connection is lost."""
        if self._link is not None:
            self._link.lose(RedisConnectionError("closed by its owner"))


class Channels:
    """A channel for each call, made by ``make``, so that one that waits inside Redis holds nobody up."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._idle: list[Any] = []
        self._in_use: set[Any] = set()

    def take(self) -> Any:
        """A channel for one call; whoever takes it must ``put_back`` or ``drop`` it."""
        channel = self._idle.pop() if self._idle else self._make()
        self._in_use.add(channel)
        return channel

    def put_back(self, channel: Any) -> None:
        """The call has its reply."""
        self._in_use.discard(channel)
        self._idle.append(channel)

    def drop(self, channel: Any) -> None:
        """The call has failed: a reply may still come, so its connection is closed."""
        self._in_use.discard(channel)
        channel.close()

    @property
    def in_use(self) -> int:
        """Connections that calls wait on. From any thread."""
        return sum(channel.connected for channel in tuple(self._in_use))

    @property
    def idle(self) -> int:
        """Connections that wait for a call. From any thread."""
        return sum(channel.connected for channel in tuple(self._idle))

    def close(self) -> None:
        """Close all; who still waits is told that the connection is lost."""
        for channel in (*self._idle, *self._in_use):
            channel.close()


class _Link(asyncio.Protocol):
    """One connection, from the moment redis-py has greeted Redis on it until it is lost."""

    def __init__(self, connection: Any) -> None:
        self.lost = False
        self._connection = connection
        # redis-py has no public names for these
        self._transport: asyncio.Transport = connection._writer.transport
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=_INCOMPLETE
        )
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        """Futures of replies, in the order they will come, and when each is late."""
        self._look: asyncio.TimerHandle | None = None
        self._looks_at = math.inf
        self._transport.set_protocol(self)

    def send(self, packed: bytes, timeout: float) -> asyncio.Future[Any]:
        """Write a command; the future of its reply, or of TimeoutError after so many seconds."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        due = self._loop.time() + timeout
        self._waiting.append((reply, due))
        self._transport.write(packed)
        if due < self._looks_at:
            self._look_at(due)
        return reply

    # One timer looks after all calls: to set and to cancel one for each costs as much as to write it.

    def _look_at(self, due: float) -> None:
        if self._look is not None:
            self._look.cancel()
        self._looks_at, self._look = due, self._loop.call_at(due, self._look_for_late)

    def _look_for_late(self) -> None:
        """When a reply has not come in time, all behind it would come late, or never."""
        now, self._looks_at = max(self._looks_at, self._loop.time()), math.inf
        missed = [(reply, due) for reply, due in self._waiting if not reply.done()]
        late = [reply for reply, due in missed if due <= now]
        for reply in late:
            reply.set_exception(TimeoutError())
        if late:
            self.lose(RedisConnectionError("a call before this one was not answered in time"))
        elif missed:
            self._look_at(min(due for _, due in missed))

    def lose(self, error: Exception) -> None:
        """Give the connection up; ``error`` is for everyone who waits."""
        if self.lost:
            return
        self.lost = True
        if self._look is not None:
            self._look.cancel()
        for reply, _ in self._waiting:
            if not reply.done():
                reply.set_exception(error)
        self._waiting.clear()
        self._transport.abort()
        self._connection._close()  # as ``disconnect`` does, without waiting for what it has handed over

    def data_received(self, data: bytes) -> None:
        """Hand replies to those who wait for them; one who has gone gets none."""
        try:
            self._reader.feed(data)
            while not self.lost and (reply := self._reader.gets()) is not _INCOMPLETE:
                if not isinstance(reply, hiredis.PushNotification):
                    self._hand_over(reply)
        except (InvalidResponse, IndexError) as error:  # IndexError: a reply that nobody asked for
            self.lose(error if isinstance(error, InvalidResponse) else InvalidResponse("more replies than calls"))

    def _hand_over(self, reply: Any) -> None:
        waiting, _ = self._waiting.popleft()
        if waiting.done():
            return
        if isinstance(reply, Exception):
            waiting.set_exception(reply)
            if isinstance(reply, (ReadOnlyError, RedisConnectionError)):  # the second: Redis is loading, for redis-py
                self.lose(RedisConnectionError("this Redis cannot be used now"))
        else:
            waiting.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        """Redis or the network has closed it."""
        self.lose(RedisConnectionError("connection closed by the server" if exc is None else f"connection lost: {exc}"))


def _ignore(reply: asyncio.Future[Any]) -> None:
    """What ASKING is answered: the reply to the command behind it tells all."""
    if not reply.cancelled():
        reply.exception()
