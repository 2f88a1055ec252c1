"""Does it harm a run to be woken twice, too early, or by many at once? (cases A14, A18, A22, A23)"""

from __future__ import annotations

import time

import anyio
import msgspec
import pytest
import redis

from redisworld import RunCancelled, messages
from redisworld.events import EventKind
from redisworld.keys import Partition
from redisworld.messages import WorkflowMessage
from tests.apps import chaos_app
from tests.chaos import invariants
from tests.chaos.conftest import Connect
from tests.chaos.processes import Workers, eventually
from tests.chaos.watching import logged, notes, settled

pytestmark = pytest.mark.anyio

RUNS = 50


def wake(raw: redis.Redis, partition: Partition, run_id: str) -> None:
    """A wake that nothing asked for."""
    message = WorkflowMessage(message_id="stray", run_id=run_id, workflow_name="slept", reason="admin")
    raw.xadd(partition.workflows(), {"kind": "workflow", "spec": "1", "run": run_id, "name": "slept", "reason": "admin",
                                     "msg": messages.encode(message)})  # fmt: skip


async def test_a_duplicated_wake_creates_nothing_twice_and_diverges_nowhere(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A23: both workers stand still until every wake is there twice, so that they take the copies together.

    tests/conformance/test_together.py lets two passes meet right before their commit, 200 times.
    """
    async with connect() as world:
        both = [workers.start(replay_concurrency=2, lease_ms=5_000, env={"CHAOS_LOG": "DEBUG"}) for _ in range(2)]
        for worker in both:
            worker.freeze()
        runs = []
        for number in range(RUNS):
            runs.append(await world.start(chaos_app.fan_out, 5, run_id=f"twice-{number}"))
            stream = world.partition(runs[-1].run_id).workflows()
            [(_, fields)] = raw.xrevrange(stream, count=1)
            raw.xadd(stream, fields)
        for worker in both:
            worker.thaw()
        for run in runs:
            assert await run.result(timeout=20) == 10
    await settled(raw)
    for run in runs:
        assert len(logged(raw, run.run_id)[EventKind.STEP_CREATED]) == 5
        assert sum(notes(raw, run.run_id).values()) == 5
    logs = both[0].log() + both[1].log()
    assert "diverged" not in logs
    assert " ERROR " not in logs
    invariants.check(raw, chaos_app.wf)


async def test_the_losing_copy_of_a_wake_is_acknowledged_at_once_while_the_winner_owns_an_inline_step(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """Else it stays pending for a whole lease, 30 s by default, and is delivered again for nothing."""
    async with connect(lease_ms=10_000) as world:
        worker = workers.start(lease_ms=10_000)
        worker.freeze()
        run = await world.start(chaos_app.gate_then_note, "probe:gate", run_id="copied")
        stream = world.partition("copied").workflows()
        [(_, fields)] = raw.xrange(stream)
        raw.xadd(stream, fields)
        worker.thaw()
        await eventually(lambda: "a" in notes(raw, "copied"))
        try:
            await eventually(lambda: raw.xlen(stream) == 1, timeout=8, what="the copy is settled")
        finally:
            raw.set("probe:gate", 1)
        assert await run.result(timeout=10) == ["a", "d"]
    await settled(raw)
    invariants.check(raw, chaos_app.wf)


async def test_a_run_of_a_thousand_branches_survives_a_kill_half_way_with_each_result_once(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    async with connect() as world:
        doomed = workers.start(concurrency=32)
        workers.start(concurrency=32)
        run = await world.start(chaos_app.fan_out, 1_000, run_id="wide")
        await eventually(lambda: raw.llen("probe:wide") >= 500)
        doomed.kill()
        assert await run.result(timeout=30) == sum(range(1_000))
    await settled(raw)
    bodies = notes(raw, "wide")
    assert len(bodies) == 1_000
    assert sum(bodies.values()) <= 1_000 + 33, "more bodies ran again than the dead worker could hold"
    assert len(logged(raw, "wide")[EventKind.STEP_COMPLETED]) == 1_000
    invariants.check(raw, chaos_app.wf)


async def test_early_wakes_neither_complete_nor_lose_a_timer(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A14: wakes for a sleeping run, and one after it has gone on."""
    async with connect() as world:
        workers.start()
        run = await world.start(chaos_app.slept, 1.5, run_id="early")
        await eventually(lambda: logged(raw, "early")[EventKind.WAIT_CREATED])
        stream = world.partition("early").workflows()
        for number in range(3):
            wake = WorkflowMessage(
                message_id=f"early-{number}", run_id="early", workflow_name="slept", reason="timer"
            )  # fmt: skip
            raw.xadd(stream, {"kind": "workflow", "spec": "1", "run": "early", "name": "slept", "reason": "timer",
                              "msg": messages.encode(wake)})  # fmt: skip
            await eventually(lambda: raw.xlen(stream) == 0)
        assert notes(raw, "early") == {}
        assert await run.result(timeout=15) == "after"
        raw.xadd(stream, {"kind": "workflow", "spec": "1", "run": "early", "name": "slept", "reason": "timer",
                          "msg": messages.encode(msgspec.structs.replace(wake, message_id="late"))})  # fmt: skip
    await settled(raw)
    log = invariants.log_of(raw, world.partition("early"), "early")
    due = next(int(event.detail) for event in log if event.kind is EventKind.WAIT_CREATED)
    done = next(event.at for event in log if event.kind is EventKind.WAIT_COMPLETED)
    assert due <= done < due + 1_000
    assert notes(raw, "early") == {"after": 1}
    assert raw.zcard(world.partition("early").delayed) == 0
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("way", ["cancel", "terminate"])
async def test_a_cancel_at_the_moment_the_timer_fires_ends_every_run_one_way_or_the_other(
    raw: redis.Redis, workers: Workers, connect: Connect, way: str
) -> None:
    """A18 with 60 runs."""
    async with connect() as world:
        for _ in range(2):
            workers.start()
        runs = [await world.start(chaos_app.slept, 0.3, run_id=f"race-{number}") for number in range(60)]
        outcomes = {}

        async def cancel(number: int) -> None:
            row = await runs[number].row()
            wait_until = row.created_at / 1000 + 0.3 + (number % 21 - 10) / 100
            await anyio.sleep(max(0.0, wait_until - time.time()))
            await (runs[number].cancel() if way == "cancel" else runs[number].terminate())
            try:
                outcomes[number] = await runs[number].result(timeout=10)
            except RunCancelled:
                outcomes[number] = "cancelled"

        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(cancel, number)
    await settled(raw)
    for number, run in enumerate(runs):
        ran = sum(notes(raw, run.run_id).values())
        events = [event.kind for event in invariants.log_of(raw, world.partition(run.run_id), run.run_id)]
        if outcomes[number] == "after":
            assert ran == 1
        elif ran:
            assert ran == 1
            assert events.index(EventKind.STEP_STARTED) < events.index(EventKind.RUN_CANCELLED)
    print({outcome: list(outcomes.values()).count(outcome) for outcome in set(outcomes.values())})
    invariants.check(raw, chaos_app.wf)


async def test_waiting_longer_than_the_lease_holds_no_message_and_wakes_once(
    raw: redis.Redis, workers: Workers, connect: Connect
) -> None:
    """A15: a sleep and a delayed retry of many leases, three workers, and one of them killed in the middle."""
    async with connect(lease_ms=300) as world:
        doomed, *_ = [workers.start(lease_ms=300) for _ in range(3)]
        sleeper = await world.start(chaos_app.slept, 3.0, run_id="sleeper")
        retrier = await world.start(chaos_app.retried_late, "3s", run_id="retrier")
        await eventually(lambda: logged(raw, "sleeper")[EventKind.WAIT_CREATED])
        await eventually(lambda: logged(raw, "retrier")[EventKind.STEP_RETRYING])
        await settled(raw)
        doomed.kill()
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert invariants.queued(raw) == 0, "a waiting run holds a message"
            await anyio.sleep(0.05)
        assert await sleeper.result(timeout=15) == "after"
        assert await retrier.result(timeout=15) == "r"
    await settled(raw)
    assert notes(raw, "sleeper") == {"after": 1}
    assert notes(raw, "retrier") == {"r:1": 1, "r:2": 1}
    slept = invariants.log_of(raw, world.partition("sleeper"), "sleeper")
    due = next(int(event.detail) for event in slept if event.kind is EventKind.WAIT_CREATED)
    woken = next(event.at for event in slept if event.kind is EventKind.WAIT_COMPLETED)
    assert due <= woken < due + 1_500
    retried = invariants.log_of(raw, world.partition("retrier"), "retrier")
    asked = next(event.at for event in retried if event.kind is EventKind.STEP_RETRYING)
    again = next(event.at for event in retried if event.kind is EventKind.STEP_STARTED and event.attempt == 2)
    assert asked + 3_000 <= again < asked + 4_500
    invariants.check(raw, chaos_app.wf)


@pytest.mark.parametrize("way", ["cancel", "terminate"])
@pytest.mark.parametrize("inline", [0, 1])
async def test_a_step_that_fails_after_its_run_was_cancelled_is_neither_retried_nor_delivered_again(
    raw: redis.Redis, workers: Workers, connect: Connect, way: str, inline: int
) -> None:
    """A17."""
    async with connect(max_inline_steps=inline) as world:
        worker = workers.start(max_inline_steps=inline)
        run = await world.start(chaos_app.one_slow_failure, 0.6, run_id="cancelled")
        await eventually(lambda: notes(raw, "cancelled"))
        await (run.cancel() if way == "cancel" else run.terminate())
        with pytest.raises(RunCancelled):
            await run.result(timeout=10)
        await settled(raw)
    kinds = [event.kind for event in invariants.log_of(raw, world.partition("cancelled"), "cancelled")]
    assert EventKind.STEP_RETRYING not in kinds
    assert kinds.count(EventKind.STEP_STARTED) == 1
    assert notes(raw, "cancelled") == {"f": 1}
    assert raw.zcard(world.partition("cancelled").delayed) == 0
    assert " ERROR " not in worker.log()
    invariants.check(raw, chaos_app.wf)
