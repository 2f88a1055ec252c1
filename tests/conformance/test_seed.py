"""Does the queued-step consumer do what the reference's change promised? (reference-semantics 9.1, S1 to S10)

Reads are counted by MONITOR, so a read that no observation reports would be seen as well.
"""

from __future__ import annotations

import logging

import msgspec
import pytest
import redis

from redisworld import Status
from redisworld.events import EventKind
from redisworld.messages import StepMessage
from redisworld.observe import MessageMoved, PrologueTaken, RunFetched, StepEnded, observing
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.conftest import Connect
from tests.conformance.harness import legacy, message_to_come, monitored, phase_one
from tests.scripts.driver import Consumer
from tests.scripts.test_fences import TERMINAL, put, put_step

pytestmark = pytest.mark.anyio

# -- the prologue


async def test_s1_a_step_message_with_run_context_starts_without_reading_the_run(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """A third step stays open, so that the consumer stops after the body."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.wide, 3, run_id="r")
        await consumers.wake()
        consumers.seen.clear()
        with monitored(redis_url) as calls:
            await consumers.step()
        assert calls() == ["XREADGROUP", "claim_many", "complete_many"]
        assert consumers.paths() == ["run_context"]
        assert consumers.saw(RunFetched) == []
        assert consumers.kinds("r").count(EventKind.STEP_COMPLETED) == 2  # the inline one, and this one
        await consumers.drain()
        assert await consumers.world.run("r").result(timeout=5) == 6
    invariants.check(raw, conf_app.wf)


async def test_s2_a_message_without_run_context_fetches_the_run_exactly_once(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """The message stands in for the original entry, as an older producer would have written it."""
    async with connect() as consumers:
        await legacy(consumers)
        with monitored(redis_url) as calls:
            await consumers.step()
        assert calls()[:4] == ["XREADGROUP", "HMGET", "claim_many", "complete_many"]
        assert calls().count("HMGET") == 1
        assert consumers.paths() == ["runs_get"]
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_a_message_without_run_context_of_a_finished_run_is_acknowledged_after_its_one_fetch(
    redis_url: str, raw: redis.Redis, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect() as consumers:
        await legacy(consumers)
        consumers.terminate("pair")
        with monitored(redis_url) as calls, caplog.at_level(logging.DEBUG, "redisworld"):
            await consumers.step()
        assert calls() == ["XREADGROUP", "HMGET", "settle_message"]
        assert "run is over: run=pair " in caplog.text
        assert "status=cancelled" in caplog.text
        assert conf_app.executions("double") == 1
    invariants.check(raw, conf_app.wf)


async def test_s3_a_message_that_carries_its_input_creates_a_missing_step_and_runs_it_in_the_same_delivery(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """Published before the commit that creates it: the bare claim says missing, the next one creates and starts."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.pair, run_id="early")
        early = message_to_come("early")
        consumers.put(early)
        with monitored(redis_url) as calls:
            await consumers.step()
        assert calls() == ["XREADGROUP", "claim_many", "claim_many", "complete_many"]
        assert consumers.kinds("early", early.step_id) == [
            EventKind.STEP_CREATED,
            EventKind.STEP_STARTED,
            EventKind.STEP_COMPLETED,
        ]
        assert consumers.saw(RunFetched) == []
        assert consumers.claims() == ["started"]
        await consumers.drain()
        assert await consumers.world.run("early").result(timeout=5) == [2, 4]
        assert conf_app.executions("double") == 2
    invariants.check(raw, conf_app.wf)


async def test_s4_every_queued_step_carries_the_identity_of_its_run_and_its_input(connect: Connect) -> None:
    """The commit's messages, and the one of a delayed retry."""
    async with connect(deployment="blue") as consumers:
        await consumers.world.start(conf_app.one, "fails", 1, run_id="retrying")
        await consumers.wake()
        [(_, retry)] = consumers.delayed()
        message = await phase_one(consumers)
        for sent, run_id in ((message, "pair"), (retry, "retrying")):
            assert isinstance(sent, StepMessage)
            assert sent.run_context is not None
            assert sent.run_context.deployment_id == "blue"
            assert sent.run_context.spec_version == 1
            assert sent.run_context.root_run_id == run_id
            assert sent.step_input is not None


# -- the two-phase fan-out


async def test_s5_the_last_completer_reads_nothing_before_its_step_and_fetches_the_run_exactly_once_after_it(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    async with connect() as consumers:
        with monitored(redis_url) as first:
            message = await phase_one(consumers)
        assert message.run_context is not None
        phase = first("XREADGROUP", "XRANGE")
        assert phase == ["start_many", "commit_pass", "complete_many"], "phase one read the run"

        with monitored(redis_url) as second:
            await consumers.step()
        assert second() == ["XREADGROUP", "claim_many", "complete_many", "load_run", "commit_pass"]
        assert consumers.paths() == ["run_context"]
        assert [seen.reason for seen in consumers.saw(RunFetched)] == ["last_completer"]
        assert consumers.kinds("pair")[-1] is EventKind.RUN_COMPLETED
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
        assert consumers.queued() == []
    invariants.check(raw, conf_app.wf)


async def test_s6_a_lazy_fetch_that_says_pending_falls_through_and_the_run_completes(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """A pending row is stale: a run with completed steps has started."""
    async with connect() as consumers:
        await phase_one(consumers)
        raw.hset(consumers.partition.run("pair"), "status", "pending")
        with monitored(redis_url) as calls:
            await consumers.step()
        assert calls().count("load_run") == 1
        assert "HMGET" not in calls()
        assert len(consumers.saw(RunFetched)) == 1
        assert consumers.kinds("pair").count(EventKind.RUN_COMPLETED) == 1
        assert (await consumers.world.row("pair")).status is Status.COMPLETED


@pytest.mark.parametrize("status", ["cancelled", "completed"])
async def test_s7_a_lazy_fetch_that_finds_a_finished_run_writes_nothing_and_says_so(
    raw: redis.Redis, connect: Connect, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    """The run ends between the completion, which made this worker responsible, and its fetch."""
    async with connect() as consumers:
        await phase_one(consumers)

        def end_now(seen: object) -> None:
            if isinstance(seen, StepEnded):
                consumers.terminate("pair")
                raw.hset(consumers.partition.run("pair"), "status", status)

        with observing(end_now), caplog.at_level(logging.DEBUG, "redisworld"):
            await consumers.step()
        assert len(consumers.saw(RunFetched)) == 1
        assert EventKind.RUN_COMPLETED not in consumers.kinds("pair")
        [said] = [r for r in caplog.records if "run=pair" in r.getMessage() and status in r.getMessage()]
        assert said.levelno == logging.DEBUG
        assert "prologue" not in said.getMessage()
        assert consumers.queued() == []


async def test_a_run_that_ended_during_the_last_body_is_not_fetched_at_all(raw: redis.Redis, connect: Connect) -> None:
    """The completion itself answers that nobody has to go on."""
    async with connect() as consumers:
        await phase_one(consumers)
        conf_app.during.append(lambda: consumers.terminate("pair"))
        await consumers.step()
        assert consumers.saw(RunFetched) == []
        assert consumers.kinds("pair")[-2:] == [EventKind.RUN_CANCELLED, EventKind.STEP_COMPLETED]
    invariants.check(raw, conf_app.wf)


# -- fence, span, re-route


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_s8_no_step_starts_again_on_a_finished_run_and_the_one_in_flight_still_ends(
    a: Consumer, b: Consumer, status: str, outcome: str
) -> None:
    """The redelivery meets a row that reads running: that alone must not let it in."""
    attempt = await put_step(a, "running")
    copy = await b.duplicate(attempt.delivery)
    await put(a, status)
    before = await a.written()

    assert (await b.claim(copy)).outcome == "gone"
    assert await a.written() == before

    assert (await a.complete(attempt, outcome)).outcome == outcome
    assert (await a.kinds())[-1] == f"step_{outcome}"


async def test_s9_the_prologue_says_which_path_it_took(connect: Connect) -> None:
    """The span attribute comes with tracing, a later change; the observation and the counter are here."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        await consumers.step()
        assert consumers.paths() == ["run_context"]
        assert consumers.saw(PrologueTaken)[0].steps == ((message.run_id, message.step_id),)
        message = await legacy(consumers, "old")
        await consumers.step()
        assert consumers.paths() == ["runs_get"]
        assert consumers.saw(PrologueTaken)[0].steps == ((message.run_id, message.step_id),)
        assert consumers.metric("redisworld_step_prologue_total", path="run_context") == 1
        assert consumers.metric("redisworld_step_prologue_total", path="runs_get") == 1
        assert consumers.metric("redisworld_lazy_run_fetches_total", reason="last_completer") == 2


@pytest.mark.parametrize("old", [False, True], ids=["with run_context", "without"])
async def test_s10_a_reroute_keeps_input_context_and_trace_and_starts_nothing(
    redis_url: str, raw: redis.Redis, connect: Connect, old: bool
) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with connect(deployment="blue", affinity=True) as blue, connect(deployment="green", affinity=True) as green:
        await blue.world.start(conf_app.pair, run_id="pair")
        await blue.wake()
        [message] = blue.queued("steps@blue")
        raw.delete(blue.partition.steps(deployment="blue"))
        green.seen.clear()
        sent = msgspec.structs.replace(message, trace_carrier=trace)
        if old:
            sent = msgspec.structs.replace(sent, run_context=None)
        green.put(sent, kind="steps@green")
        with monitored(redis_url) as calls:
            await green.step()
        assert calls("XREADGROUP") == [*(["HMGET"] if old else []), "move_message"]
        [(_, moved)] = green.delayed()
        assert moved == msgspec.structs.replace(sent, deliveries=2, deployment_mismatch_retry_count=1)
        assert raw.hvals(green.partition.delayed_body)[0].startswith(b"steps@blue ")
        assert [seen.reason for seen in green.saw(MessageMoved)] == ["reroute"]
        assert green.kinds("pair").count(EventKind.STEP_STARTED) == 1  # the inline one of blue
        assert (await green.world.row("pair")).status is Status.RUNNING
        await blue.drain()
        assert await green.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)
