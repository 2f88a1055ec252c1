"""Does work go on when Redis is there and says no, or is cut off in ways no connection notices? (A36, A37, A38, A40)"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis

from consumers.worker import Worker
from redisworld import RedisUnavailable, Settings, Workflows, World, sleep
from redisworld.runs import Status
from redisworld.spawn import PrivateRedis, private_redis
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.processes import WorkerProcess, Workers, eventually, running
from tests.chaos.proxy import Proxy, proxy
from tests.chaos.watching import notes, settled

pytestmark = pytest.mark.anyio

RUNS = 20
LEASE_MS = 1_000


@contextmanager
def refusing(raw: redis.Redis, name: str, value: object, healed: object) -> Iterator[None]:
    raw.config_set(name, value)
    try:
        yield
    finally:
        raw.config_set(name, healed)


def noreplicas(raw: redis.Redis, seconds: float) -> None:
    with refusing(raw, "min-replicas-to-write", 1, 0):
        time.sleep(seconds)


def misconf(raw: redis.Redis, seconds: float) -> None:
    """A failed background save; Redis refuses writes while save points are set and the last one failed."""
    raw.config_set("save", "3600 1000000")
    raw.config_set("dbfilename", "there-is-a-directory")
    directory = Path(raw.config_get("dir")["dir"]) / "there-is-a-directory"
    directory.mkdir()
    (directory / "full").write_text("")
    raw.bgsave()
    while raw.info("persistence")["rdb_last_bgsave_status"] != "err":
        time.sleep(0.01)
    time.sleep(seconds)
    raw.config_set("save", "")


def pause_writes(raw: redis.Redis, seconds: float) -> None:
    raw.execute_command("CLIENT", "PAUSE", int(seconds * 1000), "WRITE")
    time.sleep(seconds)


def kill_clients(raw: redis.Redis, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        raw.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.2)


def acl(*taken: str) -> Callable[[redis.Redis, float], None]:
    def take(raw: redis.Redis, seconds: float) -> None:
        raw.execute_command("ACL", "SETUSER", "worker", *taken)
        raw.client_kill_filter(_type="normal", skipme=True)
        time.sleep(seconds)
        raw.execute_command("ACL", "SETUSER", "worker", "on", "+@all")

    return take


FAULTS = {
    "noreplicas": noreplicas,
    "misconf": misconf,
    "pause": pause_writes,
    "kill": kill_clients,
    "acl off": acl("off"),
    "acl no write": acl("-@write"),
    "acl no read": acl("-@read"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_redis_that_refuses_costs_time_and_nothing_else(tmp_path: Path, fault: str) -> None:
    with private_redis(tcp=True, allow_wheel=True) as server, redis.Redis.from_url(server.url) as raw:
        raw.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all")
        url = str(server.tcp_url).replace("redis://", "redis://worker:pw@")
        with running(url, tmp_path) as workers:
            both = [workers.start(lease_ms=LEASE_MS, env={"CHAOS_REDIS": server.url}) for _ in range(2)]
            async with World.connect(settings=Settings(url=server.url, partitions=2)) as world:
                runs = [await world.start(chaos_app.steady, 10, run_id=f"steady-{n}") for n in range(RUNS)]
                slept = await world.start(chaos_app.slept, 1.5)
                await eventually(lambda: raw.llen("probe:steady-0") >= 2)
                await anyio.to_thread.run_sync(FAULTS[fault], raw, 2.5)
                for run in runs:
                    assert await run.result(timeout=20) == 10
                assert await slept.result(timeout=10) == "after"
            await settled(raw)
            invariants.check(raw, chaos_app.wf)
            assert all(worker.returncode is None for worker in both)
            for worker in both:
                assert "Traceback" not in worker.log()
                assert "dead letter" not in worker.log()
            print(fault, [warnings_per_second(worker) for worker in both])


def warnings_per_second(worker: WorkerProcess) -> int:
    """The most warnings a worker has written in one second."""
    seconds = re.findall(r"^(\S+ \S+),\d+ (?:WARNING|ERROR)", worker.log(), re.MULTILINE)
    return max(Counter(seconds).values(), default=0)
