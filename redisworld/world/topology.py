"""Which node of a Redis Cluster serves a key? What a client knows of it, and how it learns that it is wrong.

Any node tells who serves which slots (``CLUSTER SLOTS``). After a failover or while slots move that is out of date:
a node that does not serve a slot says who does (MOVED, ASK), and an error casts doubt on all.
"""

from __future__ import annotations

import binascii
import random
from collections.abc import Iterable, Sequence
from typing import Any

from redis.exceptions import AskError, ClusterDownError, MovedError

from redisworld.world.addresses import Address

_SLOTS = 16_384

MOST_REDIRECTIONS = 5
"""Nodes that one call is sent on to; nodes that disagree for longer are asked again after a pause."""


def slot_of(key: str | bytes) -> int:
    """The slot of a key: that of its hash tag, where it has one."""
    name = key.encode() if isinstance(key, str) else key
    begin = name.find(b"{")
    end = name.find(b"}", begin + 1) if begin >= 0 else -1
    return binascii.crc_hqx(name[begin + 1 : end] if end > begin + 1 else name, 0) % _SLOTS


class Topology:
    """The nodes of a cluster as far as they are known. ``in_doubt``: ask them again before the next call."""

    def __init__(self, seeds: Iterable[Address]) -> None:
        self._seeds = tuple(seeds)
        self._serving: dict[int, Address] = {}
        self.primaries: tuple[Address, ...] = ()
        self.replicas: tuple[Address, ...] = ()
        self.in_doubt = True

    def primary_of(self, key: str | bytes | None) -> Address:
        """The node that serves a key; any primary for None. Raises ClusterDownError where nobody does."""
        if key is None:
            if self.primaries:
                return random.choice(self.primaries)
            raise ClusterDownError("no node of the cluster serves anything")
        try:
            return self._serving[slot := slot_of(key)]
        except KeyError:
            self.in_doubt = True
            raise ClusterDownError(f"no node of the cluster serves slot {slot}") from None

    def grouped(self, keys: Sequence[Any]) -> list[list[int]]:
        """The numbers of these keys, together where one node serves them. Raises ClusterDownError."""
        groups: dict[Address, list[int]] = {}
        anywhere: list[int] = []
        for number, key in enumerate(keys):
            (anywhere if key is None else groups.setdefault(self.primary_of(key), [])).append(number)
        together = list(groups.values()) or [[]]
        together[0].extend(anywhere)
        return [numbers for numbers in together if numbers]

    def everybody(self) -> list[Address]:
        """Whom to ask for the nodes, in random order: one that is cut off from the others tells what was."""
        known = list(dict.fromkeys((*self.primaries, *self.replicas)))
        random.shuffle(known)
        return list(dict.fromkeys((*known, *self._seeds)))

    def learn(self, slots: Sequence[Sequence[Any]], told_by: Address) -> None:
        """Take over what a node answers to CLUSTER SLOTS. Raises ClusterDownError where it knows of no node."""
        serving: dict[int, Address] = {}
        primaries: dict[Address, None] = {}
        replicas: dict[Address, None] = {}
        for first, last, primary, *others in slots:
            address = _address(primary, told_by)
            primaries[address] = None
            replicas |= dict.fromkeys(_address(node, told_by) for node in others)
            serving |= dict.fromkeys(range(first, last + 1), address)
        if not primaries:
            raise ClusterDownError("the nodes of the cluster serve no slots")
        self._serving, self.primaries, self.replicas = serving, tuple(primaries), tuple(replicas)
        self.in_doubt = False

    def redirected(self, error: AskError, told_by: Address) -> Address:
        """The node that a node names instead of itself. MOVED is for good, ASK for one call."""
        address = (error.host if error.host not in ("", "?") else told_by[0], error.port)
        if isinstance(error, MovedError):
            self._serving[error.slot_id] = address
            self.in_doubt = True
        return address


def _address(node: Sequence[Any], told_by: Address) -> Address:
    """A node that does not know its own name (``""`` or nothing) has that of the one who tells."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return host if host and host != "?" else told_by[0], int(node[1])
