"""Does work go on when Redis is there and says no, or is cut off in ways no connection notices? (A36, A37, A38, A40)"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import redis

from redisworld import Backoff, RedisUnavailable, Settings, Workflows, World, get_step_metadata, sleep
from redisworld.events import EventKind
from redisworld.runs import Status
from redisworld.spawn import PrivateRedis, private_redis
from redisworld.world.refusals import is_transient
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.probing import cli_worker, metric, most_warnings_a_second, probe
from tests.chaos.processes import Workers, eventually, running
from tests.chaos.proxy import Proxy, proxy
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

RUNS = 10
LEASE_MS = 1_000
APP = f"{__name__}:wf"


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
    target = Path(raw.config_get("dir")["dir"]) / raw.config_get("dbfilename")["dbfilename"]
    (target / "in-the-way").mkdir(parents=True)
    raw.config_set("save", "3600 1000000")
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


FAULTS = (noreplicas, misconf, pause_writes, kill_clients, acl("off"))


@contextmanager
def with_a_user(server: PrivateRedis, directory: Path) -> Iterator[tuple[redis.Redis, Workers]]:
    """Workers that log in as a user of their own; notes do not."""
    with redis.Redis.from_url(server.url) as raw:
        raw.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all")
        with running(str(server.tcp_url).replace("redis://", "redis://worker:pw@"), directory) as workers:
            yield raw, workers


async def test_a_redis_that_refuses_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """A36: one refusal after the other, 10 runs at work each time."""
    with private_redis(tcp=True, allow_wheel=True) as server, with_a_user(server, tmp_path) as (raw, workers):
        both = [workers.start(lease_ms=LEASE_MS, env={"CHAOS_REDIS": server.url}) for _ in range(2)]
        async with World.connect(settings=Settings(url=server.url, partitions=2)) as world:
            for number, fault in enumerate(FAULTS):
                runs = [await world.start(chaos_app.steady, 6, run_id=f"steady-{number}-{n}") for n in range(RUNS)]
                slept = await world.start(chaos_app.slept, 0.8)
                await eventually(lambda number=number: raw.llen(f"probe:steady-{number}-0") >= 1)
                await anyio.to_thread.run_sync(fault, raw, 1.2)
                for run in runs:
                    assert await run.result(timeout=20) == 6
                assert await slept.result(timeout=10) == "after"
        await settled(raw)
        invariants.check(raw, chaos_app.wf)
        for worker in both:
            assert worker.returncode is None
            assert "Traceback" not in worker.log()
            assert "dead letter" not in worker.log()
            assert most_warnings_a_second(worker) <= 1


async def test_bodies_that_outlast_an_outage_longer_than_their_lease_are_not_started_again(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    """A36: when Redis takes writes again every lease has run out; living owners renew before others take over."""
    with redis.Redis.from_url(own_redis.url) as raw, running(own_redis.url, tmp_path) as workers:
        for _ in range(3):
            workers.start(lease_ms=LEASE_MS, concurrency=8)
        async with World.connect(settings=Settings(url=own_redis.url, partitions=2)) as world:
            run = await world.start(chaos_app.many_slow, 16, 6.5, run_id="through")
            await eventually(lambda: raw.llen("probe:through") == 16)
            for fault in (noreplicas, pause_all, pause_writes):
                await anyio.to_thread.run_sync(fault, raw, 1.4)
                await anyio.sleep(0.2)
            assert await run.result(timeout=15) == 16
        await settled(raw)
        assert set(notes(raw, "through").values()) == {1}
        assert {attempt for _, attempt in logged(raw, "through")[EventKind.STEP_STARTED]} == {1}
        invariants.check(raw, chaos_app.wf)


async def test_a_worker_that_starts_as_redis_comes_back_takes_nothing_from_the_living(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    """A36: every lease has run out, and the new worker has seen nothing of the outage that made it so.

    The living have a fifth of a lease to renew theirs: on a busy machine one of less than two seconds is too short.
    """
    lease_ms = 2 * LEASE_MS
    with redis.Redis.from_url(own_redis.url) as raw, running(own_redis.url, tmp_path) as workers:
        for _ in range(2):
            workers.start(lease_ms=lease_ms, concurrency=8)
        async with World.connect(settings=Settings(url=own_redis.url, partitions=2)) as world:
            run = await world.start(chaos_app.many_slow, 16, 12.0, run_id="through")
            await eventually(lambda: raw.llen("probe:through") == 16)
            for fault in (pause_all, noreplicas):
                fresh = workers.start(lease_ms=lease_ms, reclaim_every_ms=20, concurrency=16, ready=False)
                await anyio.to_thread.run_sync(fault, raw, 1.5 * lease_ms / 1000)
                await eventually(lambda fresh=fresh: "worker started" in fresh.log())
            assert await run.result(timeout=25) == 16
        await settled(raw)
        assert set(notes(raw, "through").values()) == {1}
        invariants.check(raw, chaos_app.wf)


async def test_a_refusal_is_one_warning_a_second_and_a_gauge_that_goes_to_one_and_back(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    """A36: what an operator sees of a Redis that is there and says no."""
    with redis.Redis.from_url(own_redis.url) as raw, running(own_redis.url, tmp_path) as workers:
        worker = cli_worker(workers, "tests.apps.chaos_app:wf", "--lease", "1s")
        await eventually(lambda: probe(worker, "/readyz") == 200, what="green")
        with refusing(raw, "min-replicas-to-write", 1, 0):
            await eventually(lambda: metric(worker, "redis_unavailable") >= 1, what="the gauge")
            await anyio.sleep(1.5)
            assert probe(worker, "/healthz") == 200
        await eventually(lambda: metric(worker, "redis_unavailable") == 0, what="the gauge is back")
        await eventually(lambda: probe(worker, "/readyz") == 200, what="green again")
        assert most_warnings_a_second(worker) <= 1
        assert worker.returncode is None


def pause_all(raw: redis.Redis, seconds: float) -> None:
    raw.execute_command("CLIENT", "PAUSE", int(seconds * 1000), "ALL")
    time.sleep(seconds + 0.1)


async def test_a_user_that_may_not_write_for_a_while(tmp_path: Path) -> None:
    with private_redis(tcp=True, allow_wheel=True) as server, with_a_user(server, tmp_path) as (raw, workers):
        worker = workers.start(lease_ms=LEASE_MS)
        await anyio.to_thread.run_sync(acl("-@write"), raw, 1.5)
        assert worker.returncode is None, worker.log()[-500:]


# -- A37: cut off without a word

wf = Workflows()


@wf.step
async def where(seconds: float) -> int:
    await anyio.sleep(seconds)
    return os.getpid()


@wf.workflow
async def wheres(count: int) -> list[int]:
    return sorted(set(await asyncio.gather(*(where(0.1) for _ in range(count)))))


@wf.workflow
async def stays(seconds: float) -> int:
    return await where(seconds)


@wf.step
async def one(number: int) -> int:
    return number


@wf.workflow
async def sleeps(seconds: float) -> int:
    await sleep(seconds)
    return await one(3)


async def test_a_black_hole_then_resets_then_a_restart(tmp_path: Path) -> None:
    """A37: readiness says so, liveness does not, and each worker works again without a restart."""
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    with (
        private_redis(args=durable, allow_wheel=True) as server,
        proxy(server.url) as left,
        proxy(server.url) as right,
        running(server.url, tmp_path) as workers,
    ):
        ways: list[Proxy] = [left, right]
        both = [cli_worker(workers, APP, "--concurrency", "4", "--lease", "2s", url=way.url) for way in ways]

        def ready() -> bool:
            return [probe(worker, "/readyz") for worker in both] == [200, 200]

        settings = Settings(url=server.url)

        async def on_each_worker(within: float) -> None:
            async with World.connect(settings=settings) as world:
                deadline = time.monotonic() + within
                seen: set[int] = set()
                while seen != {worker.pid for worker in both}:
                    assert time.monotonic() < deadline, f"work was done by {seen} of {[w.pid for w in both]}"
                    seen |= set(await (await world.start(wheres, 12)).result(timeout=within))

        await on_each_worker(10)
        await eventually(ready, what="both ready")
        for way in ways:
            way.swallow_all()
        red: set[int] = set()
        for _ in range(16):
            await anyio.sleep(0.5)
            if len(red) == 2:
                break
            assert [probe(worker, "/healthz") for worker in both] == [200, 200]
            red |= {worker.pid for worker in both if probe(worker, "/readyz") == 503}
        assert red == {worker.pid for worker in both}, "readiness did not notice"
        for way in ways:
            way.heal()
        for _ in range(3):
            await anyio.sleep(0.4)
            for way in ways:
                way.reset_all()
        await on_each_worker(10)
        server.kill()
        await anyio.sleep(0.5)
        server.restart()
        await on_each_worker(10)
        await eventually(ready, timeout=5, what="both ready again")
        assert all(way.connections <= 40 for way in ways), [way.connections for way in ways]
        for worker in both:
            assert worker.returncode is None
            assert "Traceback" not in worker.log()
            assert most_warnings_a_second(worker) <= 1
        with redis.Redis.from_url(server.url) as raw:
            await settled(raw)
            invariants.check(raw, wf)


# -- refusals that outlast the patience of a call


@pytest.fixture
def own_redis() -> Iterator[PrivateRedis]:
    with private_redis(allow_wheel=True) as server:
        yield server


async def test_a_timer_due_while_redis_refused_for_long_still_fires(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """Given a sleeping run; when writes are refused past the due time for longer than retry_redis_ms; then it wakes."""
    with redis.Redis.from_url(own_redis.url) as raw, running(own_redis.url, tmp_path) as workers:
        workers.start(app=APP, retry_redis_ms=300)
        async with World.connect(settings=Settings(url=own_redis.url, partitions=2)) as world:
            run = await world.start(sleeps, 0.5)
            await eventually(lambda: raw.keys("*delayed"))
            with refusing(raw, "min-replicas-to-write", 1, 0):
                await anyio.sleep(1.5)
            assert await run.result(timeout=10) == 3


@pytest.mark.parametrize("fault", [("min-replicas-to-write", 1), ("maxmemory", 1)])
async def test_a_client_can_connect_look_and_cancel_while_redis_refuses_writes(
    own_redis: PrivateRedis, fault: tuple[str, int]
) -> None:
    settings = Settings(url=own_redis.url, partitions=2, redis_timeout_ms=500)
    with redis.Redis.from_url(own_redis.url) as raw:
        async with World.connect(settings=settings) as world:
            await world.start(sleeps, 60, run_id="there")
        with refusing(raw, *fault, 0):
            async with World.connect(settings=settings) as world:
                assert await world.run("there").status() is Status.PENDING


async def test_a_refused_pipeline_is_redis_unavailable(own_redis: PrivateRedis) -> None:
    settings = Settings(url=own_redis.url, redis_timeout_ms=500)
    with (
        redis.Redis.from_url(own_redis.url) as raw,
        refusing(raw, "min-replicas-to-write", 1, 0),
        pytest.raises(RedisUnavailable),
    ):
        await World.connect(settings=settings).__aenter__()


async def test_a_worker_boots_under_oom_and_drains(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with redis.Redis.from_url(own_redis.url) as raw, running(own_redis.url, tmp_path) as workers:
        first = workers.start()
        first.kill()
        with refusing(raw, "maxmemory", 1, 0):
            second = workers.start(ready=False, redis_timeout_ms=500, retry_redis_ms=500)
            await anyio.sleep(2)
            assert second.returncode is None, second.log()[-500:]


@pytest.mark.parametrize(
    "text",
    [
        "Error running script (call to f_0): @user_script:1: @user_script: 1: -OOM command not allowed when used",
        "Error running script (call to f_0): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good replicas",
        "Error running script (call to f_0): @user_script:1: @user_script: 1: -READONLY You can't write against a read",
        "Error running script (call to f_0): @user_script:1: @user_script: 1: -MISCONF Redis is configured to save RDB",
        pytest.param(
            "The user executing the script can't run this command or subcommand script: 859317, on @user_script:94.",
        ),
    ],
)
def test_a_refusal_inside_a_script_is_transient(text: str) -> None:
    """The texts are those of Redis 6.2.14 and 7.0.15."""
    assert is_transient(redis.ResponseError(text))


async def test_a_drain_without_redis_ends(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """Given a finished body whose outcome cannot be recorded; when SIGTERM comes; then the process ends in time."""
    with redis.Redis.from_url(own_redis.url) as raw, running(own_redis.url, tmp_path) as workers:
        worker = workers.start(app=APP, grace_ms=500, retry_redis_ms=500, redis_timeout_ms=500)
        async with World.connect(settings=Settings(url=own_redis.url, partitions=2)) as world:
            await world.start(stays, 1.0, run_id="down")
            await eventually(lambda: invariants.pending(raw))
            await anyio.sleep(0.2)
        own_redis.kill()
        await anyio.sleep(1.2)
        worker.stop()
        assert worker.wait(4) == 0


# -- A38: cancelled while they talk to Redis


async def test_calls_cancelled_at_random_moments_mix_up_no_replies(
    own_redis: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """A38."""
    chance = random.Random(3)
    with proxy(own_redis.url) as between, redis.Redis.from_url(own_redis.url) as raw:
        for number in range(300):
            raw.set(f"k{number}", f"v{number}")
        between.latency_s = 0.01
        async with World.connect(settings=Settings(url=between.url)) as world:
            known = [await world.start(sleeps, 60, run_id=f"known-{number}") for number in range(5)]

            async def talk(number: int) -> None:
                with anyio.move_on_after(chance.uniform(0.001, 0.06)):
                    if number % 3 == 0:
                        await world.start(sleeps, 60, run_id=f"cut-{number}")
                    elif number % 3 == 1:
                        await known[number % 5].row()
                    else:
                        await known[number % 5].result()

            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(talk, number)
            between.latency_s = 0.0
            for run in known:
                assert (await run.row()).run_id == run.run_id
                assert (await run.row()).workflow == "sleeps"
            answers = await asyncio.gather(*(world.connection.commands.get(f"k{number}") for number in range(30)))
            assert answers == [f"v{number}".encode() for number in range(30)]
            for number in range(300):
                assert await world.connection.commands.get(f"k{number}") == f"v{number}".encode()
            for number in range(0, 200, 3):  # a start that was cut short may be repeated
                run = await world.start(sleeps, 60, run_id=f"cut-{number}")
                assert (await run.row()).workflow == "sleeps"
    gc.collect()
    assert "never retrieved" not in caplog.text


@wf.step(max_retries=9, backoff=Backoff(first_ms=5, cap_ms=20))
async def starts_another(number: int) -> str:
    """Its first attempts are cut short while they talk to Redis."""
    patience = random.uniform(0.01, 0.2) if get_step_metadata().attempt < 6 else None
    async with asyncio.timeout(patience), World.connect(os.environ["CHAOS_REDIS"]) as world:
        run = await world.start(stays, 0.0, run_id=f"child-{number}")
        await run.result()
        return (await run.row()).run_id


@wf.workflow
async def starts_many(count: int) -> list[str]:
    return await asyncio.gather(*(starts_another(number) for number in range(count)))


async def test_step_bodies_cut_short_in_a_world_of_their_own(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with (
        redis.Redis.from_url(own_redis.url) as raw,
        proxy(own_redis.url) as between,
        running(own_redis.url, tmp_path) as workers,
    ):
        between.latency_s = 0.002
        worker = workers.start(app=APP, env={"CHAOS_REDIS": between.url})
        async with World.connect(settings=Settings(url=own_redis.url, partitions=2)) as world:
            run = await world.start(starts_many, 8)
            assert await run.result(timeout=40) == [f"child-{number}" for number in range(8)]
        await settled(raw)
        assert between.accepted > 8
        assert worker.returncode is None
        assert "never retrieved" not in worker.log()
        assert "Traceback" not in worker.log()
        invariants.check(raw, wf)


# -- A40: no memory


async def test_without_memory_a_worker_restarts_runs_are_cancelled_and_what_has_expired_goes(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    """A40: what frees memory goes on under OOM, in old workers and in one that starts meanwhile; a metric shows it."""
    options = {"lease_ms": LEASE_MS, "retention_ms": 3_000, "reap_every_ms": 200}
    with redis.Redis.from_url(own_redis.url) as raw, running(own_redis.url, tmp_path) as workers:
        doomed = workers.start(app=APP, **options)
        settings = Settings(url=own_redis.url, partitions=2, retention_ms=3_000)
        async with World.connect(settings=settings) as world:
            runs = [await world.start(in_rows, 2, 6, run_id=f"half-{number}") for number in range(RUNS)]
            finished = [await world.start(in_rows, 0, 0, run_id=f"over-{number}") for number in range(20)]
            cancelled = await world.start(sleeps, 60, run_id="cancelled")
            for run in finished:
                assert await run.result(timeout=15) == 0
            rows = [world.partition(run.run_id).run(run.run_id) for run in finished]
            assert raw.exists(*rows) > 0
            with refusing(raw, "maxmemory", 1, 0):
                doomed.kill()
                env = {"REDISWORLD_RETENTION_MS": "3000", "REDISWORLD_REAP_EVERY_MS": "200"}
                fresh = cli_worker(workers, APP, "--lease", "1s", env=env)
                await cancelled.terminate()
                assert await cancelled.status() is Status.CANCELLED
                await eventually(lambda: raw.exists(*rows) == 0, timeout=15, what="expired runs are reaped")
                await eventually(
                    lambda: metric(fresh, "redis_errors_total", error="oom") > 0, timeout=15, what="refusals counted"
                )
                assert fresh.returncode is None
            for run in runs:
                assert await run.result(timeout=20) == 12
        await settled(raw)
        fresh.stop()  # a reaper at work takes rows away between two reads of the check
        fresh.wait(timeout=30)
        assert raw.info("stats")["evicted_keys"] == 0
        invariants.check(raw, wf)


async def test_no_memory_in_the_middle_of_runs(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """A40: what frees memory goes on, what needs it is refused; bodies that ran are recorded."""
    with redis.Redis.from_url(own_redis.url) as raw, running(own_redis.url, tmp_path) as workers:
        both = [workers.start(app=APP, concurrency=16) for _ in range(2)]

        def total(name: str) -> int:
            return sum(int(raw.hget(p.stats, name) or 0) for p in invariants.partitions(raw))

        async with World.connect(settings=Settings(url=own_redis.url, partitions=2)) as world:
            runs = [await world.start(in_rows, 2, 6, run_id=f"oom-{number}") for number in range(RUNS)]
            doomed = await world.start(sleeps, 60, run_id="doomed")
            await eventually(lambda: total("steps_completed") > 30)
            with refusing(raw, "maxmemory", 1, 0):
                before = total("steps_completed")
                began = time.monotonic()
                with pytest.raises(RedisUnavailable):
                    await world.start(sleeps, 60)
                assert time.monotonic() - began < 10, "as long as an outage is waited for"
                await doomed.terminate()
                await anyio.sleep(2)
                assert total("steps_completed") > before, "running bodies could not report"
                assert all(worker.returncode is None for worker in both)
            for run in runs:
                assert await run.result(timeout=20) == 12
        await settled(raw)
        for worker in both:
            assert worker.returncode is None
            assert "Traceback" not in worker.log()
        invariants.check(raw, wf)


@wf.workflow
async def in_rows(rows: int, width: int) -> int:
    total = 0
    for _ in range(rows):
        total += len(await asyncio.gather(*(where(0.3) for _ in range(width))))
    return total
