"""What does SIGTERM do to the steps of a worker? (case A44, scaled down)"""

from __future__ import annotations

import time

import pytest
import redis

from redisworld.events import EventKind
from redisworld.runs import Step
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.probing import cli_worker, probe
from tests.chaos.processes import APP, Workers, eventually
from tests.chaos.watching import consumers, logged, notes, settled

pytestmark = pytest.mark.anyio

LEASE_MS = 30_000


@pytest.mark.parametrize("long_first", [False, True])
async def test_sigterm_lets_a_short_body_finish_and_hands_a_long_one_back_uncharged(
    raw: redis.Redis, workers: Workers, connect: Connect, long_first: bool
) -> None:
    """The first of the two steps runs inline, the other one is queued. The long one has no retry to spend."""
    async with connect(lease_ms=LEASE_MS) as world:
        old = workers.start(lease_ms=LEASE_MS, grace_ms=2_000, env={"CHAOS_LOG": "DEBUG"})
        run = await world.start(chaos_app.short_and_long, 1.0, long_first, run_id="drained")
        await eventually(lambda: {"short", "long:1"} <= set(notes(raw, "drained")))
        workers.start(lease_ms=LEASE_MS)

        asked = time.monotonic()
        old.stop()
        await eventually(lambda: "draining" in old.log())
        old.stop()  # as those do who forward to a worker what it has got already
        assert await run.result(timeout=20) == ["long:2", "short"]
        took = time.monotonic() - asked
        code = old.wait(10)
        ended = time.monotonic() - asked

    assert took < 2 + 10, "the handed back step did not start soon, as if its lease of 30 s had to end"
    assert code == 0
    assert ended < 2 + 10
    await settled(raw)
    assert notes(raw, "drained") == {"short": 1, "long:1": 1, "long:2": 1}
    log = invariants.log_of(raw, world.partition("drained"), "drained")
    [retrying] = [event for event in log if event.kind is EventKind.STEP_RETRYING]
    assert retrying.detail == "drain"
    state = raw.hget(world.partition("drained").run("drained"), f"s:{retrying.id}")
    assert Step.parse(state.decode()).uncharged == 1
    assert not [name for name in consumers(raw) if f":{old.pid}:" in name], "its consumer is still there"
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("max_inline_steps", [0, 1])
async def test_a_body_that_swallows_each_cancellation_is_handed_back_and_does_not_hold_up_the_exit(
    raw: redis.Redis, workers: Workers, connect: Connect, max_inline_steps: int
) -> None:
    """The process never ended, and renewed the lease of that step as long as it was there."""
    options = {"lease_ms": LEASE_MS, "max_inline_steps": max_inline_steps}
    async with connect(**options) as world:
        old = workers.start(grace_ms=100, **options)
        run = await world.start(chaos_app.deaf_at_first, run_id="deaf")
        await eventually(lambda: notes(raw, "deaf"))
        workers.start(**options)

        old.stop()
        assert old.wait(15) == 0

        assert await run.result(timeout=10) == 2
    await settled(raw)
    assert notes(raw, "deaf") == {"1": 1, "2": 1}
    invariants.check(raw, chaos_app.wf)


async def test_a_draining_worker_starts_nothing_new(raw: redis.Redis, workers: Workers, connect: Connect) -> None:
    async with connect(lease_ms=LEASE_MS) as world:
        old = workers.start(lease_ms=LEASE_MS, grace_ms=3_000)
        first = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="first")
        await eventually(lambda: notes(raw, "first"))
        old.stop()
        await eventually(lambda: "draining" in old.log())
        second = await world.start(chaos_app.two_notes, run_id="second")
        raw.set("probe:gate", 1)
        assert old.wait(10) == 0
        assert notes(raw, "second") == {}, "a draining worker began a new run"
        assert notes(raw, "first") == {"a": 1}, "a draining worker began the next step"

        workers.start(lease_ms=LEASE_MS)
        assert await first.result(timeout=10) == ["a", "d"]
        assert await second.result(timeout=10) == ["x", "y"]
    await settled(raw)
    assert notes(raw, "first") == {"a": 1, "d": 1}
    invariants.check(raw, chaos_app.wf)


async def test_readiness_is_red_from_the_signal_on_while_bodies_finish(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A44: nobody sends it new work; liveness stays, so that nobody kills it in its grace."""
    async with connect(lease_ms=LEASE_MS) as world:
        worker = cli_worker(workers, APP, "--grace", "10s")
        await eventually(lambda: probe(worker, "/readyz") == 200, what="green")
        run = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="last")
        await eventually(lambda: notes(raw, "last"))
        worker.stop()
        await eventually(lambda: probe(worker, "/readyz") == 503, timeout=8, what="red")
        assert probe(worker, "/healthz") == 200
        raw.set("probe:gate", 1)
        assert worker.wait(12) == 0
        workers.start(lease_ms=LEASE_MS)
        assert await run.result(timeout=10) == ["a", "d"]
    await settled(raw)
    assert notes(raw, "last") == {"a": 1, "d": 1}
    invariants.check(raw, chaos_app.wf)


async def test_an_idle_worker_with_the_default_settings_ends_within_its_block_time_after_sigterm(
    raw: redis.Redis, workers: Workers
) -> None:
    worker = workers.start(block_ms=1_000, timer_poll_ms=10_000)
    worker.stop()
    assert worker.wait(5) == 0


async def test_a_second_signal_ends_the_process_at_once(raw: redis.Redis, workers: Workers, connect: Connect) -> None:
    async with connect() as world:
        worker = workers.start(grace_ms=30_000)
        await world.start(chaos_app.gate_then_note, "probe:gate", run_id="stuck")
        await eventually(lambda: notes(raw, "stuck"))
        worker.stop()
        await eventually(lambda: "draining" in worker.log())
        worker.interrupt()
        assert worker.wait(5) == 1
    invariants.check(raw, chaos_app.wf, settled=False)
    assert len(logged(raw, "stuck")[EventKind.STEP_STARTED]) == 1


async def test_a_body_in_a_thread_that_cannot_be_cancelled_is_handed_back_and_does_not_hold_up_the_exit(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect(lease_ms=LEASE_MS) as world:
        old = workers.start(lease_ms=LEASE_MS, grace_ms=500)
        run = await world.start(chaos_app.one_in_a_thread, 30.0, run_id="thread")
        await eventually(lambda: notes(raw, "thread"))
        workers.start(lease_ms=LEASE_MS)
        old.stop()
        assert await run.result(timeout=10) == "t:2"
        assert old.wait(8) == 0
    await settled(raw)
    assert notes(raw, "thread") == {"t:1": 1, "t:2": 1}
    invariants.check(raw, chaos_app.wf)


async def test_what_waits_for_its_turn_when_a_drain_begins_runs_on_another_worker_at_once(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A44's prefetched messages: nobody may have to wait for the lease of the drained worker."""
    options = {"lease_ms": LEASE_MS, "max_inline_steps": 0, "concurrency": 2}
    async with connect(**options) as world:
        old = workers.start(grace_ms=2_000, **options)
        run = await world.start(chaos_app.gated_fan_out, 8, "probe:gate", run_id="eight")
        await eventually(lambda: sum(notes(raw, "eight").values()) == 2)
        workers.start(**options)
        old.stop()
        await eventually(lambda: "draining" in old.log())
        raw.set("probe:gate", 1)
        assert await run.result(timeout=15) == "join 8", "the lease is 30 s"
        assert old.wait(10) == 0
    await settled(raw)
    assert set(notes(raw, "eight").values()) == {1}
    invariants.check(raw, chaos_app.wf)
