"""Do the times and sizes of a run, as commits and its end tell them, say what its log says?"""

from __future__ import annotations

import pytest
import redis

from redisworld.observe import FirstStepStarted, PassCommitted, RunFinished
from tests.apps import conf_app
from tests.conformance.conftest import Connect

pytestmark = pytest.mark.anyio

CREATED = 1_764_628_800_000


async def test_the_first_and_the_last_step_are_timed_from_the_creation_of_the_run(
    connect: Connect, raw: redis.Redis
) -> None:
    async with connect() as consumers:
        world = consumers.world
        world.clock = lambda: CREATED
        await world.start(conf_app.pair, run_id="pair")
        world.clock = lambda: CREATED + 500
        await consumers.wake()
        world.clock = lambda: CREATED + 2_000
        await consumers.step()

        assert [seen.seconds for seen in consumers.saw(FirstStepStarted)] == [0.5]
        [end] = consumers.saw(RunFinished)
        assert (end.seconds, end.last_step_s) == (2.0, 2.0)
        assert consumers.metric("redisworld_run_time_to_first_step_seconds_sum", workflow="pair") == 0.5
        assert consumers.metric("redisworld_run_time_to_last_step_seconds_sum", workflow="pair") == 2.0


async def test_a_first_step_after_a_wait_and_an_end_after_a_wait_are_not_timed(
    connect: Connect, raw: redis.Redis
) -> None:
    async with connect() as consumers:
        consumers.world.clock = lambda: CREATED
        await consumers.world.start(conf_app.napped, 1, run_id="napped")
        await consumers.drain()

        assert consumers.saw(FirstStepStarted) == []
        [end] = consumers.saw(RunFinished)
        assert end.last_step_s == 1.0, "it ended with its step all the same"


async def test_a_pass_counts_the_events_that_it_gave_to_the_body(connect: Connect, raw: redis.Redis) -> None:
    async with connect() as consumers:
        await consumers.world.start(conf_app.wide, 4, run_id="wide")
        await consumers.drain()

        passes = consumers.saw(PassCommitted)
        log = await consumers.world.log("wide")
        # the first pass has read nothing; the last event, the end of the run, is what the last pass has written
        assert sum(seen.events for seen in passes) in (len(log) - 1, len(log) - 2)
        assert all(0 < seen.seconds < 60 for seen in passes)
        assert consumers.metric("redisworld_replay_events_sum", workflow="wide") == sum(seen.events for seen in passes)
        assert consumers.metric("redisworld_replay_duration_seconds_count", workflow="wide") == len(passes)


async def test_connections_are_counted_by_what_they_do(connect: Connect) -> None:
    async with connect() as consumers:
        counts = consumers.world.connection.connections()

        assert set(counts) == {"in_use", "idle"}
        assert counts["in_use"] + counts["idle"] >= 1
