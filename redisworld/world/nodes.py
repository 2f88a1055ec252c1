"""Which connections serve a key: those of the one Redis there is, or of a node of a cluster?

``Alone`` and ``Cluster`` answer it alike, and ``Connection`` calls whatever they name. With one Redis the answer is
always the same object; with a cluster it is a route, which finds the node, follows it while slots move, and asks
anew who serves what after an error. A route repeats nothing that may have been carried out: that is ``Connection``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ClusterError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from redisworld.keys import absent
from redisworld.settings import Settings
from redisworld.world import clients
from redisworld.world.addresses import Address, url_at
from redisworld.world.channel import Channel, Channels
from redisworld.world.embedded import OwnConnection, Pooled
from redisworld.world.routed import Routed
from redisworld.world.topology import MOST_REDIRECTIONS, Topology

T = TypeVar("T")

COMMANDS_AT_ONCE = 32
"""Connections of one process for commands. Batches keep it far below; more only queue up inside Redis."""

_FOLLOWERS_AT_ONCE = 1_000
"""Output streams that one process follows at once; Redis takes 10,000 connections by default."""

_ASK_S = 1.0
"""How long one node is asked who serves what; then the next one is."""


class Alone:
    """All connections of this process to one server, which serves every key."""

    def __init__(self, settings: Settings) -> None:
        self.commands = clients.client(settings, COMMANDS_AT_ONCE + 4)
        self.followers = clients.client(settings, _FOLLOWERS_AT_ONCE)
        pool = self.commands.connection_pool
        embedded = clients.is_embedded(settings)
        self.database: int | None = pool.connection_kwargs.get("db") or None
        """Of several; None for the first one, which every server has."""
        self.shared: Any = Pooled(self.commands) if embedded else Channel(pool)
        self.each = Channels(partial(OwnConnection if embedded else Channel, pool))

    def scripts(self, key: str) -> Any:
        """What runs scripts on a key: one channel that they share. It has ``call(*args, timeout=)``."""
        return self.shared

    def keys(self, key: str) -> Sequence[Any]:
        """How a script names its key: their number, and the keys."""
        return 1, key

    def reads(self, key: str) -> BlockingRead:
        """What one command on a key waits on that may wait inside Redis."""
        return BlockingRead(self, key)

    async def follow(self, key: str | bytes | None, send: Callable[[Alone, bool], Awaitable[T]]) -> T:
        """Send something to the server of ``key``, as ``Cluster`` does: this one. Raises what ``send`` raises."""
        return await send(self, False)

    async def scan(self, key: str, begun_at: Any, cursor: int, **options: Any) -> tuple[Any, int, list[bytes]]:
        """One page of the keys of the server that has this key: the server, where to go on, and their names.

        A scan that was ``begun_at`` another one starts anew.
        """
        return self, *await self.commands.scan(cursor, **options)

    async def servers(self) -> list[tuple[str, Any]]:
        """Every server with its name, ``""`` for the only one, and a client of it."""
        return [("", self.commands)]

    def connections(self) -> tuple[int, int]:
        """How many are in use, that of the scripts among them, and how many idle. Raises AttributeError, see caller."""
        pools = [client.connection_pool for client in (self.commands, self.followers)]
        in_use = sum(len(pool._in_use_connections) for pool in pools) + self.each.in_use + self.shared.connected
        return in_use, sum(len(pool._available_connections) for pool in pools) + self.each.idle

    async def aclose(self) -> None:
        """Close all connections."""
        self.shared.close()
        self.each.close()
        await self.commands.aclose()
        await self.followers.aclose()


class Cluster:
    """The connections to all nodes of a Redis Cluster."""

    database = None
    """As of ``Alone``: a cluster has only one."""

    def __init__(self, settings: Settings, seeds: Sequence[Address]) -> None:
        self._settings = settings
        self._topology = Topology(seeds)
        self._nodes: dict[Address, Alone] = {}
        self._asking = asyncio.Lock()
        self.commands = Routed(self, lambda node: node.commands)
        self.followers = Routed(self, lambda node: node.followers)

    def scripts(self, key: str) -> Any:
        """As of ``Alone``: one channel for each node."""
        return _Scripts(self, key)

    def keys(self, key: str) -> Sequence[Any]:
        """As of ``Alone``, and a key that never exists.

        While a slot moves, its keys are at two nodes, and a script would fail at the first one that is not here: behind
        its first writes. A node refuses beforehand what names a key that is here and one that is not (TRYAGAIN).
        """
        return 2, key, absent(key)

    def reads(self, key: str) -> BlockingRead:
        """As of ``Alone``."""
        return BlockingRead(self, key)

    async def scan(self, key: str, begun_at: Any, cursor: int, **options: Any) -> tuple[Any, int, list[bytes]]:
        """As of ``Alone``. Raises TryAgainError while the slot moves and its keys are at two nodes."""

        async def send(node: Alone, asking: bool) -> Any:
            if asking:
                raise TryAgainError(f"the slot of {key} moves")
            pipeline = node.commands.pipeline(transaction=False)
            pipeline.exists(key, absent(key))  # as for scripts: what scans knows of no slots
            pipeline.scan(cursor if node is begun_at else 0, **options)
            _, page = await pipeline.execute()
            return node, *page

        return await self.follow(key, send)

    def anybody(self) -> Alone:
        """The connections to any primary. Raises ClusterDownError."""
        return self._node(self._topology.primary_of(None))

    async def servers(self) -> list[tuple[str, Any]]:
        """As of ``Alone``: primaries and replicas. Raises as ``look``."""
        self._topology.in_doubt = True
        await self.look()
        known = (*self._topology.primaries, *self._topology.replicas)
        return [(f"{host}:{port}", self._node((host, port)).commands) for host, port in known]

    async def follow(self, key: str | bytes | None, send: Callable[[Alone, bool], Awaitable[T]]) -> T:
        """Send something to the node of ``key`` (to any, for None), and on to the one it names.

        ``send`` gets the node and whether to send ASKING first. Raises what it raises, and ClusterError where no node
        serves the key or they name each other.
        """
        if self._topology.in_doubt:
            await self.look()
        address, asking = self._topology.primary_of(key), False
        for _ in range(MOST_REDIRECTIONS):
            try:
                return await send(self._node(address), asking)
            except AskError as error:
                asking = not isinstance(error, MovedError)
                address = self._topology.redirected(error, address)
            except (ClusterDownError, ReadOnlyError):
                self._topology.in_doubt = True
                raise
            except ResponseError:
                raise
            except BaseException:  # lost, silent, or the caller's patience is over: it may have another primary now
                self._topology.in_doubt = True
                raise
        raise ClusterError(f"its nodes name each other for {key!r}")

    async def by_node(self, keys: Sequence[Any]) -> list[list[int]]:
        """The numbers of these keys, together where one node serves them. Raises as ``follow``."""
        if self._topology.in_doubt:
            await self.look()
        return self._topology.grouped(keys)

    def doubt(self) -> None:
        """An answer has shown that the nodes should be asked anew who serves what."""
        self._topology.in_doubt = True

    async def look(self) -> None:
        """Ask the nodes who serves what, one after the other until one answers. Raises the last one's error."""
        async with self._asking:
            if not self._topology.in_doubt:
                return
            refused: Exception = ClusterDownError("no node is known")
            for address in self._topology.everybody():
                try:
                    async with asyncio.timeout(min(_ASK_S, self._settings.redis_timeout_ms / 1000)):
                        told = await self._node(address).shared.call("CLUSTER", "SLOTS", timeout=_ASK_S)
                    self._topology.learn(told, address)
                except Exception as error:  # of every kind: the next node is asked
                    refused = error
                else:
                    await self._forget_the_gone()
                    return
            raise refused

    async def _forget_the_gone(self) -> None:
        stay = {*self._topology.primaries, *self._topology.replicas}
        for address in self._nodes.keys() - stay:
            await self._nodes.pop(address).aclose()

    def _node(self, address: Address) -> Alone:
        if (node := self._nodes.get(address)) is None:
            at = msgspec.structs.replace(self._settings, url=url_at(self._settings.url, address))
            node = self._nodes[address] = Alone(at)
        return node

    def connections(self) -> tuple[int, int]:
        """As of ``Alone``, of all nodes together."""
        each = [node.connections() for node in tuple(self._nodes.values())]
        return sum(in_use for in_use, _ in each), sum(idle for _, idle in each)

    async def aclose(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            await node.aclose()


class _Scripts:
    """The way to the channel that scripts on one key share."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self._cluster, self._key = cluster, key

    async def call(self, *args: Any, timeout: float) -> Any:
        """As that of a Channel. Raises as ``Cluster.follow``."""

        async def send(node: Alone, asking: bool) -> Any:
            return await node.shared.call(*args, timeout=timeout, asking=asking)

        return await self._cluster.follow(self._key, send)


class BlockingRead:
    """One command that may wait inside Redis, and can be ended there."""

    def __init__(self, nodes: Alone | Cluster, key: str) -> None:
        self._nodes, self._key = nodes, key
        self._waits: tuple[Alone, int | None] | None = None
        self.over = asyncio.Event()
        """Set by ``Connection.wait`` when the call has returned, or raised."""

    async def call(self, *args: Any, timeout: float) -> Any:
        """As that of a Channel. Raises as ``follow``."""
        return await self._nodes.follow(self._key, partial(self._send, args, timeout))

    async def _send(self, args: Sequence[Any], timeout: float, node: Alone, asking: bool) -> Any:
        channel = node.each.take()
        try:
            self._waits = node, await channel.client_id(timeout=timeout)
            reply = await channel.call(*args, timeout=timeout, asking=asking)
        except BaseException:
            node.each.drop(channel)
            raise
        finally:
            self._waits = None
        node.each.put_back(channel)
        return reply

    async def end(self, *, timeout: float) -> None:
        """Let the command return without a reply, if it waits already. Never cancelled: a reply may be on its way.

        Raises ResponseError where Redis refuses that.
        """
        if self._waits is None:
            return
        node, number = self._waits
        if number is None:
            raise ResponseError("CLIENT ID is refused, so nobody knows which connection waits")
        await node.shared.call("CLIENT", "UNBLOCK", number, timeout=timeout)
