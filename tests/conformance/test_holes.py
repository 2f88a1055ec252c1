"""Are the holes of the reference closed? (reference-semantics 4.9, H1 to H9)

The expectation of each test is ours; its docstring says what the reference does.
"""

from __future__ import annotations

import logging

import msgspec
import pytest
import redis

from redisworld import RunFailed, Status
from redisworld.errors import ErrorInfo, RunNotFound
from redisworld.events import EventKind
from redisworld.observe import StepEnded
from redisworld.world import Answer
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.conftest import Connect
from tests.conformance.harness import legacy, message_to_come, monitored, phase_one
from tests.scripts.driver import RUN, Consumer, Item, end, step
from tests.scripts.test_fences import TERMINAL, put, put_step

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("ensure", [False, True], ids=["first delivery", "redelivery"])
async def test_h1_a_claim_of_a_step_that_was_never_created_is_gone_on_a_finished_run(
    a: Consumer, status: str, ensure: bool
) -> None:
    """It looks for the step first, says "not found", and delivers the message 48 times."""
    missing = await put_step(a, "missing")
    await put(a, status)
    before = await a.written()

    answer = await a.claim(missing.delivery, ensure=ensure, input=b"\x90")

    assert (answer.outcome, answer.claim.detail) == ("gone", status)
    assert await a.written() == before
    assert await a.pending(missing.delivery) is None


async def test_h2_a_pending_row_without_a_start_time_stops_no_step_of_an_older_producer(
    raw: redis.Redis, connect: Connect
) -> None:
    """Its session needs the time and fails the run. Here the row is read before the step, and again after it (C22)."""
    async with connect() as consumers:
        await legacy(consumers)
        raw.hset(consumers.partition.run("pair"), "status", "pending")
        raw.hdel(consumers.partition.run("pair"), "started_at")

        await consumers.step()

        assert consumers.paths() == ["runs_get"]
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
        assert (await consumers.world.row("pair")).started_at > 0


async def test_h3_the_ceiling_of_the_log_holds_for_whoever_enters_by_a_step_message(
    raw: redis.Redis, connect: Connect
) -> None:
    """It knows the ceiling from the start of a run only. Ours is a setting, and the claim itself ends the run."""
    async with connect(max_inline_steps=0, max_log_events=4) as consumers:
        await consumers.world.start(conf_app.pair, run_id="pair")  # run_created, run_started, two step_created
        await consumers.wake()

        await consumers.step()

        assert consumers.claims() == ["full"]
        assert conf_app.ran == []
        assert len(consumers.log("pair")) == 5
        with pytest.raises(RunFailed) as failed:
            await consumers.world.run("pair").result(timeout=5)
        assert failed.value.error.code == "MAX_EVENTS_EXCEEDED"
        await consumers.step()
        assert consumers.claims() == ["full", "gone"]
    invariants.check(raw, conf_app.wf)


@pytest.mark.parametrize(("name", "recorded"), [("fails", False), ("fatal", True)], ids=["retrying", "failed"])
async def test_h4_a_step_that_fails_after_its_run_has_ended_is_settled_without_an_error(
    raw: redis.Redis, connect: Connect, caplog: pytest.LogCaptureFixture, name: str, recorded: bool
) -> None:
    """It does not translate RunExpired on these writes, and the delivery fails. Ours is told ``gone``, or recorded."""
    async with connect(max_inline_steps=0) as consumers:
        await consumers.world.start(conf_app.one, name, 1, run_id="r")
        await consumers.wake()
        conf_app.during.append(lambda: consumers.terminate("r"))

        with caplog.at_level(logging.DEBUG, "redisworld"):
            await consumers.step()

        assert [seen.outcome for seen in consumers.saw(StepEnded)] == ["failed" if recorded else "lost"]
        assert consumers.kinds("r")[-1] is (EventKind.STEP_FAILED if recorded else EventKind.RUN_CANCELLED)
        assert consumers.queued() == []
        assert consumers.delayed() == []
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    invariants.check(raw, conf_app.wf)


async def test_h5_a_redelivery_pays_no_write_of_its_own_for_making_sure_that_its_step_exists(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """It writes step_created conditionally before each such start. Ours sends the input along with the claim."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await consumers.claimed(message)
        again = await consumers.redelivered(item.delivery)
        assert again.deliveries > 1

        with monitored(redis_url) as calls:
            await consumers.process(again)

        assert calls() == ["claim_many", "complete_many", "load_run", "commit_pass"]
        assert consumers.kinds("pair", message.step_id).count(EventKind.STEP_CREATED) == 1
    invariants.check(raw, conf_app.wf)


async def test_h5_a_redelivery_that_finds_no_step_creates_and_starts_it_with_one_call(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """A first delivery asks without the input and then with it (S3), for then the step is nearly always there."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.pair, run_id="early")
        early = message_to_come("early")
        consumers.put(early)
        delivery = await consumers.take("steps")
        assert delivery is not None

        with monitored(redis_url) as calls:
            await consumers.process(await consumers.redelivered(delivery))

        assert [call for call in calls() if call.endswith("_many")] == ["claim_many", "complete_many"]
        await consumers.drain()
        assert await consumers.world.run("early").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_h6_a_message_of_an_older_producer_is_not_dropped_while_its_run_reads_pending(
    raw: redis.Redis, connect: Connect
) -> None:
    """It acknowledges the message: a stale read loses a step. Only a terminal status ends a delivery of ours."""
    async with connect() as consumers:
        await legacy(consumers)
        raw.hset(consumers.partition.run("pair"), "status", "pending")

        await consumers.step()

        assert conf_app.executions("double") == 2
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]


@pytest.mark.parametrize("item", [end(), end("run_failed"), end("run_cancelled")], ids=lambda item: item[1])
async def test_h7_a_pass_cannot_end_a_run_that_is_not_there(a: Consumer, item: Item) -> None:
    """It appends the event: a log without a run."""
    turn = await a.begin()
    await a.redis.delete(a.key(), a.partition.log(RUN))
    before = await a.dump()

    assert (await a.commit(turn, item)).outcome == "not_found"
    assert await a.dump() == before


async def test_h7_nobody_else_can_end_a_run_that_is_not_there(a: Consumer) -> None:
    await a.begin()
    before = await a.dump()

    assert await a.world.events.run_completed("nobody", b"") == Answer("not_found")
    assert await a.world.events.run_failed("nobody", ErrorInfo("Oops", "")) == Answer("not_found")
    for terminate in (True, False):
        with pytest.raises(RunNotFound):
            await a.world.cancel("nobody", terminate=terminate)
    assert await a.dump() == before


async def test_h8_a_cancelled_run_is_handed_back_when_it_is_cancelled_again_and_gets_no_second_event(
    a: Consumer,
) -> None:
    """It appends run_cancelled again, each time."""
    await a.dispatch(step("s1"))
    await a.world.cancel(RUN, terminate=True)
    before = await a.dump()

    for terminate in (True, False):
        assert await a.world.cancel(RUN, terminate=terminate) is Status.CANCELLED
    assert await a.dump() == before
    assert (await a.kinds()).count("run_cancelled") == 1


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_h9_an_outcome_of_a_step_that_has_not_started_is_invalid(a: Consumer, outcome: str) -> None:
    """It accepts the completion of a pending step. Ours presents the token of a start, and there was none."""
    pending = await put_step(a, "pending")
    before = await a.dump()

    assert (await a.complete(pending, outcome)).outcome == "invalid"
    assert await a.dump() == before
    claimed = msgspec.structs.replace(pending, claim=(await a.claim(pending.delivery)).claim)
    assert claimed.outcome == "started", "the step is as good as before"
