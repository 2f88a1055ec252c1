"""How are leases renewed from outside the event loop? With a blocking client and the same scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from redis.exceptions import NoScriptError

from redisworld import scripts
from redisworld.errors import RedisUnavailable
from redisworld.keys import Partition
from redisworld.world.connection import Connection
from redisworld.world.deliveries import Delivery, Outgoing
from redisworld.world.refusals import RAISED, is_of_redis
from redisworld.world.replies import word_of


class Renewed(msgspec.Struct, frozen=True):
    """What a renewal found out: deliveries that are held no more, and those of runs that have been cancelled."""

    lost: list[Delivery] = []
    cancelled: list[Delivery] = []


class Renewal:
    """Renews and gives back deliveries of one consumer; for use by one thread, which closes it."""

    def __init__(self, connection: Connection, consumer: str) -> None:
        self._client = connection.sync_client()
        self._consumer = consumer

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def renew(self, partition: Partition, deliveries: Sequence[Delivery]) -> Renewed:
        """Set the idle time of a partition's deliveries to 0.

        Raises RedisUnavailable, and MalformedMessage where a key of the partition is not ours.
        """
        args: list[str | bytes | int] = [self._consumer]
        for delivery in deliveries:
            args += [delivery.stream, delivery.entry_id, delivery.text("run")]
        found: dict[bytes, list[Delivery]] = {b"lost": [], b"cancelled": []}
        for words in self._call("renew_leases", partition, args)[1:] if deliveries else ():
            word, number = words.split()
            found[word].append(deliveries[int(number) - 1])
        return Renewed(found[b"lost"], found[b"cancelled"])

    def give_back(self, delivery: Delivery) -> None:
        """Put a delivery that has not started back into its stream, bytes as they are. Raises as ``renew`` does."""
        again = Outgoing.again(delivery, body=delivery.fields.get("msg", b""), message_id="")
        args = again.args(old_id="", target=delivery.stream, delay_ms=0)
        self._call("move_message", delivery.partition, ["", self._consumer, delivery.stream, delivery.entry_id, *args])

    def _call(self, name: str, partition: Partition, args: list[Any]) -> Any:
        script = scripts.load(name)
        try:
            try:
                reply = self._client.evalsha(script.sha, 1, partition.stats, *args)
            except NoScriptError:
                reply = self._client.eval(script.text, 1, partition.stats, *args)
            word_of(reply)
            return reply
        except RAISED as error:
            if not is_of_redis(error):
                raise
            raise RedisUnavailable(f"leases could not be renewed: {error}") from error
