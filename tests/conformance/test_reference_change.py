"""Does the queued-step consumer do what the reference's change promised? (reference-semantics 9.1 and 9.2)

Reads are counted by MONITOR, so a read that no observation reports would be seen as well.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
import redis

from consumers.handback import bury_poison
from redisworld import RunFailed, Status, scripts
from redisworld.events import EventKind
from redisworld.messages import RunContext, StepMessage
from redisworld.observe import MessageMoved, PrologueTaken, RunFetched, StepClaimed, StepEnded, observing
from redisworld.replay import Instance
from redisworld.world import ClaimItem, Completion
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers, monitored

pytestmark = pytest.mark.anyio


async def phase_one(consumers: Consumers, run_id: str = "pair") -> StepMessage:
    """A real replay of the two-step fan-out: one step runs inline, the other one is left in the queue."""
    await consumers.world.start(conf_app.pair, run_id=run_id)
    await consumers.wake()
    [message] = consumers.queued()
    assert isinstance(message, StepMessage)
    consumers.seen.clear()
    return message


def claims(consumers: Consumers) -> list[str]:
    return [seen.outcome for seen in consumers.saw(StepClaimed)]


def paths(consumers: Consumers) -> list[str]:
    return [seen.path for seen in consumers.saw(PrologueTaken)]


def started(kinds: list[EventKind]) -> int:
    return kinds.count(EventKind.STEP_STARTED)


# -- S1 to S4: the prologue


async def test_a_step_message_with_run_context_starts_without_reading_the_run(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """S1. A third step stays open, so that the consumer stops after the body."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.wide, 3, run_id="r")
        await consumers.wake()
        consumers.seen.clear()
        with monitored(redis_url, raw) as calls:
            await consumers.step()
        assert calls() == ["XREADGROUP", "claim_many", "complete_many"]
        assert paths(consumers) == ["run_context"]
        assert consumers.saw(RunFetched) == []
        assert consumers.kinds("r").count(EventKind.STEP_COMPLETED) == 2  # the inline one, and this one
        await consumers.drain()
        assert await consumers.world.run("r").result(timeout=5) == 6
    invariants.check(raw, conf_app.wf)


async def test_a_legacy_message_without_run_context_fetches_the_run_exactly_once(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """S2. The message stands in for the original entry, as an older producer would have written it."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        consumers.replace_queued(msgspec.structs.replace(message, run_context=None))
        with monitored(redis_url, raw) as calls:
            await consumers.step()
        assert calls()[:4] == ["XREADGROUP", "HMGET", "claim_many", "complete_many"]
        assert calls().count("HMGET") == 1
        assert paths(consumers) == ["runs_get"]
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_a_legacy_message_whose_run_is_still_pending_is_not_dropped(raw: redis.Redis, connect: Connect) -> None:
    """The reference acknowledges it (hole H6): only a terminal status may end a delivery."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        consumers.replace_queued(msgspec.structs.replace(message, run_context=None))
        raw.hset(consumers.partition.run("pair"), "status", "pending")
        await consumers.step()
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]


async def test_a_legacy_message_of_a_finished_run_is_acknowledged_after_its_one_fetch(
    redis_url: str, raw: redis.Redis, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect() as consumers:
        message = await phase_one(consumers)
        consumers.replace_queued(msgspec.structs.replace(message, run_context=None))
        await consumers.world.run("pair").terminate()
        with monitored(redis_url, raw) as calls, caplog.at_level(logging.DEBUG, "redisworld"):
            await consumers.step()
        assert calls() == ["XREADGROUP", "HMGET", "settle_message"]
        assert "run=pair status=cancelled" in caplog.text
        assert conf_app.executions("double") == 1
    invariants.check(raw, conf_app.wf)


def steps_to_come(run_id: str) -> list[tuple[str, str, bytes]]:
    """(id, name, input) of the steps that the first pass of ``pair`` will ask for."""
    instance = Instance(
        run_id=run_id, workflow=conf_app.pair, input=conf_app.pair.signature.encode_call((), {}), at=1_764_628_800_000
    )
    instance.start()
    asked = [(step.id, step.name, step.input) for step in instance.commands().steps]
    instance.close()
    return asked


async def test_a_message_that_carries_its_input_creates_a_missing_step_and_runs_it_in_the_same_delivery(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """S3. Published before the commit that creates it: the bare claim says missing, the next one creates."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.pair, run_id="early")
        _, (step_id, name, data) = steps_to_come("early")
        consumers.put(
            StepMessage(
                message_id=step_id,
                run_id="early",
                workflow_name="pair",
                step_id=step_id,
                step_name=name,
                step_input=data,
                run_context=RunContext("", 1, root_run_id="early"),
            )
        )
        with monitored(redis_url, raw) as calls:
            await consumers.step()
        assert calls() == ["XREADGROUP", "claim_many", "claim_many", "complete_many"]
        assert consumers.kinds("early", step_id) == [
            EventKind.STEP_CREATED,
            EventKind.STEP_STARTED,
            EventKind.STEP_COMPLETED,
        ]
        assert consumers.saw(RunFetched) == []
        assert claims(consumers) == ["started"]
        await consumers.drain()
        assert await consumers.world.run("early").result(timeout=5) == [2, 4]
        assert conf_app.executions("double") == 2
    invariants.check(raw, conf_app.wf)


async def test_every_queued_step_carries_the_identity_of_its_run_and_its_input(connect: Connect) -> None:
    """S4: the commit's messages, and the one of a delayed retry."""
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


# -- S5 to S7: the two-phase fan-out


async def test_the_last_completer_reads_nothing_before_its_step_and_fetches_the_run_exactly_once_after_it(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """S5."""
    async with connect() as consumers:
        with monitored(redis_url, raw) as first:
            message = await phase_one(consumers)
        assert message.run_context is not None
        phase = first("XREADGROUP", "XRANGE")
        assert phase == ["start_run", "commit_pass", "complete_many"], "phase one read the run"

        with monitored(redis_url, raw) as second:
            await consumers.step()
        assert second() == ["XREADGROUP", "claim_many", "complete_many", "load_run", "commit_pass"]
        assert paths(consumers) == ["run_context"]
        assert [seen.reason for seen in consumers.saw(RunFetched)] == ["last_completer"]
        assert consumers.kinds("pair")[-1] is EventKind.RUN_COMPLETED
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
        assert consumers.queued() == []
    invariants.check(raw, conf_app.wf)


@pytest.mark.parametrize("started_at", [True, False])
async def test_a_lazy_fetch_that_says_pending_falls_through_and_the_run_completes(
    redis_url: str, raw: redis.Redis, connect: Connect, started_at: bool
) -> None:
    """S6, and C22 without started_at: a pending row is stale, for a run with completed steps has started."""
    async with connect() as consumers:
        await phase_one(consumers)
        raw.hset(consumers.partition.run("pair"), "status", "pending")
        if not started_at:
            raw.hdel(consumers.partition.run("pair"), "started_at")
        with monitored(redis_url, raw) as calls:
            await consumers.step()
        assert calls().count("load_run") == 1
        assert "HMGET" not in calls()
        assert len(consumers.saw(RunFetched)) == 1
        assert consumers.kinds("pair").count(EventKind.RUN_COMPLETED) == 1
        assert (await consumers.world.row("pair")).status is Status.COMPLETED


@pytest.mark.parametrize("status", ["cancelled", "completed"])
async def test_a_lazy_fetch_that_finds_a_finished_run_writes_nothing_and_says_so(
    redis_url: str, raw: redis.Redis, connect: Connect, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    """S7. The run ends between the completion, which made this worker responsible, and its fetch."""
    async with connect() as consumers:
        await phase_one(consumers)
        run = consumers.partition.run("pair")

        def end_now(seen: object) -> None:
            if isinstance(seen, StepEnded):
                cancel = scripts.load("cancel_run").text
                raw.eval(cancel, 1, consumers.partition.stats, "", "pair", "terminate", b"\xa0", 60_000)
                raw.hset(run, "status", status)

        with observing(end_now), caplog.at_level(logging.DEBUG, "redisworld"):
            await consumers.step()
        assert len(consumers.saw(RunFetched)) == 1
        assert EventKind.RUN_COMPLETED not in consumers.kinds("pair")
        [said] = [r for r in caplog.records if "run=pair" in r.getMessage() and status in r.getMessage()]
        assert said.levelno == logging.DEBUG
        assert "prologue" not in said.getMessage()
        assert consumers.queued() == []


async def test_a_run_that_ended_during_the_last_body_is_not_fetched_at_all(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """The completion itself answers that nobody has to go on."""
    async with connect() as consumers:
        await phase_one(consumers)
        cancel = scripts.load("cancel_run").text
        conf_app.during.append(
            lambda: raw.eval(cancel, 1, consumers.partition.stats, "", "pair", "terminate", b"\xa0", 60_000)
        )
        await consumers.step()
        assert consumers.saw(RunFetched) == []
        assert consumers.kinds("pair")[-2:] == [EventKind.RUN_CANCELLED, EventKind.STEP_COMPLETED]
    invariants.check(raw, conf_app.wf)


# -- S8, C1 to C5: fences


async def claimed(consumers: Consumers, message: StepMessage) -> ClaimItem:
    """Claim the next step as a consumer that then dies or lingers; returns what it presented."""
    delivery = await consumers.take("steps")
    assert delivery is not None
    item = ClaimItem(
        run_id=message.run_id,
        step_id=message.step_id,
        token=consumers.world.next_token(),
        message_id=message.message_id,
        delivery=delivery,
        attempts_allowed=4,
        may_replay=True,
        step_name=message.step_name,
        input=message.step_input,
    )
    assert (await consumers.world.claim(item)).outcome == "started"
    return item


async def test_nothing_starts_on_a_finished_run_even_if_the_row_of_the_step_reads_running(
    redis_url: str, raw: redis.Redis, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """S8, C1 and C20: a redelivered step of a cancelled run: no body, no read, acknowledged, one debug line."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await claimed(consumers, message)
        await consumers.world.run("pair").terminate()
        before, log = consumers.state("pair", message.step_id), consumers.kinds("pair")
        again = await consumers.redelivered(item.delivery)
        with monitored(redis_url, raw) as calls, caplog.at_level(logging.DEBUG, "redisworld"):
            await consumers.process(again)
        assert calls() == ["claim_many"]
        assert claims(consumers) == ["gone"]
        assert conf_app.executions("double") == 1  # the inline one
        assert consumers.state("pair", message.step_id) == before
        assert before.status is Status.RUNNING
        assert consumers.kinds("pair") == log
        assert consumers.queued() == []
        assert len([r for r in caplog.records if "gone" in r.getMessage()]) == 1


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_a_step_in_flight_still_records_its_outcome_on_a_cancelled_run(
    raw: redis.Redis, connect: Connect, outcome: str
) -> None:
    """S8 and C2."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await claimed(consumers, message)
        await consumers.world.run("pair").terminate()
        payload = b"\x04" if outcome == "completed" else msgspec.msgpack.encode({"type": "E", "message": "m"})
        recorded = await consumers.world.complete(
            Completion(
                run_id="pair",
                step_id=message.step_id,
                token=item.token,
                outcome=outcome,
                message_id=message.message_id,
                delivery=item.delivery,
                payload=payload,
            )
        )
        assert (recorded.outcome, recorded.detail) == (outcome, "settled")
        assert consumers.kinds("pair")[-1] == EventKind(f"step_{outcome}")
        assert (await consumers.world.row("pair")).status is Status.CANCELLED
    invariants.check(raw, conf_app.wf)


# -- S9: the path is told


async def test_the_prologue_says_which_path_it_took(raw: redis.Redis, connect: Connect) -> None:
    """S9. The span attribute comes with tracing, a later change; the observation and the counter are here."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        await consumers.step()
        assert paths(consumers) == ["run_context"]
        message = await phase_one(consumers, "legacy")
        consumers.replace_queued(msgspec.structs.replace(message, run_context=None))
        await consumers.step()
        assert paths(consumers) == ["runs_get"]
        assert consumers.saw(PrologueTaken)[0].step_id == message.step_id
        assert consumers.metric("redisworld_step_prologue_total", path="run_context") == 1
        assert consumers.metric("redisworld_step_prologue_total", path="runs_get") == 1
        assert consumers.metric("redisworld_lazy_run_fetches_total", reason="last_completer") == 2


# -- S10: the deployment guard


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_reroute_keeps_input_context_and_trace_and_starts_nothing(
    redis_url: str, raw: redis.Redis, connect: Connect, legacy: bool
) -> None:
    """S10 and C28: delays of 1, 2 and 4 s; then the run fails."""
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with connect(deployment="blue", affinity=True) as blue:
        await blue.world.start(conf_app.pair, run_id="pair")
        await blue.wake()
        [message] = blue.queued("steps@blue")
        raw.delete(blue.partition.steps(deployment="blue"))
        async with connect(deployment="green", affinity=True) as green:
            sent = msgspec.structs.replace(message, trace_carrier=trace)
            if legacy:
                sent = msgspec.structs.replace(sent, run_context=None)
            for hop, delay_ms in enumerate((1_000, 2_000, 4_000), start=1):
                green.put(sent, kind="steps@green")
                green.world.clock = lambda: 2_000_000_000_000
                with monitored(redis_url, raw) as calls:
                    await green.step()
                assert calls().count("HMGET") == (1 if legacy else 0)
                [(due, moved)] = green.delayed()
                assert due == 2_000_000_000_000 + delay_ms
                assert raw.hvals(green.partition.delayed_body)[0].startswith(b"steps@blue ")
                assert moved == msgspec.structs.replace(sent, deliveries=hop + 1, deployment_mismatch_retry_count=hop)
                raw.delete(green.partition.delayed, green.partition.delayed_body)
                sent = moved
            assert claims(green) == []
            assert [seen.reason for seen in green.saw(MessageMoved)] == ["reroute"] * 3
            green.world.clock = lambda: ""
            green.put(sent, kind="steps@green")
            await green.step()
            with pytest.raises(RunFailed) as failed:
                await green.world.run("pair").result(timeout=5)
            assert failed.value.error.code == "DEPLOYMENT_MISMATCH"
            assert started(green.kinds("pair")) == 1  # the inline one of blue
            assert raw.xlen(green.partition.dead) == 1


# -- 9.2: crashes and redeliveries


async def test_a_crash_between_completion_and_replay_is_repaired_by_the_redelivery(
    raw: redis.Redis, connect: Connect
) -> None:
    """C14: no body, the claim says skipped, and the run is completed."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await claimed(consumers, message)
        recorded = await consumers.world.complete(
            Completion(
                run_id="pair",
                step_id=message.step_id,
                token=item.token,
                outcome="completed",
                message_id=message.message_id,
                delivery=item.delivery,
                payload=b"\x04",
            )
        )
        assert recorded.detail == "responsible"
        again = await consumers.redelivered(item.delivery)
        await consumers.process(again)
        assert claims(consumers) == ["skipped"]
        assert conf_app.executions("double") == 1
        assert [seen.reason for seen in consumers.saw(RunFetched)] == ["redelivery"]
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_a_crash_in_the_body_of_a_queued_step_runs_it_once_more_as_attempt_two_of_the_same_step(
    raw: redis.Redis, connect: Connect
) -> None:
    """C15."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await claimed(consumers, message)
        await consumers.process(await consumers.redelivered(item.delivery))
        assert [entry for entry in conf_app.ran if entry[1] == 2] == [("double", 2, 2)]
        starts = [e.attempt for e in consumers.log("pair") if e.id == message.step_id and e.attempt]
        assert starts == [1, 2, 2]
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_a_body_that_kills_its_worker_each_time_is_failed_without_a_start_when_its_attempts_are_used_up(
    raw: redis.Redis, connect: Connect
) -> None:
    """C16: three retries, so four starts."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await claimed(consumers, message)
        delivery = item.delivery
        for _ in range(3):
            delivery = await consumers.redelivered(delivery)
            again = msgspec.structs.replace(item, token=consumers.world.next_token(), delivery=delivery)
            assert (await consumers.world.claim(again)).outcome == "started"
        await consumers.process(await consumers.redelivered(delivery))
        assert claims(consumers) == ["exhausted"]
        kinds = consumers.kinds("pair", message.step_id)
        assert started(kinds) == 4
        assert kinds[-1] is EventKind.STEP_FAILED
        with pytest.raises(RunFailed, match="4 attempts"):
            await consumers.world.run("pair").result(timeout=5)
    invariants.check(raw, conf_app.wf)


async def test_a_step_message_without_a_step_on_a_finished_run_is_acknowledged(
    raw: redis.Redis, connect: Connect
) -> None:
    """C21 (the reference's hole H1): it carries its input, and must neither create the step nor come back."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        await consumers.world.run("pair").terminate()
        log = consumers.kinds("pair")
        consumers.replace_queued(msgspec.structs.replace(message, step_id="s9_never", message_id="s9_never"))
        await consumers.step()
        assert claims(consumers) == ["gone"]
        assert consumers.kinds("pair") == log
        assert consumers.queued() == []
        assert consumers.delayed() == []


async def test_two_deliveries_of_one_step_in_one_process_run_one_body(raw: redis.Redis, connect: Connect) -> None:
    """C26, and C19: both are acknowledged, and the run completes once."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        consumers.put(message)
        first, second = await consumers.take("steps"), await consumers.take("steps")
        assert first is not None
        assert second is not None
        await asyncio.gather(consumers.process(first), consumers.process(second))
        assert sorted(claims(consumers)) == ["stale", "started"]
        assert conf_app.executions("double") == 2
        assert consumers.kinds("pair").count(EventKind.RUN_COMPLETED) == 1
    invariants.check(raw, conf_app.wf)


async def test_an_owner_that_died_is_followed_by_its_redelivered_wake_and_not_by_a_step_message(
    raw: redis.Redis, connect: Connect
) -> None:
    """C31, ours: the message that owns an inline step recovers it; nothing is dispatched."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.chain, 1, run_id="owned")
        delivery = await consumers.take("workflows")
        assert delivery is not None

        worker = asyncio.ensure_future(consumers.process(delivery))

        def die() -> None:
            """The process ends in the body: whatever runs it is cancelled from outside."""
            worker.cancel()
            raise asyncio.CancelledError

        conf_app.during.append(die)
        with pytest.raises(asyncio.CancelledError):
            await worker
        assert consumers.queued() == []
        await consumers.process(await consumers.redelivered(delivery))
        assert [attempt for _, _, attempt in conf_app.ran] == [1, 2]
        assert await consumers.world.run("owned").result(timeout=5) == 0
        assert raw.xlen(consumers.partition.steps()) == 0
    invariants.check(raw, conf_app.wf)


# -- 9.2: outcomes


async def test_a_plain_error_comes_back_after_the_backoff_and_a_retryable_one_when_it_asked_to(
    raw: redis.Redis, connect: Connect
) -> None:
    """C23, ours: the delay is stored in both cases, and the message waits in the delayed set that long."""
    async with connect() as consumers:
        consumers.world.clock = lambda: 2_000_000_000_000
        for run_id, name, delay_ms in (("plain", "fails", 1_000), ("asked", "asks_for_time", 5_000)):
            await consumers.world.start(conf_app.one, name, 1, run_id=run_id)
            await consumers.wake()
            [(due, message)] = consumers.delayed()
            assert due == 2_000_000_000_000 + delay_ms
            assert isinstance(message, StepMessage)
            assert consumers.state(run_id, message.step_id).retry_at == due
            assert message.message_id == message.step_id
            raw.delete(consumers.partition.delayed, consumers.partition.delayed_body)


async def test_a_message_before_its_retry_time_starts_nothing_and_comes_back_then(
    raw: redis.Redis, connect: Connect
) -> None:
    """C10 at the consumer, and C17: being too early uses up no attempt."""
    async with connect() as consumers:
        consumers.world.clock = lambda: 2_000_000_000_000
        await consumers.world.start(conf_app.one, "asks_for_time", 7, run_id="r")
        await consumers.wake()
        for _ in range(10):
            [(due, message)] = consumers.delayed()
            raw.delete(consumers.partition.delayed, consumers.partition.delayed_body)
            consumers.put(message)
            await consumers.step()
        assert claims(consumers)[1:] == ["too_early"] * 10
        [(again, message)] = consumers.delayed()
        assert again == due == 2_000_000_005_000
        consumers.world.clock = lambda: due
        await consumers.world.promote(consumers.partition)
        await consumers.step()
        assert await consumers.world.run("r").result(timeout=5) == 7
        assert [attempt for _, _, attempt in conf_app.ran] == [1, 2]
    invariants.check(raw, conf_app.wf)


async def test_a_fatal_error_fails_the_step_at_its_first_attempt(raw: redis.Redis, connect: Connect) -> None:
    """C24."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.one, "fatal", 1, run_id="r")
        await consumers.drain()
        kinds = consumers.kinds("r")
        assert kinds.count(EventKind.STEP_FAILED) == 1
        assert EventKind.STEP_RETRYING not in kinds
        with pytest.raises(RunFailed, match="never"):
            await consumers.world.run("r").result(timeout=5)
    invariants.check(raw, conf_app.wf)


@pytest.mark.parametrize(
    ("retries", "succeeds_at", "executions", "result"),
    [(0, 99, 1, "failed"), (0, 1, 1, "ok"), (2, 3, 3, "ok"), (2, 99, 3, "failed"), (1, 99, 2, "failed")],
)
async def test_max_retries_counts_what_comes_after_the_first_attempt(
    raw: redis.Redis, connect: Connect, retries: int, succeeds_at: int, executions: int, result: str
) -> None:
    """A12 and C24. Queued or inline makes no difference: the first attempt is inline, all others are queued."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.caught, f"retries_{retries}", succeeds_at, run_id="r")
        await consumers.drain()
        kinds = consumers.kinds("r")
        assert [attempt for _, _, attempt in conf_app.ran] == list(range(1, executions + 1))
        assert kinds.count(EventKind.STEP_RETRYING) == executions - 1
        retried = consumers.metric(
            "redisworld_step_retries_total", workflow="caught", step=f"retries_{retries}", cause="error"
        )
        assert retried == executions - 1
        word, text, *_ = await consumers.world.run("r", conf_app.caught).result(timeout=5)
        assert word == ("ok" if result == "ok" else "ValueError")
        assert text == ("ok" if result == "ok" else f"attempt {executions}")
    invariants.check(raw, conf_app.wf)


async def test_a_completion_that_does_not_reach_redis_is_sent_again_and_the_body_is_not(
    raw: redis.Redis, connect: Connect
) -> None:
    """C25: the connections break while the body runs; no retry, no failure, no second body."""
    async with connect() as consumers:
        message = await phase_one(consumers)

        def cut() -> None:
            raw.client_kill_filter(_type="normal", skipme=True)

        conf_app.during.append(cut)
        await consumers.step()
        assert conf_app.executions("double") == 2
        assert consumers.kinds("pair", message.step_id) == [
            EventKind.STEP_CREATED,
            EventKind.STEP_STARTED,
            EventKind.STEP_COMPLETED,
        ]
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_a_message_delivered_too_often_fails_its_run_before_anything_else_is_asked(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """C27; and on a finished run it only becomes a dead letter."""
    async with connect() as consumers:
        await phase_one(consumers)
        delivery = await consumers.take("steps")
        assert delivery is not None
        often = msgspec.structs.replace(delivery, deliveries=49)
        with monitored(redis_url, raw) as calls:
            assert await bury_poison(consumers.world, often)
        assert calls() == ["bury_message"]
        with pytest.raises(RunFailed) as failed:
            await consumers.world.run("pair").result(timeout=5)
        assert failed.value.error.code == "MAX_DELIVERIES_EXCEEDED"
        assert raw.xlen(consumers.partition.dead) == 1
    invariants.check(raw, conf_app.wf)


# -- joins and values


@pytest.mark.parametrize("count", [0, 1, 2, 100])
async def test_a_join_of_any_width_gives_a_list_in_order_and_goes_on_once(
    raw: redis.Redis, connect: Connect, count: int
) -> None:
    """A24 and A22: the follow-up step runs once."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.joined, count, run_id="r")
        await consumers.drain()
        result = await consumers.world.run("r", conf_app.joined).result(timeout=5)
        assert list(result) == [[2 * number for number in range(count)], count]
        assert conf_app.executions("echo") == 1
        assert conf_app.executions("double") == count
        assert len(consumers.saw(RunFetched)) == (1 if count > 1 else 0)
    invariants.check(raw, conf_app.wf)


@pytest.mark.parametrize(
    "value", [2**63 - 1, 2**64 - 1, 2**64, -(2**63) - 1, 10**40, -(10**40), True, {"deep": [2**70, {"er": -(2**70)}]}]
)
async def test_integers_of_any_size_survive_every_position(raw: redis.Redis, connect: Connect, value: object) -> None:
    """A29: workflow argument, step argument, step result, workflow result, and the text of an exception."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.round_trip, value, run_id="r")
        await consumers.drain()
        back, given, text = await consumers.world.run("r", conf_app.round_trip).result(timeout=5)
        assert (back, given) == (value, value)
        assert type(back) is type(value)
        assert text == f"value is {value}"
    invariants.check(raw, conf_app.wf)
