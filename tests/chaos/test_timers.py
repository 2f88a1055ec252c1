"""Can a nudge that comes while the timer loop is busy be lost? (design section 11: lateness p99 under 100 ms)"""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest
import redis

from consumers.health import Health
from consumers.timers import Timers
from redisworld.keys import Partition
from tests.apps import chaos_app
from tests.chaos.conftest import Connect
from tests.chaos.processes import eventually

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
        timers, promote, due = Timers(world, health), world.promote, 0

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

        monkeypatch.setattr(world, "promote", slow_answer)
        stop = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(timers.run, lambda: stop)
            began = time.monotonic()
            try:
                await eventually(lambda: raw.zcard(partition.delayed) == 0 and due, timeout=3, what="the promotion")
            finally:
                stop = True
                tasks.cancel_scope.cancel()
        assert time.monotonic() - began < 2
