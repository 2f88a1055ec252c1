"""Who owns a step whose body is longer than the lease, and who when the lease is really lost? (cases A09 and A10)"""

from __future__ import annotations

import pytest
import redis

from redisworld.events import EventKind
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.probing import cli_worker, metric
from tests.chaos.processes import APP, Workers, eventually
from tests.chaos.watching import held_by, logged, notes, settled

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("count", [1, 2])
async def test_a_healthy_body_much_longer_than_the_lease_starts_once(
    raw: redis.Redis, workers: Workers, connect: Connect, count: int
) -> None:
    """A09, with one worker (no reclaim of one's own) and with two. 20 bodies, one of them inline."""
    async with connect(lease_ms=500) as world:
        for _ in range(count):
            workers.start(lease_ms=500, max_deliveries=3)
        run = await world.start(chaos_app.many_slow, 20, 3.0, run_id="long")
        assert await run.result(timeout=15) == 20
    await settled(raw)
    assert len(logged(raw, "long")[EventKind.STEP_STARTED]) == 20
    assert set(notes(raw, "long").values()) == {1}
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("inline", [0, 1])
async def test_a_body_that_blocks_the_event_loop_keeps_its_lease(
    raw: redis.Redis, workers: Workers, connect: Connect, inline: int
) -> None:
    async with connect(lease_ms=500, max_inline_steps=inline) as world:
        for _ in range(2):
            workers.start(lease_ms=500, max_deliveries=3, max_inline_steps=inline)
        run = await world.start(chaos_app.one_blocking, 3.0, run_id="blocking")
        assert await run.result(timeout=15) == "s"
    await settled(raw)
    assert logged(raw, "blocking")[EventKind.STEP_STARTED][1:] == []
    assert notes(raw, "blocking") == {"s": 1}
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("workflow", ["taken_over", "queued_taken_over"])
async def test_an_owner_that_comes_back_from_a_stop_can_neither_complete_nor_acknowledge_what_another_has_taken(
    raw: redis.Redis, workers: Workers, connect: Connect, workflow: str
) -> None:
    """A10 with SIGSTOP and SIGCONT; the step is an inline one, then a queued one."""
    async with connect() as world:
        old = workers.start(env={"CHAOS_LOG": "DEBUG"})
        run = await world.start(chaos_app.wf.workflows[workflow], "probe:old", "probe:new", run_id="lost")
        await eventually(lambda: "t:1" in notes(raw, "lost"))

        old.freeze()
        new = workers.start(env={"CHAOS_LOG": "DEBUG"})
        await eventually(lambda: "t:2" in notes(raw, "lost"), timeout=15)
        kind = "workflows" if workflow == "taken_over" else "steps"
        assert held_by(raw, new.pid, kind) == 1
        raw.set("probe:old", 1)
        old.thaw()
        await eventually(lambda: "outcome refused" in old.log() and "answer=stale" in old.log(), what="the refusal")

        assert held_by(raw, new.pid, kind) == 1, "the stale completion acknowledged the new owner's message"
        gated = logged(raw, "lost")[EventKind.STEP_STARTED][-1][0]
        assert gated not in dict(logged(raw, "lost")[EventKind.STEP_COMPLETED]), "the stale completion was recorded"
        assert invariants.queued(raw) == 1, "the stale completion published a wake"
        raw.set("probe:new", 1)
        assert await run.result(timeout=10) == "t:2"
    await settled(raw)
    assert [end for end in logged(raw, "lost")[EventKind.STEP_COMPLETED] if end[0] == gated] == [(gated, 2)]
    assert new.log().count("run completed") == 1
    assert "run completed" not in old.log()
    assert " ERROR " not in old.log() + new.log()
    invariants.check(raw, chaos_app.wf)


async def test_an_outcome_that_is_refused_is_counted_as_lost_once(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A10: what an operator sees of it."""
    async with connect() as world:
        old = cli_worker(workers, APP, "--lease", "1s")
        run = await world.start(chaos_app.taken_over, "probe:old", "probe:new", run_id="lost")
        await eventually(lambda: "t:1" in notes(raw, "lost"))
        old.freeze()
        workers.start()
        await eventually(lambda: "t:2" in notes(raw, "lost"), timeout=15)
        raw.set("probe:old", 1)
        old.thaw()
        await eventually(lambda: metric(old, "steps_finished_total", outcome="lost") == 1, what="the refusal")
        raw.set("probe:new", 1)
        assert await run.result(timeout=10) == "t:2"
        assert metric(old, "steps_finished_total", outcome="completed") == 0
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("workflow", ["taken_over", "queued_taken_over"])
async def test_a_step_lost_to_a_worker_that_died_starts_again_although_its_first_owner_still_runs_the_old_body(
    raw: redis.Redis, workers: Workers, connect: Connect, workflow: str
) -> None:
    """Stopped, lost to another, continued: the old body's result can only be refused, so nobody may wait for it."""
    async with connect(lease_ms=500) as world:
        options = {"lease_ms": 500, "max_deliveries": 6}
        old = workers.start(**options)
        run = await world.start(chaos_app.wf.workflows[workflow], "probe:never", "probe:new", run_id="lost")
        await eventually(lambda: "t:1" in notes(raw, "lost"))
        old.freeze()
        new = workers.start(**options)
        await eventually(lambda: "t:2" in notes(raw, "lost"), timeout=15)
        old.thaw()
        new.kill()
        raw.set("probe:new", 1)
        try:
            assert await run.result(timeout=6) == "t:3"
        finally:
            raw.set("probe:never", 1)
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


async def test_a_step_that_was_claimed_and_not_begun_behind_a_blocking_body_loses_no_attempt(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Design section 11: what has not started goes back when the loop stands still. Its attempt was never made."""
    async with connect(lease_ms=600, max_inline_steps=0) as world:
        options = {"lease_ms": 600, "max_inline_steps": 0}
        workers.start(**options)
        run = await world.start(chaos_app.blocked_neighbours, 3.0, run_id="blocked")
        await eventually(lambda: "block" in notes(raw, "blocked"))
        workers.start(**options)
        assert await run.result(timeout=15) == ["block", "n0", "n1", "n2"]
    await settled(raw)
    assert notes(raw, "blocked") == {"block": 1, "n0": 1, "n1": 1, "n2": 1}
    invariants.check(raw, chaos_app.wf)
