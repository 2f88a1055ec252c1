"""How does one thread reach the nodes of a cluster, without the event loop?

What ``nodes.py`` and ``routed.py`` do for the event loop, as far as leases and the exporter need it: connections and
knowledge of its own, for the event loop may be stuck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from redis.commands import CoreCommands
from redis.exceptions import AskError, ClusterDownError, ClusterError, MovedError, ReadOnlyError, ResponseError

from redisworld.settings import Settings
from redisworld.world.addresses import Address, url_at
from redisworld.world.clients import blocking_client
from redisworld.world.routed import Call, key_in
from redisworld.world.topology import MOST_REDIRECTIONS, Topology


class RoutedBlocking(CoreCommands):
    """A blocking client of a whole cluster, for one thread, which closes it."""

    _event_dispatcher: Any = None
    """redis-py asks for one; who gets none tells nobody."""

    def __init__(self, settings: Settings, seeds: Sequence[Address], timeout: float) -> None:
        self._settings, self._timeout = settings, timeout
        self._topology = Topology(seeds)
        self._clients: dict[Address, Any] = {}

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """The reply of the node of the command's key. Raises as ``Cluster.follow``."""

        def send(client: Any, asking: bool) -> Any:
            if not asking:
                return client.execute_command(*args, **options)
            pipeline = client.pipeline(transaction=False)
            pipeline.execute_command("ASKING")
            pipeline.execute_command(*args, **options)
            return pipeline.execute()[-1]

        return self._follow(key_in(args), send)

    def pipeline(self, *, transaction: Literal[False]) -> BlockingPipeline:
        """Collects commands that are sent together, as far as they go to one node."""
        return BlockingPipeline(self)

    def send_together(self, calls: Sequence[Call]) -> list[Any]:
        """The replies in the order of the commands, errors among them."""
        replies: list[Any] = [None] * len(calls)
        self._look()
        for numbers in self._topology.grouped([key_in(args) for args, _ in calls]):

            def send(client: Any, asking: bool, numbers: list[int] = numbers) -> Any:
                pipeline = client.pipeline(transaction=False)
                for number in numbers:
                    pipeline.execute_command(*calls[number][0], **calls[number][1])
                return pipeline.execute(raise_on_error=False)

            for number, reply in zip(numbers, self._follow(key_in(calls[numbers[0]][0]), send), strict=True):
                replies[number] = self._again(calls[number]) if isinstance(reply, AskError) else reply
                if isinstance(reply, ClusterDownError):
                    self._topology.in_doubt = True
        return replies

    def _again(self, call: Call) -> Any:
        try:
            return self.execute_command(*call[0], **call[1])
        except ResponseError as error:
            return error

    def _follow(self, key: Any, send: Callable[[Any, bool], Any]) -> Any:
        self._look()
        address, asking = self._topology.primary_of(key), False
        for _ in range(MOST_REDIRECTIONS):
            try:
                return send(self._client(address), asking)
            except AskError as error:
                asking = not isinstance(error, MovedError)
                address = self._topology.redirected(error, address)
            except Exception as error:
                if not isinstance(error, ResponseError) or isinstance(error, (ClusterDownError, ReadOnlyError)):
                    self._topology.in_doubt = True
                raise
        raise ClusterError(f"its nodes name each other for {key!r}")

    def _look(self) -> None:
        if not self._topology.in_doubt:
            return
        refused: Exception = ClusterDownError("no node is known")
        for address in self._topology.everybody():
            try:
                self._topology.learn(self._client(address).execute_command("CLUSTER", "SLOTS"), address)
            except Exception as error:  # of every kind: the next node is asked
                refused = error
            else:
                return
        raise refused

    def _client(self, address: Address) -> Any:
        if (client := self._clients.get(address)) is None:
            at = msgspec.structs.replace(self._settings, url=url_at(self._settings.url, address))
            client = self._clients[address] = blocking_client(at, self._timeout)
        return client

    def close(self) -> None:
        """Close the clients of all nodes."""
        for client in self._clients.values():
            client.close()


class BlockingPipeline(CoreCommands):
    """Commands that are sent together, as far as they go to one node."""

    _event_dispatcher: Any = None

    def __init__(self, client: RoutedBlocking) -> None:
        self._client = client
        self._calls: list[Call] = []

    def execute_command(self, *args: Any, **options: Any) -> BlockingPipeline:
        """Keep a command for ``execute``."""
        self._calls.append((args, options))
        return self

    def execute(self, *, raise_on_error: Literal[False]) -> list[Any]:
        """The replies in the order of the commands, errors among them."""
        return self._client.send_together(self._calls)
