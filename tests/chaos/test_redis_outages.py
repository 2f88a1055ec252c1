"""Does work go on when Redis itself goes away for a moment? (promise 4, case A20)"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import redis

from redisworld import RedisUnavailable, Settings, World
from redisworld.spawn import private_redis
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.processes import Workers, eventually, running
from tests.chaos.watching import notes, settled

pytestmark = pytest.mark.anyio

RUNS = 20


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


async def test_scripts_flushed_all_the_time_change_nothing(raw: redis.Redis, workers: Workers, redis_url: str) -> None:
    """A20: a cancelled run gains no event, and the others complete."""
    over = threading.Event()

    def flush() -> None:
        with redis.Redis.from_url(redis_url) as client:
            while not over.wait(0.001):
                client.script_flush()

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        async with World.connect(settings=Settings(url=redis_url, partitions=2)) as world:
            workers.start()
            cancelled = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="cancelled")
            await eventually(lambda: notes(raw, "cancelled"))
            await cancelled.terminate()
            raw.set("probe:gate", 1)
            runs = [await world.start(chaos_app.steady, 10, run_id=f"steady-{n}") for n in range(10)]
            for run in runs:
                assert await run.result(timeout=20) == 10
    finally:
        over.set()
        flushing.join()
    await settled(raw)
    assert notes(raw, "cancelled") == {"a": 1}
    assert all(set(notes(raw, run.run_id).values()) == {1} for run in runs)
    invariants.check(raw, chaos_app.wf)


async def test_a_start_without_a_redis_says_so_soon(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(RedisUnavailable):
        async with World.connect(settings=Settings(url=f"unix://{tmp_path}/none.sock")):
            pass
    assert time.monotonic() - began < 15
