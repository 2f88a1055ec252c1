"""What do gauges, counters and probes say, and what happens between two versions? (A11, A24, A39, A42, A43, A45)"""

from __future__ import annotations

import anyio
import pytest
import redis

from redisworld import RunFailed
from redisworld.events import EventKind
from tests.apps import cases_app, chaos_app, rolling_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.probing import cli_worker, get, metric, most_warnings_a_second, probe
from tests.chaos.processes import APP, Workers, eventually
from tests.chaos.test_wakes import wake
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

RUNS = 150
"""More than one read takes: a worker whose reading breaks after it goes on to find some."""


def total(raw: redis.Redis, name: str) -> int:
    return sum(int(raw.hget(p.stats, name) or 0) for p in invariants.partitions(raw))


async def test_gauges_ask_redis_and_readiness_is_red_while_reading_is_broken(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A42: 30 runs are queued before the first worker comes, whose reading breaks with an error nobody expects."""
    async with connect() as world:
        runs = [await world.start(chaos_app.two_notes, run_id=f"r{number}") for number in range(RUNS)]
        raw.set("probe:break-reading", 1)
        broken = cli_worker(workers, "tests.apps.breaking_app:wf", "--lease", "1s", "--exporter")
        assert metric(broken, "stream_length", queue="workflows") == RUNS, "before the first message is processed"
        await eventually(lambda: "reading is broken" in get(broken, "/readyz")[1], timeout=10, what="red, and why")
        first = metric(broken, "stream_oldest_pending_age_seconds", queue="workflows")
        await anyio.sleep(1.2)
        assert probe(broken, "/readyz") == 503
        assert probe(broken, "/healthz") == 200
        assert metric(broken, "stream_length", queue="workflows") == RUNS
        assert metric(broken, "stream_oldest_pending_age_seconds", queue="workflows") > first
        assert metric(broken, "redis_unavailable", loop="workflows") == 1
        assert metric(broken, "worker_ready") == 0
        assert metric(broken, "worker_last_poll_age_seconds", loop="workflows") >= 1.2
        assert metric(broken, "worker_event_loop_lag_seconds_count") > 0
        await eventually(lambda: metric(broken, "workers", state="unready") == 1, timeout=5)
        assert most_warnings_a_second(broken) <= 2  # the reader's and the sweep's
        raw.delete("probe:break-reading")
        for run in runs:
            assert await run.result(timeout=15) == ["x", "y"]
        await eventually(lambda: probe(broken, "/readyz") == 200, timeout=5, what="green")
        await settled(raw)
        await eventually(lambda: metric(broken, "stream_length") == 0, timeout=5)
        assert broken.returncode is None
    assert all(notes(raw, run.run_id) == {"x": 1, "y": 1} for run in runs)
    invariants.check(raw, chaos_app.wf)


async def test_readiness_is_red_while_reading_hangs_without_an_error(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A42, second test: nothing is raised, nothing comes back; liveness is for the event loop only."""
    async with connect() as world:
        hanging = cli_worker(workers, "tests.apps.breaking_app:wf", "--lease", "1s", "--exporter")
        await eventually(lambda: probe(hanging, "/readyz") == 200, what="green")
        raw.set("probe:hang-reading", 1)
        await eventually(lambda: probe(hanging, "/readyz") == 503, timeout=17, what="red")  # after the read that waits
        assert probe(hanging, "/healthz") == 200
        runs = [await world.start(chaos_app.two_notes, run_id=f"r{number}") for number in range(RUNS)]
        assert metric(hanging, "stream_length", queue="workflows") == RUNS
        raw.delete("probe:hang-reading")
        for run in runs:
            assert await run.result(timeout=15) == ["x", "y"]
        await eventually(lambda: probe(hanging, "/readyz") == 200, timeout=5, what="green again")
    assert hanging.returncode is None
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


async def test_retries_redeliveries_and_replays_are_not_counted_as_runs(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A43: 4 good at once, 3 at the second attempt, 2 that fail at the third, 1 after a kill; 5 stray wakes each."""
    async with connect() as world:
        doomed = workers.start()
        killed = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="killed")
        await eventually(lambda: notes(raw, "killed"))
        doomed.kill()
        worker = cli_worker(workers, APP, "--lease", "1s")
        runs = [await world.start(chaos_app.nothing, run_id=f"n{number}") for number in range(4)]
        runs += [await world.start(chaos_app.retried, run_id=f"a{number}") for number in range(3)]
        failing = [await world.start(chaos_app.fails_thrice, run_id=f"f{number}") for number in range(2)]
        raw.set("probe:gate", 1)
        for run in (*runs, killed):
            await run.result(timeout=15)
        for run in failing:
            with pytest.raises(RunFailed):
                await run.result(timeout=15)
        for _ in range(5):
            for run in (*runs, *failing, killed):
                wake(raw, world.partition(run.run_id), run.run_id)
        await settled(raw)
        expected = {
            "runs_created": 10,
            "runs_completed": 8,
            "runs_failed": 2,
            "steps_started": 3 * 2 + 2 * 3 + 2 + 1,
            "steps_retried": 3 + 2 * 2,
            "steps_completed": 3 + 2,
            "messages_reclaimed": 1,
        }
        assert {name: total(raw, name) for name in expected} == expected
        assert metric(worker, "runs_finished_total", status="completed") == 8
        assert metric(worker, "runs_finished_total", status="failed") == 2
        assert metric(worker, "step_retries_total") == 7
        assert metric(worker, "messages_received_total", delivery="reclaimed") == 1
        await eventually(lambda: metric(worker, "worker_in_flight") == 0, timeout=5)
    invariants.check(raw, chaos_app.wf)


async def test_an_old_worker_hands_back_what_it_does_not_know_without_cost_or_spin(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A45: first only the old one is there, then both; step b has no retry to lose."""
    app = "tests.apps.rolling_app"
    async with connect(max_inline_steps=0) as world:
        old = cli_worker(workers, f"{app}:old", env={"REDISWORLD_MAX_INLINE_STEPS": "0"})
        runs = [await world.start(rolling_app.a_then_b, number, run_id=f"r{number}") for number in range(20)]
        await eventually(lambda: total(raw, "messages_moved") >= 20)
        await anyio.sleep(1.2)
        assert total(raw, "messages_moved") <= 20 * 3, "it spins"
        assert sum(raw.xlen(p.dead) for p in world.partitions) == 0
        workers.start(app=f"{app}:new", max_inline_steps=0)
        await eventually(lambda: total(raw, "runs_completed") >= 5)
        assert metric(old, "messages_moved_total", kind="workflow", reason="unknown_name") >= 20
        assert metric(old, "messages_moved_total", kind="step", reason="unknown_name") >= 1
        old.stop()
        for number, run in enumerate(runs):
            assert await run.result(timeout=30) == number + 1
    await settled(raw)
    for run in runs:
        assert notes(raw, run.run_id) == {"a:1": 1, "b:1": 1}
    invariants.check(raw, rolling_app.new)


async def test_an_idle_worker_outlasts_short_client_timeouts_with_one_read_per_interval(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A39: blocking for five times the time-out of a command; then 150 steps and 60 waiters at once."""
    async with connect(block_ms=1_500, redis_timeout_ms=300) as world:
        worker = workers.start(block_ms=1_500, redis_timeout_ms=300, concurrency=150, max_inline_steps=0)
        await anyio.sleep(0.3)
        raw.config_resetstat()
        await anyio.sleep(3.2)
        reads = raw.info("commandstats")["cmdstat_xreadgroup"]["calls"]
        assert reads <= 2 * 3, "two kinds of streams, one read per block interval each"
        assert most_warnings_a_second(worker) == 0
        run = await world.start(chaos_app.many_slow, 150, 0.3, run_id="many")
        results: list[int] = []

        async def wait() -> None:
            results.append(await world.run("many", chaos_app.many_slow).result(timeout=15))

        async with anyio.create_task_group() as tasks:
            for _ in range(60):
                tasks.start_soon(wait)
        assert results == [150] * 60
        assert await run.result() == 150
        ours = [c for c in raw.client_list() if c["name"].startswith("redisworld")]
        assert len(ours) <= 2 * (36 + 8)
    assert most_warnings_a_second(worker) == 0
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


async def test_many_writers_and_readers_at_once_run_out_of_no_connections(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A39: 150 bodies write 10 chunks each while 60 readers tail the stream."""
    options = {"concurrency": 150, "lease_ms": 3_000}
    async with connect(**options) as world:
        worker = workers.start(app="tests.apps.cases_app:wf", **options)
        run = await world.start(cases_app.many_writers, 150, 10, run_id="r")
        read: list[int] = []

        async def tail() -> None:
            chunks = [chunk async for chunk in world.run("r").stream(type=list[int])]
            assert sorted(tuple(chunk.value) for chunk in chunks) == [(n, c) for n in range(150) for c in range(10)]
            read.append(len(chunks))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(60):
                    tasks.start_soon(tail)
        assert await run.result(timeout=10) == 150
    assert read == [1_500] * 60
    assert {attempt for _, attempt in logged(raw, "r")[EventKind.STEP_STARTED]} == {1}, "a lease was not renewed"
    assert most_warnings_a_second(worker) == 0
    await settled(raw)
    invariants.check(raw, cases_app.wf)


@pytest.mark.parametrize("width", [0, 1, 2, 100])
async def test_joins_of_any_width_end_once_when_all_their_branches_end_together(
    raw: redis.Redis, workers: Workers, connect: Connect, width: int
) -> None:
    """A24: three workers; the branches of five runs wait for one gate. The join follows its last branch soon."""
    options = {"concurrency": 200, "lease_ms": 5_000}
    async with connect(**options) as world:
        for _ in range(3):
            workers.start(**options)
        runs = [await world.start(chaos_app.gated_fan_out, width, "probe:gate", run_id=f"w{n}") for n in range(5)]
        await eventually(lambda: all(sum(notes(raw, run.run_id).values()) >= width for run in runs))
        raw.set("probe:gate", 1)
        for run in runs:
            assert await run.result(timeout=10) == f"join {width}"
    await settled(raw)
    for run in runs:
        assert notes(raw, run.run_id) == {f"b{i}": 1 for i in range(width)} | {f"join {width}": 1}
        log = invariants.log_of(raw, world.partition(run.run_id), run.run_id)
        join = next(at for at, e in enumerate(log) if e.kind is EventKind.STEP_CREATED and e.detail == "note")
        assert log[join].at - log[join - 1].at < 3_000, "a join that waits for a lease or a sweep"
    invariants.check(raw, chaos_app.wf)


async def test_payloads_that_wake_a_run_do_not_dispatch_the_step_that_runs_beside(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A11 with two processes: three payloads while one body waits for its gate."""
    async with connect() as world:
        for _ in range(2):
            workers.start()
        run = await world.start(chaos_app.listens_beside_a_step, "beside", "probe:gate", run_id="r")
        await eventually(lambda: notes(raw, "r"))
        for number in (1, 2, 3):
            await eventually(lambda: raw.exists(world.partition("beside").hook("beside")))
            await world.resume("beside", number)
        await eventually(lambda: len(logged(raw, "r")[EventKind.HOOK_RECEIVED]) == 3)
        await settled_but_one(raw)
        raw.set("probe:gate", 1)
        assert await run.result(timeout=10) == [1, 2, 3]
    await settled(raw)
    assert notes(raw, "r") == {"s": 1}
    log = logged(raw, "r")
    assert len(log[EventKind.STEP_CREATED]) == len(log[EventKind.STEP_STARTED]) == 1
    invariants.check(raw, chaos_app.wf)


async def settled_but_one(raw: redis.Redis) -> None:
    """Only the message that the running body holds is left."""
    await eventually(lambda: invariants.queued(raw) == 1, timeout=10)
