"""Do orchestrator and queue behave as the reference's do, where they should? (reference-semantics 9.2, C29 to C40)"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis

from redisworld import ResumeConflict, RunFailed, Settings, Status
from redisworld.events import EventKind
from redisworld.messages import StepMessage, WorkflowMessage
from redisworld.observe import MessageMoved, MessageRead, PassCommitted, RedisCalled
from redisworld.world import Answer, Committed
from tests.apps import conf_app
from tests.chaos import invariants
from tests.chaos.processes import eventually
from tests.conformance.conftest import Connect
from tests.conformance.harness import monitored, phase_one, working
from tests.scripts.driver import RUN, Consumer, step

pytestmark = pytest.mark.anyio

NOW = 2_000_000_000_000


def wake_for(run_id: str, workflow: str, message_id: str = "stray") -> WorkflowMessage:
    """A wake that no event of the run has published."""
    return WorkflowMessage(message_id=message_id, run_id=run_id, workflow_name=workflow, reason="recovery")


# -- crashes


async def test_c29_a_crash_half_way_through_a_commit_leaves_no_step_without_its_message(
    raw: redis.Redis, connect: Connect
) -> None:
    """A step and its message are written by one script: only between two chunks is there a half-way."""
    async with connect(chunk_steps=2, max_inline_steps=0) as consumers:
        await consumers.world.start(conf_app.wide, 5, run_id="r")
        wake = await consumers.take("workflows")
        assert wake is not None
        commit = consumers.world.deliveries.commit

        async def die_after_the_first_chunk(*args: Any, **kwargs: Any) -> Committed:
            assert (await commit(*args, **kwargs)).outcome == "chunk"
            raise asyncio.CancelledError

        consumers.world.deliveries.commit = die_after_the_first_chunk  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await consumers.process(wake)
        consumers.world.deliveries.commit = commit  # type: ignore[method-assign]
        assert len(consumers.queued()) == consumers.kinds("r").count(EventKind.STEP_CREATED) == 2

        await consumers.process(await consumers.redelivered(wake))

        created = [event.id for event in consumers.log("r") if event.kind is EventKind.STEP_CREATED]
        assert [message.message_id for message in consumers.queued()] == created
        assert len(set(created)) == len(created) == 5
        await consumers.drain()
        assert await consumers.world.run("r").result(timeout=5) == 20
    invariants.check(raw, conf_app.wf)


async def test_c30_a_wake_that_meets_a_running_inline_step_sends_nothing_and_leaves_it_to_its_owner(
    raw: redis.Redis, connect: Connect
) -> None:
    """The reference sends a delayed wake as a backstop. Ours sends none.

    The message that owns the step stays pending until the step has ended: its redelivery is the backstop.
    """
    async with connect() as one, connect() as other, asyncio.timeout(10):
        await one.world.start(conf_app.chain, 1, run_id="owned")
        owner = await one.take("workflows")
        assert owner is not None
        running, over = asyncio.Event(), asyncio.Event()

        async def body() -> None:
            running.set()
            await over.wait()

        conf_app.during.append(body)
        processing = asyncio.ensure_future(one.process(owner))
        await running.wait()
        before, log = raw.hgetall(one.partition.run("owned")), one.kinds("owned")

        other.put(wake_for("owned", "chain"), kind="workflows")
        await other.wake()

        assert raw.hgetall(one.partition.run("owned")) == before
        assert one.kinds("owned") == log
        assert one.queued() == []
        assert one.delayed() == []
        assert len(one.queued("workflows")) == 1, "the owner alone is left"
        over.set()
        await processing
        assert await one.world.run("owned").result(timeout=5) == 0
        assert conf_app.executions("double") == 1
    invariants.check(raw, conf_app.wf)


async def test_c31_an_owner_that_died_is_followed_by_its_redelivered_message_and_the_run_completes(
    raw: redis.Redis, connect: Connect
) -> None:
    """The reference dispatches the step as a queued one. Ours starts where the owner's message is delivered again."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.chain, 1, run_id="owned")
        delivery = await consumers.take("workflows")
        assert delivery is not None
        await consumers.die_in_the_body(delivery)
        assert consumers.queued() == []

        await consumers.process(await consumers.redelivered(delivery))

        assert [attempt for _, _, attempt in conf_app.ran] == [1, 2]
        assert await consumers.world.run("owned").result(timeout=5) == 0
        assert raw.xlen(consumers.partition.steps()) == 0
    invariants.check(raw, conf_app.wf)


async def test_c40_after_a_restart_open_runs_go_on_from_the_messages_they_have_and_finished_ones_are_left_alone(
    raw: redis.Redis, connect: Connect
) -> None:
    """The reference sends a wake for every open run at its start. Ours sends none.

    What an open run waits for is an unread entry, a pending one that is delivered again, or a timer; all three live on.
    """
    async with connect(lease_ms=500, reclaim_every_ms=50, timer_poll_ms=50) as consumers:
        await consumers.world.start(conf_app.chain, 1, run_id="finished")
        await consumers.wake()
        await consumers.world.start(conf_app.napped, 0.3, run_id="asleep")
        await consumers.wake()
        await consumers.world.start(conf_app.pair, run_id="held")
        await consumers.wake()
        await consumers.claimed(consumers.queued()[0])  # type: ignore[arg-type]  # whose worker is gone now
        await consumers.world.start(conf_app.pair, run_id="unread")
        finished = raw.hgetall(consumers.partition.run("finished")), consumers.log("finished")

    async with connect(lease_ms=500, reclaim_every_ms=50, timer_poll_ms=50) as restarted, working(restarted):
        for run_id, result in (("asleep", "awake"), ("held", [2, 4]), ("unread", [2, 4])):
            assert await restarted.world.run(run_id).result(timeout=10) == result
        assert (raw.hgetall(restarted.partition.run("finished")), restarted.log("finished")) == finished
        wakes = [seen for seen in restarted.saw(MessageRead) if seen.kind == "workflow"]
        brought = [seen.delivery for seen in wakes for _ in range(seen.count)]  # one read may bring both
        assert brought == ["first"] * 2, "the start of one run and the timer of another"
    invariants.check(raw, conf_app.wf)


# -- timers and delayed retries


async def test_c32_an_early_wake_of_a_sleeping_run_neither_ends_its_wait_nor_disarms_its_timer(
    raw: redis.Redis, connect: Connect
) -> None:
    """The reference's timer is the wake itself and must be armed anew.

    Ours is a member of the delayed set, and only its promotion completes the wait.
    """
    async with connect() as consumers:
        consumers.world.clock = lambda: NOW
        await consumers.world.start(conf_app.napped, 60, run_id="asleep")
        await consumers.wake()
        armed = raw.zrange(consumers.partition.delayed, 0, -1, withscores=True)
        assert [due for _, due in armed] == [NOW + 60_000]

        consumers.put(wake_for("asleep", "napped"), kind="workflows")
        await consumers.wake()
        await consumers.world.upkeep.promote(consumers.partition)

        assert raw.zrange(consumers.partition.delayed, 0, -1, withscores=True) == armed
        assert EventKind.WAIT_COMPLETED not in consumers.kinds("asleep")
        await consumers.drain()
        [woken] = [event.at for event in consumers.log("asleep") if event.kind is EventKind.WAIT_COMPLETED]
        assert woken == NOW + 60_000
        assert await consumers.world.run("asleep").result(timeout=5) == "awake"
    invariants.check(raw, conf_app.wf)


async def test_c33_a_retry_under_the_id_of_the_message_just_settled_is_not_swallowed(
    raw: redis.Redis, connect: Connect
) -> None:
    """The reference's queue remembers ids. Ours remembers none: one script settles the entry and delays the message."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.one, "retries_2", 3, run_id="r")
        await consumers.wake()
        for attempt in (2, 3):
            assert consumers.queued() == []
            [(due, message)] = consumers.delayed()
            assert isinstance(message, StepMessage)
            assert message.message_id == message.step_id
            consumers.world.clock = lambda due=due: due
            await consumers.world.upkeep.promote(consumers.partition)
            await consumers.step()
            assert conf_app.ran[-1] == ("retries_2", 3, attempt)
        assert await consumers.world.run("r").result(timeout=5) == "ok"
    invariants.check(raw, conf_app.wf)


# -- hooks


async def hook_with_a_payload(a: Consumer) -> tuple[str, int]:
    """A hook that has received a payload as resume ``first``: the answer to it."""
    await a.dispatch(step("s1"))
    assert await a.world.events.hook_created(RUN, "h1", "token") == Answer("created")
    return await a.world.hooks.resume("token", b"\x01", resume_id="first")


async def over(a: Consumer, how: str) -> None:
    if how == "disposed":
        assert await a.world.events.hook_disposed(RUN, "h1") == Answer("disposed")
    elif how != "open":
        await a.finish(how=how)


@pytest.mark.parametrize("how", ["open", "disposed", "completed", "failed", "cancelled"])
async def test_c34_a_resume_asked_again_gives_the_first_event_also_when_the_hook_is_over(a: Consumer, how: str) -> None:
    first = await hook_with_a_payload(a)
    await over(a, how)
    before = await a.dump()

    assert await a.world.hooks.resume("token", b"\x01", resume_id="first") == first
    assert await a.dump() == before


@pytest.mark.parametrize("how", ["open", "disposed", "completed", "failed", "cancelled"])
async def test_c34_a_resume_id_used_with_another_payload_is_a_conflict(a: Consumer, how: str) -> None:
    await hook_with_a_payload(a)
    await over(a, how)
    before = await a.dump()

    with pytest.raises(ResumeConflict):
        await a.world.hooks.resume("token", b"\x02", resume_id="first")
    assert await a.dump() == before


# -- replays


async def test_c35_a_log_that_the_code_does_not_follow_is_tried_three_times_again_and_then_fails_the_run(
    raw: redis.Redis, connect: Connect
) -> None:
    """REPLAY_DIVERGENCE says what is wrong. CORRUPTED_EVENT_LOG, the reference's code, is for a log that is none."""
    async with connect() as consumers:
        await phase_one(consumers)
        log = consumers.partition.log("pair")
        [index] = [i for i, e in enumerate(raw.lrange(log, 0, -1)) if e.startswith(b"step_created") and b"s1_" in e]
        raw.lset(log, index, raw.lindex(log, index).replace(b" double\n", b" halve\n"))

        await consumers.step()
        for recovery in (1, 2, 3):
            assert (await consumers.world.row("pair")).status is Status.RUNNING
            assert [seen.reason for seen in consumers.saw(MessageMoved)] == ["divergence"] * recovery
            [(due, wake)] = consumers.delayed()
            assert isinstance(wake, WorkflowMessage)
            assert wake.reason == "divergence"
            consumers.world.clock = lambda due=due: due
            await consumers.world.upkeep.promote(consumers.partition)
            await consumers.wake()

        with pytest.raises(RunFailed, match=r"halve.*double|double.*halve") as failed:
            await consumers.world.run("pair").result(timeout=5)
        assert failed.value.error.code == "REPLAY_DIVERGENCE"
        assert consumers.delayed() == []


async def test_c35_a_log_whose_beginning_cannot_be_read_fails_the_run_and_no_delivery_is_used_up_for_it(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect(sticky_runs=0) as consumers:
        await phase_one(consumers)
        log = consumers.partition.log("pair")
        raw.lset(log, 0, raw.lindex(log, 0).partition(b"\n")[0] + b"\n\x82\xa5input\xc4\x00\xaddeployment_id\xa1\xff")

        await consumers.step()
        for _ in range(3):
            [(due, _)] = consumers.delayed()
            consumers.world.clock = lambda due=due: due
            await consumers.world.upkeep.promote(consumers.partition)
            await consumers.wake()

        with pytest.raises(RunFailed, match="run_created cannot be read") as failed:
            await consumers.world.run("pair").result(timeout=5)
        assert failed.value.error.code == "CORRUPTED_EVENT_LOG"


async def test_c36_an_argument_that_cannot_be_stored_rejects_its_branch_alone_and_the_replay_is_stable(
    raw: redis.Redis, connect: Connect
) -> None:
    """Ours refuses at the call, before there is a step. ``invariants.check`` replays the whole log cold."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.mixed, run_id="r")
        await consumers.drain()

        assert await consumers.world.run("r").result(timeout=5) == ["1", "InvalidValue", "3"]
        assert consumers.kinds("r").count(EventKind.STEP_COMPLETED) == 2
    invariants.check(raw, conf_app.wf)


async def test_c38_a_run_driven_by_step_messages_alone_fails_at_the_ceiling_of_its_log(
    raw: redis.Redis, connect: Connect
) -> None:
    async with connect(max_inline_steps=0, max_log_events=20) as consumers:
        await consumers.world.start(conf_app.chain, 100, run_id="long")
        await consumers.wake()

        while consumers.queued():
            await consumers.step()

        assert {seen.trigger for seen in consumers.saw(PassCommitted)} == {"start", "step"}
        with pytest.raises(RunFailed) as failed:
            await consumers.world.run("long").result(timeout=5)
        assert failed.value.error.code == "MAX_EVENTS_EXCEEDED"
        assert len(consumers.log("long")) == 21, "the ceiling, and the end of the run"
        assert consumers.delayed() == []
    invariants.check(raw, conf_app.wf)


# -- commits


async def test_c37_a_commit_of_33_steps_at_32_a_chunk_is_two_scripts_and_only_the_second_one_ends_the_pass(
    redis_url: str, raw: redis.Redis, connect: Connect
) -> None:
    """32 pairs is the reference's limit. Ours is 256 steps or 1 MiB, whichever is less, and can be set."""
    assert (Settings().chunk_steps, Settings().chunk_bytes) == (256, 1024 * 1024)
    async with connect(chunk_steps=32, max_inline_steps=0) as consumers:
        await consumers.world.start(conf_app.wide, 33, run_id="r")
        commit, chunks = consumers.world.deliveries.commit, []

        async def look_after_each(*args: Any, **kwargs: Any) -> Committed:
            answer = await commit(*args, **kwargs)
            chunks.append((answer.outcome, len(consumers.queued()), (await consumers.world.row("r")).replayed_to))
            return answer

        consumers.world.deliveries.commit = look_after_each  # type: ignore[method-assign]
        with monitored(redis_url) as calls:
            await consumers.wake()
        consumers.world.deliveries.commit = commit  # type: ignore[method-assign]

        assert calls().count("commit_pass") == 2
        assert chunks == [("chunk", 8, 0), ("committed", 33, 1)], "the first chunk is a small one, and none is above 32"
        await consumers.drain()
        assert await consumers.world.run("r").result(timeout=5) == 33 * 32
    invariants.check(raw, conf_app.wf)


async def test_c37_a_step_that_exists_already_costs_its_chunk_no_other_step_and_is_not_sent_twice(a: Consumer) -> None:
    """The reference's conflict is a skip here, for a repeated commit asks for the same steps."""
    turn = await a.begin()
    early = await a.publish("s2")
    assert (await a.claim(early, ensure=True, input=b"\x90")).outcome == "started"

    answer = await a.commit(turn, step("s1"), step("s2"), step("s3"), last=False)

    assert answer.outcome == "chunk"
    created = [event.id for event in await a.log() if event.kind is EventKind.STEP_CREATED]
    assert created == ["s2", "s1", "s3"]
    assert set(await a.steps_delivered()) == {"s1", "s3"}
    assert (await a.step("s2")).status == "running"


async def test_c39_a_pass_that_another_one_overtook_is_lost_and_goes_on_from_what_that_one_wrote(
    a: Consumer, b: Consumer
) -> None:
    """A lost compare-and-set has a word of its own, ``lost``: no conflict, and nothing is written."""
    turn = await a.begin()
    other = await b.load(await b.duplicate(turn.delivery))
    assert (await b.commit(other, step("s1"))).outcome == "committed"
    before = await a.written()

    answer = await a.commit(turn, step("s1"), step("s2"))

    assert answer.outcome == "lost"
    assert await a.written() == before
    assert set(await a.steps_delivered()) == {"s1"}


def refuses(raw: redis.Redis) -> bool:
    try:
        return not raw.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)


async def test_c39_a_store_that_is_busy_is_asked_again_and_no_refusal_is_made_of_it(
    raw: redis.Redis, connect: Connect
) -> None:
    """What contention there is inside Redis: somebody else's script that takes its time, while a step completes."""
    hog = "for _ = 1, 50000000 do end"  # a quarter of a second
    patience = raw.config_get("lua-time-limit")["lua-time-limit"]
    async with connect() as consumers:
        message = await phase_one(consumers)
        client = aioredis.Redis.from_url(consumers.world.settings.url)
        hogging: list[asyncio.Future[object]] = []

        async def until_redis_is_busy() -> None:
            hogging.append(asyncio.ensure_future(client.eval(hog, 0)))
            await eventually(lambda: refuses(raw), timeout=5, what="Redis answers BUSY")

        conf_app.during.append(until_redis_is_busy)
        raw.config_set("lua-time-limit", 5)
        try:
            await consumers.step()
            await hogging[0]
        finally:
            raw.config_set("lua-time-limit", patience)
            await client.aclose()

        assert "refused" in [seen.error for seen in consumers.saw(RedisCalled) if seen.op == "complete_many"]
        assert consumers.kinds("pair", message.step_id) == [
            EventKind.STEP_CREATED,
            EventKind.STEP_STARTED,
            EventKind.STEP_COMPLETED,
        ]
        assert conf_app.executions("double") == 2
        assert await consumers.world.run("pair").result(timeout=5) == [2, 4]
    invariants.check(raw, conf_app.wf)
