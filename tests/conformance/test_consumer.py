"""Does the queued-step consumer behave as the reference's does, where it should? (reference-semantics 9.2, C14 to C28)

C18 counts reads, and stands in test_reads.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
import pytest
import redis

from consumers.handback import bury_poison
from redisworld import RedisUnavailable, RunFailed, Status
from redisworld.events import EventKind
from redisworld.messages import StepMessage, WorkflowMessage
from redisworld.observe import MessageMoved, Observation, RedisCalled, RunFetched, observing
from tests.apps import conf_app
from tests.chaos import invariants
from tests.chaos.processes import eventually
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers, monitored, phase_one

pytestmark = pytest.mark.anyio

NOW = 2_000_000_000_000
STEP_EVENTS = [EventKind.STEP_CREATED, EventKind.STEP_STARTED, EventKind.STEP_COMPLETED]

# -- crashes and redeliveries


async def test_c14_a_crash_between_completion_and_replay_is_repaired_by_the_redelivery(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await consumers.claimed(message)
        assert (await consumers.completed(item, b"\x04")).detail == "responsible"

        await consumers.process(await consumers.redelivered(item.delivery))

        assert consumers.claims() == ["skipped"]
        assert conf_app.executions("double") == 1  # the inline one
        assert [seen.reason for seen in consumers.saw(RunFetched)] == ["redelivery"]
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_c15_a_crash_in_the_body_of_a_queued_step_runs_it_once_more_as_attempt_two_of_the_same_step(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await consumers.claimed(message)

        await consumers.process(await consumers.redelivered(item.delivery))

        assert [entry for entry in conf_app.ran if entry[1] == 2] == [("double", 2, 2)]
        starts = [e.attempt for e in consumers.log("pair") if e.id == message.step_id and e.attempt]
        assert starts == [1, 2, 2]
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


async def test_c16_a_body_that_kills_its_worker_each_time_is_failed_without_a_fifth_start(
    raw: redis.Redis, connect: Connect
) -> None:
    """Three retries, so four starts."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await consumers.claimed(message)
        delivery = item.delivery
        for _ in range(3):
            delivery = await consumers.redelivered(delivery)
            again = msgspec.structs.replace(item, token=consumers.world.next_token(), delivery=delivery)
            assert (await consumers.world.deliveries.claim(again)).outcome == "started"

        await consumers.process(await consumers.redelivered(delivery))

        assert consumers.claims() == ["exhausted"]
        kinds = consumers.kinds("pair", message.step_id)
        assert kinds.count(EventKind.STEP_STARTED) == 4
        assert kinds[-1] is EventKind.STEP_FAILED
        with pytest.raises(RunFailed, match="4 attempts"):
            await consumers.world.run("pair").result(timeout=5)
    invariants.check(raw, conf_app.wf)


async def test_c17_ten_deliveries_that_came_too_early_use_up_no_attempt(raw: redis.Redis, connect: Connect) -> None:
    """Ours has no throttling; what comes back without a start is what comes before its retry time (C10)."""
    async with connect() as consumers:
        consumers.world.clock = lambda: NOW
        await consumers.world.start(conf_app.one, "asks_for_time", 7, run_id="r")
        await consumers.wake()
        for _ in range(10):
            [(due, message)] = consumers.delayed()
            raw.delete(consumers.partition.delayed, consumers.partition.delayed_body)
            consumers.put(message)
            await consumers.step()
        assert consumers.claims()[1:] == ["too_early"] * 10
        [(again, message)] = consumers.delayed()
        assert again == due == NOW + 5_000

        await consumers.drain()

        assert await consumers.world.run("r").result(timeout=5) == 7
        assert [attempt for _, _, attempt in conf_app.ran] == [1, 2]
    invariants.check(raw, conf_app.wf)


# -- two at once


async def test_c19_of_two_last_completers_at_once_one_replays_and_both_are_acknowledged(
    raw: redis.Redis, connect: Connect
) -> None:
    """In the reference both may replay. Ours names one, in the script that counts the join group down."""
    async with connect(max_inline_steps=0) as one, connect(max_inline_steps=0) as other:
        for number in range(25):
            run_id = f"pair-{number}"
            await one.world.start(conf_app.pair, run_id=run_id)
            await one.wake()
            deliveries = await one.take("steps"), await other.take("steps")
            assert None not in deliveries
            one.seen.clear()
            conf_app.during += [asyncio.Barrier(2).wait] * 2  # both bodies end at the same time

            await asyncio.gather(one.process(deliveries[0]), other.process(deliveries[1]))  # type: ignore[arg-type]

            assert len(one.saw(RunFetched)) == 1
            assert one.kinds(run_id).count(EventKind.RUN_COMPLETED) == 1
            assert one.queued() == []
            assert await one.world.run(run_id).result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


@pytest.mark.parametrize("processes", [1, 2])
async def test_c26_of_two_deliveries_of_one_step_at_once_one_runs_the_body(
    raw: redis.Redis, connect: Connect, processes: int
) -> None:
    """In the reference the second one waits for the first. Ours is ``stale`` and acknowledged: the first holds on."""
    async with connect() as consumers, connect() as second:
        other = consumers if processes == 1 else second
        message = await phase_one(consumers)
        consumers.put(message)
        deliveries = await consumers.take("steps"), await other.take("steps")
        assert None not in deliveries
        steps = consumers.partition.steps()
        conf_app.during.append(lambda: eventually(lambda: raw.xlen(steps) == 1, what="the other one is acknowledged"))

        await asyncio.gather(
            consumers.process(deliveries[0]),  # type: ignore[arg-type]
            other.process(deliveries[1]),  # type: ignore[arg-type]
        )

        assert conf_app.during == []
        assert sorted(consumers.claims()) == ["stale", "started"]
        assert conf_app.executions("double") == 2
        assert consumers.kinds("pair").count(EventKind.RUN_COMPLETED) == 1
    invariants.check(raw, conf_app.wf)


# -- finished runs


async def test_c20_a_redelivered_step_of_a_cancelled_run_runs_no_body_and_reads_nothing(
    redis_url: str, raw: redis.Redis, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Its row still reads running; the claim is all that is asked, and one debug line says what came of it."""
    async with connect() as consumers:
        message = await phase_one(consumers)
        item = await consumers.claimed(message)
        consumers.terminate("pair")
        before, log = consumers.state("pair", message.step_id), consumers.kinds("pair")
        again = await consumers.redelivered(item.delivery)

        with monitored(redis_url) as calls, caplog.at_level(logging.DEBUG, "redisworld"):
            await consumers.process(again)

        assert calls() == ["claim_many"]
        assert consumers.claims() == ["gone"]
        assert conf_app.executions("double") == 1  # the inline one
        assert consumers.state("pair", message.step_id) == before
        assert before.status is Status.RUNNING
        assert consumers.kinds("pair") == log
        assert consumers.queued() == []
        [said] = [record for record in caplog.records if "gone" in record.getMessage()]
        assert said.levelno == logging.DEBUG
    invariants.check(raw, conf_app.wf)


async def test_c21_a_message_with_its_input_on_a_finished_run_creates_no_step_and_does_not_come_back(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect() as consumers:
        message = await phase_one(consumers)
        consumers.terminate("pair")
        log = consumers.kinds("pair")
        consumers.replace_queued(msgspec.structs.replace(message, step_id="s9_never", message_id="s9_never"))

        await consumers.step()

        assert consumers.claims() == ["gone"]
        assert conf_app.executions("double") == 1  # the inline one
        assert consumers.kinds("pair") == log
        assert consumers.queued() == []
        assert consumers.delayed() == []
    invariants.check(raw, conf_app.wf)


async def test_c22_a_lazy_fetch_that_says_pending_and_has_no_start_time_still_completes_the_run(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect() as consumers:
        await phase_one(consumers)
        raw.hset(consumers.partition.run("pair"), "status", "pending")
        raw.hdel(consumers.partition.run("pair"), "started_at")

        await consumers.step()

        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
        row = await consumers.world.row("pair")
        assert row.created_at <= row.started_at <= row.finished_at


# -- outcomes


async def test_c23_a_plain_error_waits_for_the_backoff_and_a_retryable_one_as_long_as_it_asked(
    raw: redis.Redis, connect: Connect
) -> None:
    """The reference waits 1 s flat, and no store enforces it. Ours stores both delays.

    The backoff begins at 1 s and has 10 % jitter: steps that failed together do not come back together.
    """
    async with connect() as consumers:
        consumers.world.clock = lambda: NOW
        for run_id, name, least, most in (("plain", "stumbles", 900, 1_000), ("asked", "asks_for_time", 5_000, 5_000)):
            await consumers.world.start(conf_app.one, name, 1, run_id=run_id)
            await consumers.wake()
            [(due, message)] = consumers.delayed()
            assert NOW + least <= due <= NOW + most
            assert isinstance(message, StepMessage)
            assert consumers.state(run_id, message.step_id).retry_at == due
            assert message.message_id == message.step_id
            await consumers.drain()
            assert await consumers.world.run(run_id).result(timeout=5) == 1
            consumers.world.clock = lambda: NOW
    invariants.check(raw, conf_app.wf)


async def test_c24_a_fatal_error_fails_the_step_at_its_first_attempt(raw: redis.Redis, connect: Connect) -> None:
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
async def test_c24_max_retries_counts_what_comes_after_the_first_attempt(
    raw: redis.Redis, connect: Connect, retries: int, succeeds_at: int, executions: int, result: str
) -> None:
    """A12. The reference wraps the last error in one that counts retries. Ours hands the body the error itself.

    Queued or inline makes no difference: the first attempt is inline, all others are queued.
    """
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


def refuse_writes(raw: redis.Redis) -> None:
    """As a primary does whose replica is away."""
    raw.config_set("min-replicas-to-write", 1)


def cut_the_next_write(raw: redis.Redis) -> None:
    """The next write gets as far as Redis, which holds it up and then closes the connection."""
    raw.client_pause(5_000, all=False)
    asyncio.get_running_loop().call_later(0.1, lambda: raw.client_kill_filter(_type="normal", skipme=True))


@pytest.mark.parametrize(("trouble", "word"), [(refuse_writes, "refused"), (cut_the_next_write, "connection")])
async def test_c25_a_completion_that_does_not_reach_redis_is_neither_a_retry_nor_a_failure_of_the_body(
    raw: redis.Redis, connect: Connect, trouble: Callable[[redis.Redis], None], word: str
) -> None:
    """The reference leaves it to the redelivery, and the body runs again. Ours sends the completion again."""
    async with connect() as consumers:
        message = await phase_one(consumers)

        def over_after_one_failure(seen: Observation) -> None:
            if isinstance(seen, RedisCalled) and seen.error:
                end_trouble()

        def end_trouble() -> None:
            raw.config_set("min-replicas-to-write", 0)
            raw.client_unpause()

        conf_app.during.append(lambda: trouble(raw))
        try:
            with observing(over_after_one_failure):
                await consumers.step()
        finally:
            end_trouble()

        failed = [(seen.op, seen.error) for seen in consumers.saw(RedisCalled) if seen.error]
        assert failed == [("complete_many", word)]
        assert conf_app.executions("double") == 2  # the inline one, and this one
        assert consumers.kinds("pair", message.step_id) == STEP_EVENTS
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)


# -- what this worker must not process


async def delivered_49_times(consumers: Consumers) -> None:
    delivery = await consumers.take("steps")
    assert delivery is not None
    assert await bury_poison(consumers.world, msgspec.structs.replace(delivery, deliveries=49))


async def test_c27_a_message_delivered_too_often_fails_its_run_before_anything_else_is_asked(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """Ours keeps the message as a dead letter, in the same script."""
    async with connect() as consumers:
        await phase_one(consumers)

        with monitored(redis_url) as calls:
            await delivered_49_times(consumers)

        assert calls("XREADGROUP") == ["bury_message"]
        with pytest.raises(RunFailed) as failed:
            await consumers.world.run("pair").result(timeout=5)
        assert failed.value.error.code == "MAX_DELIVERIES_EXCEEDED"
        assert raw.xlen(consumers.partition.dead) == 1
    invariants.check(raw, conf_app.wf)


async def test_c27_a_message_delivered_too_often_changes_nothing_in_a_finished_run(
    raw: redis.Redis, connect: Connect
) -> None:
    """The reference acknowledges it in silence; ours drops nothing in silence."""
    async with connect() as consumers:
        await phase_one(consumers)
        consumers.terminate("pair")
        log = consumers.kinds("pair")

        await delivered_49_times(consumers)

        assert consumers.kinds("pair") == log
        assert (await consumers.world.row("pair")).status is Status.CANCELLED
        assert consumers.queued() == []
        assert raw.xlen(consumers.partition.dead) == 1
    invariants.check(raw, conf_app.wf)


async def test_c28_a_message_at_the_wrong_deployment_is_rerouted_three_times_and_then_fails_its_run(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect(deployment="blue", affinity=True) as blue, connect(deployment="green", affinity=True) as green:
        await blue.world.start(conf_app.pair, run_id="pair")
        await blue.wake()
        [sent] = blue.queued("steps@blue")
        raw.delete(blue.partition.steps(deployment="blue"))
        green.seen.clear()
        green.world.clock = lambda: NOW

        for hop, delay_ms in enumerate((1_000, 2_000, 4_000), start=1):
            green.put(sent, kind="steps@green")
            await green.step()
            [(due, sent)] = green.delayed()
            assert due == NOW + delay_ms
            assert isinstance(sent, StepMessage)
            assert sent.deployment_mismatch_retry_count == hop
            raw.delete(green.partition.delayed, green.partition.delayed_body)
        assert green.claims() == []
        assert [seen.reason for seen in green.saw(MessageMoved)] == ["reroute"] * 3

        green.put(sent, kind="steps@green")
        await green.step()

        with pytest.raises(RunFailed) as failed:
            await green.world.run("pair").result(timeout=5)
        assert failed.value.error.code == "DEPLOYMENT_MISMATCH"
        assert green.kinds("pair").count(EventKind.STEP_STARTED) == 1  # the inline one of blue
        assert raw.xlen(green.partition.dead) == 1


async def test_a_wake_that_was_handed_back_often_has_its_three_reroutes_before_its_run_fails(
    raw: redis.Redis, connect: Connect
) -> None:
    """Its deliveries were taken for re-routes: a run that had waited long failed at the first."""
    async with connect(deployment="blue", affinity=True) as blue, connect(deployment="green", affinity=True) as green:
        await blue.world.start(conf_app.pair, run_id="pair")
        [sent] = blue.queued("workflows@blue")
        raw.delete(blue.partition.workflows("blue"))
        green.put(msgspec.structs.replace(sent, deliveries=9), kind="workflows@green")

        await green.wake()

        [(_, moved)] = green.delayed()
        assert isinstance(moved, WorkflowMessage)
        assert (moved.deployment_mismatch_retry_count, moved.deliveries) == (1, 10)
        assert not (await green.world.row("pair")).status.terminal


async def test_c28_a_reroute_that_redis_refuses_leaves_the_message_where_it_is(
    raw: redis.Redis, connect: Connect
) -> None:
    """The reference fails the run at once where the target is "unavailable". Ours has no such answer, only "not now".

    A stream takes messages for a deployment that has no worker.
    """
    async with (
        connect(deployment="blue", affinity=True) as blue,
        connect(deployment="green", affinity=True, retry_redis_ms=0) as green,
    ):
        await blue.world.start(conf_app.pair, run_id="pair")
        await blue.wake()
        [message] = blue.queued("steps@blue")
        raw.delete(blue.partition.steps(deployment="blue"))
        green.put(message, kind="steps@green")
        delivery = await green.take("steps")
        assert delivery is not None

        raw.config_set("min-replicas-to-write", 1)
        try:
            with pytest.raises(RedisUnavailable):
                await green.process(delivery)
        finally:
            raw.config_set("min-replicas-to-write", 0)

        assert green.delayed() == []
        assert (await green.world.row("pair")).status is Status.RUNNING
        await green.process(await green.redelivered(delivery))
        [(_, moved)] = green.delayed()
        assert isinstance(moved, StepMessage)
        assert moved.deployment_mismatch_retry_count == 1
        await blue.drain()
        assert await green.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)
