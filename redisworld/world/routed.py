"""How do plain commands reach the nodes of a cluster, each the one of its key?

redis-py writes the commands and reads the replies; a command without a key goes to any primary. A pipeline is sent to
each node in turn, with that node's part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from redis.commands import AsyncCoreCommands
from redis.exceptions import AskError, ClusterDownError, ResponseError

if TYPE_CHECKING:
    from redisworld.world.nodes import Alone, Cluster

_WITHOUT_KEY = frozenset({"PING", "TIME", "INFO", "CONFIG", "CLUSTER", "SCRIPT"})

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""A command as redis-py words it: ``("XINFO GROUPS", key)``, and how its reply is read."""


def key_in(args: tuple[Any, ...]) -> Any:
    """The first key of a command, as redis-py words it; None for one that has none."""
    name = args[0].upper()
    if name.partition(" ")[0] in _WITHOUT_KEY:
        return None
    if name in ("XREAD", "XREADGROUP"):
        return args[next(at for at, word in enumerate(args) if word in ("STREAMS", b"STREAMS")) + 1]
    return args[3 if name in ("EVAL", "EVALSHA") else 1]


class Routed(AsyncCoreCommands):
    """A client of a whole cluster. ``client`` is that of a node which commands of this one go through."""

    _event_dispatcher: Any = None
    """redis-py asks for one; who gets none tells nobody."""

    def __init__(self, cluster: Cluster, client: Callable[[Alone], Any]) -> None:
        self._cluster, self._client = cluster, client

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """The reply of the node of the command's key. Raises as ``Cluster.follow``."""

        async def send(node: Alone, asking: bool) -> Any:
            client = self._client(node)
            if not asking:
                return await client.execute_command(*args, **options)
            pipeline = client.pipeline(transaction=False)
            pipeline.execute_command("ASKING")
            pipeline.execute_command(*args, **options)
            return (await pipeline.execute())[-1]

        return await self._cluster.follow(key_in(args), send)

    def pipeline(self, *, transaction: Literal[False]) -> RoutedPipeline:
        """Collects commands that are sent together. Never in MULTI: they may go to many nodes."""
        return RoutedPipeline(self._cluster, self._client, self)

    def pubsub(self) -> Any:
        """A subscriber at any primary: what is published goes to all nodes. Raises ClusterDownError."""
        return self._client(self._cluster.anybody()).pubsub()


class RoutedPipeline(AsyncCoreCommands):
    """Commands that are sent together, as far as they go to one node."""

    _event_dispatcher: Any = None

    def __init__(self, cluster: Cluster, client: Callable[[Alone], Any], one_by_one: Routed) -> None:
        self._cluster, self._client, self._one_by_one = cluster, client, one_by_one
        self._calls: list[Call] = []

    def execute_command(self, *args: Any, **options: Any) -> RoutedPipeline:
        """Keep a command for ``execute``."""
        self._calls.append((args, options))
        return self

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The replies in the order of the commands; errors among them, or the first one raised."""
        replies: list[Any] = [None] * len(self._calls)
        for numbers in await self._cluster.by_node([key_in(args) for args, _ in self._calls]):
            for number, reply in zip(numbers, await self._sent(numbers), strict=True):
                replies[number] = await self._again(number) if isinstance(reply, AskError) else reply
        if raise_on_error and (error := next((reply for reply in replies if isinstance(reply, Exception)), None)):
            raise error
        return replies

    async def _sent(self, numbers: list[int]) -> list[Any]:
        async def send(node: Alone, asking: bool) -> list[Any]:
            pipeline = self._client(node).pipeline(transaction=False)
            for number in numbers:
                args, options = self._calls[number]
                pipeline.execute_command(*args, **options)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
            if any(isinstance(reply, ClusterDownError) for reply in replies):
                self._cluster.doubt()
            return replies

        return await self._cluster.follow(key_in(self._calls[numbers[0]][0]), send)

    async def _again(self, number: int) -> Any:
        """A command that its node has sent on to another one."""
        args, options = self._calls[number]
        try:
            return await self._one_by_one.execute_command(*args, **options)
        except ResponseError as error:
            return error
