"""Can this Redis be trusted with runs, is the namespace what its meta hash says, and do its workers have one lease?"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
from redis.exceptions import ResponseError

from redisworld.keys import meta, worker_key
from redisworld.world.findings import Finding
from redisworld.world.namespace import used_partitions
from redisworld.world.serving import read_serving

if TYPE_CHECKING:
    from redisworld.world.connection import Connection
    from redisworld.world.world import World

_CLOCK_S = 2.0
"""A difference that shows in logs; what is measured is off by half a round trip."""


async def examine_server(world: World) -> AsyncIterator[Finding]:
    """Settings of the server, or of every node of a cluster, and the meta hash. What an ACL hides is not judged."""
    connection = world.connection
    for name, client in await connection.run("find_nodes", connection.nodes.servers):
        if not connection.embedded:
            try:
                info = await connection.run("info", client.info)
            except ResponseError:
                info = {}
            for finding in (_version(info), _eviction(info), await _persistence(connection, client, info)):
                if finding is not None:
                    yield _at(name, finding)
        if (apart := await _clock(connection, client)) is not None:
            yield _at(name, apart)
    async for finding in _partitions(world):
        yield finding


def _at(name: str, finding: Finding) -> Finding:
    """The finding, with the node that it is about."""
    return msgspec.structs.replace(finding, what=f"node {name}: {finding.what}") if name else finding


def _version(info: dict[str, Any]) -> Finding | None:
    version = str(info.get("redis_version", ""))
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if len(numbers) < 2 or numbers >= [6, 2]:
        return None
    return Finding(code="redis_version", what=f"this is Redis {version}; 6.2 or newer is needed")


def _eviction(info: dict[str, Any]) -> Finding | None:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return None
    limit = int(info.get("maxmemory", 0))
    when = f"at {limit} bytes" if limit else "as soon as maxmemory is set"
    return Finding(code="eviction", what=f"maxmemory-policy is {policy}: Redis deletes keys {when}")


async def _persistence(connection: Connection, client: Any, info: dict[str, Any]) -> Finding | None:
    if info.get("aof_enabled", 1):
        return None
    try:
        found = await connection.run("read_config", lambda: client.config_get("save"))
    except ResponseError:
        return None  # a managed Redis tells nobody, and saves in its own way
    if found.get("save"):
        return None
    return Finding(code="persistence", what="neither the append-only file nor snapshots are on")


async def _clock(connection: Connection, client: Any) -> Finding | None:
    before = time.time()
    seconds, micros = await connection.run("time", client.time)
    after = time.time()
    apart = (before + after) / 2 - (seconds + micros / 1_000_000)
    if abs(apart) <= _CLOCK_S + (after - before) / 2:
        return None
    return Finding(code="clock", what=f"the clock of this machine is {apart:+.1f} s from that of Redis")


async def _partitions(world: World) -> AsyncIterator[Finding]:
    if used := await used_partitions(world.connection, start=len(world.partitions)):
        numbers = ", ".join(str(partition.number) for partition in used)
        yield Finding(
            code="partitions",
            what=f"the namespace has {len(world.partitions)} partitions, and there are keys of partition {numbers}",
            where=(meta(world.settings.namespace), *(partition.stats for partition in used)),
        )


async def examine_leases(world: World) -> Finding | None:
    """Live workers that would take over what others still work on."""
    workers = (await read_serving(world)).workers.values()
    by_lease = {worker.lease_ms: worker.consumer for worker in workers if worker.lease_ms}
    if len(by_lease) < 2:
        return None
    found = sorted(by_lease.items())
    told = ", ".join(f"{lease_ms} ms (as of {consumer})" for lease_ms, consumer in found)
    keys = tuple(worker_key(world.settings.namespace, consumer) for _, consumer in found)
    return Finding(code="leases", what=f"live workers have different leases: {told}", where=keys)
