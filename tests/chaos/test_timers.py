"""Does a timer fire on time, whatever comes in between and wherever its moment was said? (A16; design section 11)"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest
import redis

from consumers.health import Health
from consumers.timers import Timers
from redisworld.events import EventKind
from redisworld.keys import Partition
from tests.apps import cases_app, chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.watching import settled

pytestmark = pytest.mark.anyio


async def test_a_timer_made_while_a_promotion_is_on_its_way_back_is_promoted_on_time(
    raw: redis.Redis, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer "nothing is due" leaves Redis, a wait of 200 ms is made, and both reach the loop: the nudge first."""
    async with connect(partitions=1, timer_poll_ms=10_000) as world:
        [partition] = world.partitions
        await world.queue.ensure_groups([(partition, "workflows")])
        await world.start(chaos_app.nothing, run_id="r")
        health = Health(blocked_limit_s=60).loop("timers")
        timers, promote, due = Timers(world, health), world.upkeep.promote, 0

        async def slow_answer(partition: Partition, limit: int = 100) -> Any:
            nonlocal due
            answer = await promote(partition, limit)
            if not due:
                seconds, micros = raw.time()
                due = seconds * 1000 + micros // 1000 + 200
                raw.hset(partition.run("r"), "w:w1", f"waiting|{due}")
                raw.zadd(partition.delayed, {"wait r w1": due})
                raw.xadd(partition.nudge, {"due": due})
                await eventually(
                    lambda: timers._nudged.is_set(),  # noqa: PLW0108 the event is replaced at each tick
                    what="the nudge",
                )
            return answer

        monkeypatch.setattr(world.upkeep, "promote", slow_answer)
        stop = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(timers.run, lambda: stop)
            try:  # without the nudge it comes with the next poll, after 10 s
                await eventually(lambda: raw.zcard(partition.delayed) == 0 and due, timeout=8, what="the promotion")
            finally:
                stop = True
                tasks.cancel_scope.cancel()


async def test_a_partition_in_which_very_much_is_due_makes_no_other_one_late(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect(partitions=2) as world:
        crowded, other = world.partitions
        timers = Timers(world, Health(blocked_limit_s=60).loop("timers"))
        raw.zadd(crowded.delayed, {f"wait gone{n} w1": 1 for n in range(250)})
        raw.zadd(other.delayed, {"wait gone w1": 1})

        await timers.tick()

        assert raw.zcard(crowded.delayed) == 150
        assert raw.zcard(other.delayed) == 0

        await timers.tick()
        await timers.tick()

        assert raw.zcard(crowded.delayed) == 0


async def test_a_moment_is_the_same_for_a_client_and_workers_in_different_zones(
    raw: redis.Redis, workers: Workers, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A16: the client in India, the worker in New York; aware moments in both zones, a naive one, one that is past."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        async with connect() as world:
            workers.start(app="tests.apps.cases_app:wf", env={"TZ": "America/New_York"})
            seconds, micros = raw.time()
            due = datetime.fromtimestamp(seconds + micros / 1e6, UTC) + timedelta(seconds=2)
            moments = {"utc": due, "india": due.astimezone(ZoneInfo("Asia/Kolkata")), "past": due - timedelta(hours=1)}
            runs = [await world.start(cases_app.sleeps_until, moment, run_id=r) for r, moment in moments.items()]
            naive = await world.start(cases_app.sleeps_until_a_naive_moment)
            night = datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"))
            apart = await world.start(cases_app.two_half_past_ones, night, night.replace(fold=1))
            assert await naive.result(timeout=10)
            assert await apart.result(timeout=10) == 3_600
            for run in runs:
                assert await run.result(timeout=15) == "after"
        due_ms = int(due.timestamp() * 1_000)
        for run_id in ("utc", "india"):
            log = invariants.log_of(raw, world.partition(run_id), run_id)
            [asked] = [int(event.detail) for event in log if event.kind is EventKind.WAIT_CREATED]
            [woken] = [event.at for event in log if event.kind is EventKind.WAIT_COMPLETED]
            assert abs(asked - due_ms) <= 1
            assert asked <= woken < asked + 1_500
        past = invariants.log_of(raw, world.partition("past"), "past")
        assert EventKind.WAIT_CREATED not in [event.kind for event in past]
        await settled(raw)
        invariants.check(raw, cases_app.wf)
    finally:
        monkeypatch.undo()
        time.tzset()
