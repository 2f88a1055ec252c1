"""What happens when two workers do the same thing for one run at the same moment? (cases A22 and A23)"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import redis

from redisworld.events import EventKind
from redisworld.observe import MessageMoved, PassCommitted
from redisworld.world import Committed, World
from tests.apps import conf_app
from tests.chaos import invariants
from tests.chaos.processes import eventually
from tests.conformance.conftest import Connect

pytestmark = pytest.mark.anyio

TIMES = 200


def meet_before_the_first_commit(world: World, barrier: asyncio.Barrier) -> None:
    """Each first pass of this World waits at the barrier, with all it wants to write in its hands."""
    commit = world.deliveries.commit

    async def commit_together(*args: Any, **kwargs: Any) -> Committed:
        if kwargs["started_at"] is not None:
            await barrier.wait()
        return await commit(*args, **kwargs)

    world.deliveries.commit = commit_together  # type: ignore[method-assign]


async def test_two_passes_of_one_wake_that_write_at_once_create_each_step_once_and_the_loser_stops_quietly(
    raw: redis.Redis, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """A23: 200 times; five steps created and five bodies per run, no error, nothing sent again, clean cold replays."""
    async with connect() as one, connect() as other, asyncio.timeout(60):
        barrier = asyncio.Barrier(2)
        for consumers in (one, other):
            meet_before_the_first_commit(consumers.world, barrier)
        for number in range(TIMES):
            await one.world.start(conf_app.wide, 5, run_id=f"twice-{number}")
            [(_, fields)] = raw.xrange(one.partition.workflows())
            raw.xadd(one.partition.workflows(), fields)
            wakes = await one.take("workflows"), await other.take("workflows")
            assert None not in wakes
            with caplog.at_level(logging.INFO, "redisworld"):
                await asyncio.gather(one.process(wakes[0]), other.process(wakes[1]))  # type: ignore[arg-type]
            queued = await one.world.queue.read([one.stream("steps")], count=5)
            await asyncio.gather(*(one.process(delivery) for delivery in queued))

            kinds = one.kinds(f"twice-{number}")
            assert kinds.count(EventKind.STEP_CREATED) == 5
            assert kinds.count(EventKind.STEP_STARTED) == 5
            assert kinds[-1] is EventKind.RUN_COMPLETED
        assert conf_app.executions("double") == 5 * TIMES
        first = [seen.outcome for seen in one.saw(PassCommitted) if seen.outcome == "lost"]
        assert len(first) == TIMES, "the passes did not meet"
        assert one.saw(MessageMoved) == []
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    invariants.check(raw, conf_app.wf)


async def test_two_workers_that_both_finish_the_last_branch_bring_about_one_join(
    raw: redis.Redis, connect: Connect
) -> None:
    """A22: its variant; one loses its lease in the body, the other one takes the step over, both bodies end at once."""
    async with connect() as one, connect() as other, asyncio.timeout(60):
        for number in range(25):
            run_id, barrier = f"join-{number}", asyncio.Barrier(2)
            await one.world.start(conf_app.joined, 3, run_id=run_id)
            await one.wake()
            await one.step()
            conf_app.during += [barrier.wait] * 2
            delivery = await one.take("steps")
            assert delivery is not None
            losing = asyncio.ensure_future(one.process(delivery))
            await eventually(lambda: barrier.n_waiting, what="the first body runs")  # noqa: B023

            await other.process(await other.redelivered(delivery))
            await losing
            await one.drain()

            kinds = one.kinds(run_id)
            assert kinds.count(EventKind.STEP_CREATED) == kinds.count(EventKind.STEP_COMPLETED) == 4
            assert await one.world.run(run_id).result(timeout=5) == ([0, 2, 4], 3)
        assert conf_app.executions("double") == 4 * 25
        assert conf_app.executions("echo") == 25
    invariants.check(raw, conf_app.wf)
