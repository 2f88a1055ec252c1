"""What is lost and what goes on when Redis loses something under running work? (A03, A04; docs/guarantees.md)"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import redis

from redisworld import RunNotFound, Settings, World
from redisworld.keys import GROUP
from redisworld.spawn import PrivateRedis, private_redis
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually, running
from tests.chaos.watching import notes, settled

pytestmark = pytest.mark.anyio

BRANCHES = 60


def total(raw: redis.Redis, name: str) -> int:
    return sum(int(raw.hget(p.stats, name) or 0) for p in invariants.partitions(raw))


async def test_flushall_in_the_middle_of_work_ends_what_was_there_and_new_runs_go_on(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Running bodies, waiting bodies in memory, timers and queued steps, all of which belong to nobody afterwards."""
    async with connect() as world:
        both = [workers.start() for _ in range(2)]
        for number in range(10):
            await world.start(chaos_app.steady, 20, run_id=f"steady-{number}")
            await world.start(chaos_app.slept, 0.5, run_id=f"slept-{number}")
        await eventually(lambda: total(raw, "steps_completed") > 20)
        raw.flushall()
        # the same ids again: bodies of the lost runs still wait in the memory of the workers, and a start message in
        # their hands may have created a run again already
        runs = [await world.start(chaos_app.steady, 20, run_id=f"steady-{number}") for number in range(10)]
        runs += [await world.start(chaos_app.slept, 0.5, run_id=f"slept-{number}") for number in range(10)]
        runs += [await world.start(chaos_app.two_notes, run_id=f"new-{number}") for number in range(10)]
        for run in runs:
            assert await run.result(timeout=15) in (20, "after", ["x", "y"])
        await settled(raw)
        await anyio.sleep(0.6)  # the timers of the lost runs are due by now
    await settled(raw)
    for worker in both:
        assert worker.returncode is None
        assert "Traceback" not in worker.log()
    invariants.check(raw, chaos_app.wf)


async def test_a_group_destroyed_with_pending_entries_under_it_loses_no_step(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Every delivery is a first one again. A body that runs meanwhile may run once more; its result counts once."""
    async with connect() as world:
        both = [workers.start(concurrency=8) for _ in range(2)]
        runs = [await world.start(chaos_app.many_slow, 12, 0.4, run_id=f"r{number}") for number in range(4)]
        for _ in range(3):
            done = total(raw, "steps_completed")
            await eventually(lambda done=done: total(raw, "steps_completed") > done)
            for partition in world.partitions:
                for stream in (partition.steps(), partition.workflows()):
                    if raw.exists(stream):
                        raw.xgroup_destroy(stream, GROUP)
        for run in runs:
            assert await run.result(timeout=20) == 12
    await settled(raw)
    for run in runs:
        assert max(notes(raw, run.run_id).values()) <= 4
    for worker in both:
        assert worker.returncode is None
        assert "Traceback" not in worker.log()
    invariants.check(raw, chaos_app.wf)


@asynccontextmanager
async def fan_outs(server: PrivateRedis, directory: Path) -> AsyncIterator[tuple[redis.Redis, Workers, World]]:
    with running(server.url, directory) as workers, redis.Redis.from_url(server.url) as raw:
        for _ in range(2):
            workers.start(concurrency=8)
        async with World.connect(settings=Settings(url=server.url, partitions=2, lease_ms=1_000)) as world:
            yield raw, workers, world
        for worker in workers.started:
            assert worker.returncode is None
            assert "Traceback" not in worker.log()


@pytest.mark.parametrize("fsync", ["everysec", "always"])
async def test_a_redis_killed_during_a_fan_out_loses_nothing_it_has_acknowledged(tmp_path: Path, fsync: str) -> None:
    """A process crash: what Redis has written is in the page cache, also under everysec."""
    args = ("--appendonly", "yes", "--appendfsync", fsync)
    with private_redis(args=args, allow_wheel=True) as server:
        async with fan_outs(server, tmp_path) as (raw, _, world):
            runs = [await world.start(chaos_app.fan_out_then_join, BRANCHES, run_id=f"r{n}") for n in range(3)]
            await eventually(lambda: total(raw, "steps_completed") > BRANCHES // 2)
            server.kill()
            server.restart()
            for run in runs:
                assert await run.result(timeout=20) == f"join {BRANCHES}"
            await settled(raw)
            invariants.check(raw, chaos_app.wf)


async def test_a_redis_without_persistence_comes_back_empty_and_takes_new_runs(tmp_path: Path) -> None:
    """The old runs are gone, which a waiting caller is told; the workers need no restart."""
    with private_redis(allow_wheel=True) as server:
        async with fan_outs(server, tmp_path) as (raw, _, world):
            old = await world.start(chaos_app.gated_fan_out, BRANCHES, "probe:never", run_id="old")
            await eventually(lambda: notes(raw, "old"))
            row = world.partition("old").run("old")
            await eventually(lambda: raw.hget(row, "wake") == b"", what="nobody commits, who would create it again")
            server.kill()
            server.restart()
            with pytest.raises(RunNotFound):
                await old.result(timeout=10)
            new = await world.start(chaos_app.fan_out_then_join, BRANCHES, run_id="new")
            assert await new.result(timeout=15) == f"join {BRANCHES}"
            # the old run's start message was acknowledged, so nothing brings it back
            assert invariants.run_ids(raw, world.partition("old")) in ([], [b"new".decode()])


async def test_a_redis_with_snapshots_only_goes_back_to_the_last_one_and_on_from_there(tmp_path: Path) -> None:
    """RDB: a consistent earlier state. Steps since then run again; their earlier results are forgotten, not doubled."""
    with private_redis(args=("--save", "3600 1"), allow_wheel=True) as server:
        async with fan_outs(server, tmp_path) as (raw, _, world):
            raw.set("probe:gate", 1)
            run = await world.start(chaos_app.pause_between, 1.0, run_id="back")
            await eventually(lambda: notes(raw, "back") == {"x": 1})
            await eventually(lambda: total(raw, "steps_completed") == 1)
            raw.save()
            assert await run.result(timeout=10) == ["x", "y"]
            since = await world.start(chaos_app.two_notes, run_id="since")
            assert await since.result(timeout=10) == ["x", "y"]
            await settled(raw)  # else the start message in a worker's hands would create it again
            server.kill()
            server.restart()
            assert await run.result(timeout=10) == ["x", "y"]
            with pytest.raises(RunNotFound):
                await since.row()
            await settled(raw)
            assert notes(raw, "back") == {"x": 1, "y": 1}  # the note is from before the snapshot, y from after it
            invariants.check(raw, chaos_app.wf)


def address(server: PrivateRedis) -> tuple[str, str]:
    """Host and port."""
    host, _, port = str(server.tcp_url).removeprefix("redis://").removesuffix("/0").partition(":")
    return host, port


async def test_a_failover_to_a_replica_under_work_ends_with_every_run_complete(tmp_path: Path) -> None:
    """The old primary becomes a replica (READONLY), its address then leads to the new primary, as a failover does.

    Seen from the worker: refusals, then a Redis that has all that was replicated.
    """
    at_once = ("--repl-diskless-sync-delay", "0")
    with (
        private_redis(tcp=True, allow_wheel=True, args=at_once) as first,
        private_redis(tcp=True, allow_wheel=True, args=at_once) as second,
        redis.Redis.from_url(second.url) as replica,
        redis.Redis.from_url(first.url) as primary,
    ):
        replica.replicaof(*address(first))
        await eventually(lambda: replica.info("replication")["master_link_status"] == "up")
        async with fan_outs(first, tmp_path) as (_, _, world):
            runs = [await world.start(chaos_app.steady, 12, run_id=f"r{n}") for n in range(6)]
            await eventually(lambda: total(primary, "steps_completed") > 12)
            primary.execute_command("CLIENT", "PAUSE", 5_000, "WRITE")
            await eventually(
                lambda: (
                    replica.info("replication")["master_repl_offset"]
                    == primary.info("replication")["master_repl_offset"]
                )
            )
            replica.execute_command("REPLICAOF", "NO", "ONE")
            primary.execute_command("CLIENT", "UNPAUSE")
            primary.replicaof(*address(second))  # from here on READONLY at the address the workers know
            await anyio.sleep(1.2)
            assert total(replica, "steps_completed") < 6 * 12
            # the address leads to a primary again: the roles change once more
            await eventually(lambda: primary.info("replication")["master_link_status"] == "up")
            primary.execute_command("REPLICAOF", "NO", "ONE")
            for run in runs:
                assert await run.result(timeout=20) == 12
            await settled(primary)
            invariants.check(primary, chaos_app.wf)


async def test_a_worker_killed_while_it_drains_loses_nothing(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect(lease_ms=600) as world:
        old = workers.start(lease_ms=600, grace_ms=20_000)
        run = await world.start(chaos_app.gated_fan_out, 6, "probe:gate", run_id="six")
        await eventually(lambda: sum(notes(raw, "six").values()) == 6)
        old.stop()
        await eventually(lambda: "draining" in old.log())
        old.kill()
        raw.set("probe:gate", 1)
        workers.start(lease_ms=600)
        assert await run.result(timeout=10) == "join 6"
    await settled(raw)
    assert set(notes(raw, "six").values()) == {1, 2}
    invariants.check(raw, chaos_app.wf)


async def test_a_rolling_restart_of_three_workers_under_load_repeats_no_body(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A44: bodies shorter than the grace, so each finishes where it began; nothing is handed back, lost or repeated."""
    async with connect(lease_ms=30_000) as world:
        options = {"lease_ms": 30_000, "grace_ms": 5_000, "concurrency": 8}
        alive = [workers.start(**options) for _ in range(3)]
        runs = []

        async def load() -> None:
            for number in range(60):
                runs.append(await world.start(chaos_app.steady, 6, run_id=f"r{number}"))
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            for _ in range(3):
                new = workers.start(ready=False, **options)
                await eventually(lambda new=new: "worker started" in new.log())
                old = alive.pop(0)
                old.stop()
                assert await anyio.to_thread.run_sync(old.wait, 15) == 0
                alive.append(new)
        began = time.monotonic()
        for run in runs:
            assert await run.result(timeout=20) == 6
        assert time.monotonic() - began < 15, "something waited for a lease"
    await settled(raw)
    for run in runs:
        assert set(notes(raw, run.run_id).values()) == {1}, run.run_id
    invariants.check(raw, chaos_app.wf)


async def test_a_worker_stopped_for_longer_than_its_lease_and_signalled_meanwhile_drains_when_it_goes_on(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """SIGSTOP, SIGTERM, SIGCONT: its step was taken over; its late result is refused; it ends with 0."""
    async with connect(lease_ms=500) as world:
        old = workers.start(lease_ms=500, grace_ms=2_000)
        run = await world.start(chaos_app.taken_over, "probe:first", "probe:later", run_id="frozen")
        await eventually(lambda: notes(raw, "frozen"))
        old.freeze()
        workers.start(lease_ms=500)
        await eventually(lambda: "t:2" in notes(raw, "frozen"))
        old.stop()
        raw.set("probe:first", 1)
        old.thaw()
        assert await anyio.to_thread.run_sync(old.wait, 10) == 0
        raw.set("probe:later", 1)
        assert await run.result(timeout=10) == "t:2"
    await settled(raw)
    assert notes(raw, "frozen") == {"t:1": 1, "t:2": 1}
    invariants.check(raw, chaos_app.wf)
