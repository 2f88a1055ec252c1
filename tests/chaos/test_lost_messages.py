"""Do runs go on when a person deletes their messages under running workers? (design section 8; docs/operations.md)"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from redisworld.events import EventKind
from redisworld.keys import GROUP, Partition
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

OPTIONS = {"partitions": 1, "recover_every_ms": 200}


def xdel_and_xack(raw: redis.Redis, key: str) -> None:
    for entry, _ in raw.xrange(key):
        raw.xack(key, GROUP, entry)
        raw.xdel(key, entry)


def delete(raw: redis.Redis, key: str) -> None:
    raw.delete(key)


@pytest.mark.parametrize("how", [xdel_and_xack, delete])
async def test_runs_whose_wakes_are_deleted_before_they_are_read_end_all_the_same(
    raw: redis.Redis, workers: Workers, connect: Connect, how: Callable[[redis.Redis, str], None]
) -> None:
    async with connect(**OPTIONS) as world:
        runs = [await world.start(chaos_app.two_notes, run_id=f"run-{number}") for number in range(60)]
        how(raw, world.partitions[0].workflows())
        workers.start(**OPTIONS)
        workers.start(**OPTIONS)
        for run in runs:
            assert await run.result(timeout=20) == ["x", "y"]
    await settled(raw)
    for number in range(60):
        assert notes(raw, f"run-{number}") == {"x": 1, "y": 1}
    stats = raw.hgetall(world.partitions[0].stats)
    assert int(stats[b"runs_recovered"]) == 60, "one recovery wake for each"
    invariants.check(raw, chaos_app.wf)


async def test_a_step_whose_message_is_deleted_in_the_queue_runs_once(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    options = {**OPTIONS, "max_inline_steps": 0}
    async with connect(**options) as world:
        partition: Partition = world.partitions[0]
        worker = workers.start(**options, concurrency=1)
        run = await world.start(chaos_app.gated_fan_out, 3, "probe:gate", run_id="three")
        await eventually(lambda: raw.llen("probe:three") == 1, what="one body holds the only slot")
        [held] = raw.xpending_range(partition.steps(), GROUP, "-", "+", 10)
        for entry, _ in raw.xrange(partition.steps()):
            if entry != held["message_id"]:
                raw.xdel(partition.steps(), entry)
        await eventually(
            lambda: int(raw.hget(partition.stats, "steps_redispatched") or 0) == 2, what="both are sent again"
        )
        raw.set("probe:gate", 1)
        assert await run.result(timeout=20) == "join 3"
        await settled(raw)
    assert notes(raw, "three") == {"b0": 1, "b1": 1, "b2": 1, "join 3": 1}
    assert len(logged(raw, "three")[EventKind.STEP_STARTED]) == 4
    assert worker.log().count("the message that a run waited for was nowhere") == 2
    invariants.check(raw, chaos_app.wf)


async def test_under_load_nothing_is_recovered_that_was_not_lost(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Sweeps many times a second while runs are made, replayed, retried and handed over."""
    options = {**OPTIONS, "recover_every_ms": 20, "concurrency": 8}
    async with connect(**options) as world:
        for _ in range(2):
            workers.start(**options)
        runs = [await world.start(chaos_app.mixed, run_id=f"run-{number}") for number in range(25)]
        for run in runs:
            await run.result(timeout=30)
    await settled(raw)
    stats = raw.hgetall(world.partitions[0].stats)
    assert b"runs_recovered" not in stats
    assert b"steps_redispatched" not in stats
    invariants.check(raw, chaos_app.wf)
