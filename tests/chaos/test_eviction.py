"""What becomes of runs when memory is full, under each eviction policy? (docs/guarantees.md)

Each test has a Redis of its own, fills its memory with keys of another program, and looks at what is left.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from redisworld import RedisUnavailable, Run, Settings, World
from redisworld.spawn import PrivateRedis, private_redis
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.processes import ROOT, Workers, eventually, running
from tests.chaos.watching import settled

pytestmark = pytest.mark.anyio

OPEN, FINISHED = 30, 200
_BALLAST = b"x" * 100_000
_ROOM = 4_000_000
"""Bytes left for the other program; it writes five times that much."""


@contextmanager
def filling(directory: Path) -> Iterator[tuple[PrivateRedis, redis.Redis, Workers]]:
    with (
        private_redis(allow_wheel=True) as server,
        redis.Redis.from_url(server.url) as raw,
        running(server.url, directory) as workers,
    ):
        yield server, raw, workers


async def at_work(raw: redis.Redis, world: World, workers: Workers) -> list[Run[Any]]:
    """Open runs, each in its first step, and finished ones that stay for their retention."""
    workers.start(concurrency=64)
    done = [await world.start(chaos_app.two_notes, run_id=f"done-{number}") for number in range(FINISHED)]
    for run in done:
        assert await run.result(timeout=30) == ["x", "y"]
    runs = [await world.start(chaos_app.gate_then_note, "probe:gate", run_id=f"open-{n}") for n in range(OPEN)]
    await eventually(lambda: all(raw.exists(f"probe:{run.run_id}") for run in runs), what="all have begun")
    return runs


def fill(raw: redis.Redis, policy: str) -> int:
    """Write more than there is room for, as a cache in the same Redis does; how many writes were refused."""
    raw.config_set("maxmemory", raw.info("memory")["used_memory"] + _ROOM)
    raw.config_set("maxmemory-policy", policy)
    refused = 0
    for number in range(5 * _ROOM // len(_BALLAST)):
        try:
            raw.set(f"probe:ballast:{number}", _BALLAST)
        except redis.exceptions.OutOfMemoryError:
            refused += 1
    return refused


def keys_of(raw: redis.Redis, world: World, run_id: str) -> int:
    """How many of row and log are there."""
    partition = world.partition(run_id)
    return int(raw.exists(partition.run(run_id), partition.log(run_id)))


def told_by_doctor(url: str) -> list[str]:
    """What the command says of this Redis."""
    command = [sys.executable, "-m", "redisworld", "doctor", "--json", "--url", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    findings = json.loads(done.stdout)["findings"]
    return [finding["what"] for finding in findings if finding["code"] == "eviction"]


async def test_noeviction_refuses_new_work_and_loses_nothing(tmp_path: Path) -> None:
    with filling(tmp_path) as (server, raw, workers):
        async with World.connect(settings=Settings(url=server.url, partitions=2)) as world:
            runs = await at_work(raw, world, workers)

            assert fill(raw, "noeviction") > 0
            raw.config_set("maxmemory", raw.info("memory")["used_memory"] - _ROOM // 4)
            with pytest.raises(RedisUnavailable):
                await world.start(chaos_app.two_notes)
            assert raw.info("stats")["evicted_keys"] == 0
            assert all(keys_of(raw, world, f"done-{number}") == 2 for number in range(FINISHED))
            assert told_by_doctor(server.url) == []

            raw.config_set("maxmemory", 0)
            raw.set("probe:gate", 1)
            for run in runs:
                assert await run.result(timeout=30) == ["a", "d"]
        await settled(raw)
        invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"])
async def test_a_volatile_policy_spares_open_runs_and_takes_finished_ones_before_their_time(
    tmp_path: Path, policy: str
) -> None:
    with filling(tmp_path) as (server, raw, workers):
        async with World.connect(settings=Settings(url=server.url, partitions=2)) as world:
            runs = await at_work(raw, world, workers)

            fill(raw, policy)
            raw.config_set("maxmemory", 0)
            assert raw.info("stats")["evicted_keys"] > 0
            left = [keys_of(raw, world, f"done-{number}") for number in range(FINISHED)]
            assert min(left) < 2, "a finished run is gone, or half of it, long before its retention is over"
            assert all(keys_of(raw, world, run.run_id) == 2 for run in runs)
            [told] = told_by_doctor(server.url)
            assert policy in told

            raw.set("probe:gate", 1)
            for run in runs:
                assert await run.result(timeout=30) == ["a", "d"]
        await settled(raw)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_an_allkeys_policy_deletes_open_runs_and_only_doctor_tells(tmp_path: Path, policy: str) -> None:
    with filling(tmp_path) as (server, raw, workers):
        async with World.connect(settings=Settings(url=server.url, partitions=2)) as world:
            runs = await at_work(raw, world, workers)

            assert fill(raw, policy) == 0, "nobody is refused, and nobody is told"
            raw.config_set("maxmemory", 0)
            [told] = told_by_doctor(server.url)
            assert policy in told
            left = [keys_of(raw, world, run.run_id) for run in runs]
            assert min(left) < 2, "an open run is gone, or half of it"
