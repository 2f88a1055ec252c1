"""Does a run that is started for later begin once, on time, and not at all when it was cancelled before?"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
import redis

from redisworld import InvalidInput, RunCancelled, Workflows, World
from redisworld.events import EventKind
from redisworld.runs import Status
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio


def redis_ms(raw: redis.Redis) -> int:
    seconds, micros = raw.time()
    return seconds * 1_000 + micros // 1_000


async def test_a_delayed_start_is_pending_holds_no_message_and_begins_once_on_time(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Leases of 300 ms, 1.2 s of waiting, three starts of one id, and the worker that saw it made is killed."""
    async with connect(lease_ms=300) as world:
        doomed = workers.start(lease_ms=300)
        asked = redis_ms(raw)
        for _ in range(3):
            run = await world.start(chaos_app.two_notes, run_id="later", delay="1.2s")
        row = await run.row()
        assert (row.status, row.started_at) == (Status.PENDING, 0)
        assert asked + 1_200 <= row.start_at <= redis_ms(raw) + 1_200
        assert b"later" in raw.zrange(world.partition("later").index("status:pending"), 0, -1)
        workers.start(lease_ms=300)
        doomed.kill()
        while redis_ms(raw) < row.start_at - 50:
            assert invariants.queued(raw) == 0, "a run that begins later holds a message"
        assert await run.result(timeout=10) == ["x", "y"]
        row = await run.row()
    await settled(raw)
    assert row.start_at <= row.started_at < row.start_at + 1_000
    assert notes(raw, "later") == {"x": 1, "y": 1}
    assert len(logged(raw, "later")[EventKind.RUN_CREATED]) == 1
    assert raw.zcard(world.partition("later").delayed) == 0
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("way", ["cancel", "terminate"])
async def test_a_delayed_start_can_be_cancelled_before_it_begins_and_leaves_nothing_behind(
    raw: redis.Redis, workers: Workers, connect: Connect, way: str
) -> None:
    """Its message must go too: when it came after the row had gone it would create the run again."""
    async with connect(retention_ms=0, reap_every_ms=200) as world:
        run = await world.start(chaos_app.two_notes, run_id="never", delay=0.8)
        due = (await run.row()).start_at
        status = await (run.cancel("enough") if way == "cancel" else run.terminate("enough"))
        assert status is Status.CANCELLED
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(timeout=1)
        assert await (run.cancel() if way == "cancel" else run.terminate()) is Status.CANCELLED
        partition = world.partition("never")
        assert raw.zcard(partition.delayed) == raw.hlen(partition.delayed_body) == 0
        workers.start(retention_ms=0, reap_every_ms=200)
        await eventually(lambda: not raw.exists(partition.run("never")), what="the run is reaped")
        while redis_ms(raw) < due + 300:
            assert not raw.exists(partition.run("never"))
    assert notes(raw, "never") == {}


async def test_a_moment_in_any_zone_is_the_same_moment_and_one_that_has_passed_is_now(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect() as world:
        workers.start()
        moment = datetime.now(UTC) + timedelta(seconds=0.7)
        kolkata = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
        here = await world.start(chaos_app.two_notes, run_id="here", at=moment)
        there = await world.start(chaos_app.two_notes, run_id="there", at=kolkata)
        past = await world.start(chaos_app.two_notes, run_id="past", at=moment - timedelta(days=400))
        far = await world.start(chaos_app.two_notes, run_id="far", delay="50w")
        assert (await here.row()).start_at == (await there.row()).start_at
        assert (await past.row()).start_at == 0
        for run in (past, here, there):
            assert await run.result(timeout=10) == ["x", "y"]
        assert time.time() * 1_000 >= (await here.row()).start_at
        assert await far.status() is Status.PENDING
        await far.cancel()
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


async def test_times_that_mean_nothing_are_refused_at_the_call(raw: redis.Redis, connect: Connect) -> None:
    app = Workflows()

    @app.workflow
    async def delays(delay: float = 1.0) -> None: ...

    async with connect() as world:
        for wrong, told in (
            ({"at": datetime(2030, 1, 1)}, "has no zone"),
            ({"at": "2030-01-01"}, "aware datetime"),
            ({"delay": "soon"}, r"^start\(\): delay: cannot read duration"),
            ({"delay": float("nan")}, "out of range"),
            ({"delay": -1}, "out of range"),
            ({"delay": "5000w", "at": datetime.now(UTC)}, "not both"),
        ):
            with pytest.raises(InvalidInput, match=told):
                await world.start(chaos_app.two_notes, run_id="wrong", **wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="has a parameter 'delay'"):
            await world.start(delays, delay=5.0)
        run = await world.start(delays, 5.0, run_id="by-position")
        assert (await run.row()).start_at == 0
        later = await world.start(delays, 5.0, delay="1h")
        assert (await later.row()).start_at
        assert not raw.exists(world.partition("wrong").run("wrong"))


async def test_a_delayed_start_waits_in_redis_through_a_time_without_workers(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Due while nobody was there; the first worker that comes promotes it."""
    async with connect() as world:
        run = await world.start(chaos_app.two_notes, run_id="alone", delay="50ms")
        due = (await run.row()).start_at
        await eventually(lambda: redis_ms(raw) > due)
        await check_twice(world)
        workers.start()
        assert await run.result(timeout=10) == ["x", "y"]
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


async def check_twice(world: World) -> None:
    """Two loops that promote the same member make one message of it."""
    partition = world.partition("alone")
    late = [len((await world.upkeep.promote(partition))[1]) for _ in range(2)]
    assert late == [1, 0]
