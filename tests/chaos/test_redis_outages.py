"""Does work go on when Redis itself goes away for a moment? (promise 4, case A20)"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from redisworld import RedisUnavailable, Settings, World
from redisworld.spawn import private_redis
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually, running
from tests.chaos.watching import notes, settled

pytestmark = pytest.mark.anyio

RUNS = 20
FLUSHING_S = 3.0


@pytest.mark.parametrize("way", ["kill", "pause"])
async def test_runs_go_on_after_redis_was_away_for_longer_than_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A server of its own, with every write on disk; killed and started again, or stopped and continued."""
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    with private_redis(args=durable, allow_wheel=True) as server, running(server.url, tmp_path) as workers:
        both = [workers.start() for _ in range(2)]
        settings = Settings(url=server.url, partitions=2, lease_ms=1_000)
        async with World.connect(settings=settings) as world:
            runs = [await world.start(chaos_app.steady, 10, run_id=f"steady-{n}") for n in range(RUNS)]
            with redis.Redis.from_url(server.url) as raw:
                await eventually(lambda: raw.llen("probe:steady-0") >= 3)
            if way == "kill":
                server.kill()
            else:
                server.pause()
            time.sleep(1.5)  # noqa: ASYNC251 the outage itself: nothing can be observed meanwhile
            if way == "kill":
                server.restart()
            else:
                server.resume()
            for run in runs:
                assert await run.result(timeout=30) == 10
        with redis.Redis.from_url(server.url) as raw:
            await settled(raw)
            for run in runs:
                assert set(notes(raw, run.run_id).values()) <= {1, 2}
            invariants.check(raw, chaos_app.wf)
        assert all(worker.returncode is None for worker in both)
        assert all("Traceback" not in worker.log() for worker in both)


async def test_scripts_flushed_before_every_call_of_the_worker_change_nothing(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A20: the leftover message of a cancelled run gets nothing written, and normal runs go on as ever."""
    async with connect(max_inline_steps=0) as world:
        # given a cancelled run whose step message nobody has acknowledged
        doomed = workers.start(max_inline_steps=0)
        cancelled = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="cancelled")
        await eventually(lambda: notes(raw, "cancelled"))
        doomed.kill()
        await cancelled.terminate()
        steps, log = world.partition("cancelled").steps(), world.partition("cancelled").log("cancelled")
        before = raw.lrange(log, 0, -1)
        assert raw.xlen(steps) == 1
        raw.config_resetstat()

        # when a worker works whose every call meets a Redis without scripts
        began = time.monotonic()
        flushed = workers.start(env={"CHAOS_FLUSH": "1"})
        started = 0
        while time.monotonic() < began + FLUSHING_S or raw.xlen(steps):
            runs = [await world.start(chaos_app.steady, 10, run_id=f"steady-{started + n}") for n in range(RUNS)]
            started += RUNS
            for run in runs:
                assert await run.result(timeout=20) == 10
        await settled(raw)

    assert raw.info("errorstats")["errorstat_NOSCRIPT"]["count"] > 100
    assert raw.lrange(log, 0, -1) == before
    assert notes(raw, "cancelled") == {"a": 1}
    for number in range(started):
        bodies = notes(raw, f"steady-{number}")
        assert (len(bodies), set(bodies.values())) == (10, {1})
    assert "Traceback" not in flushed.log()
    assert " ERROR " not in flushed.log()
    invariants.check(raw, chaos_app.wf)


async def test_a_start_without_a_redis_says_so_soon(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(RedisUnavailable):
        async with World.connect(settings=Settings(url=f"unix://{tmp_path}/none.sock")):
            pass
    assert time.monotonic() - began < 15
