"""Does a run go on when a person has deleted what it waits for, and is nothing else sent twice? (design section 8)"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
import redis

from consumers.handback import refuse
from consumers.recovery import Recovery
from redisworld import Settings, Status, World
from redisworld.events import EventKind
from redisworld.keys import GROUP
from redisworld.messages import WorkflowMessage
from redisworld.observe import DelayedLost, MessageBuried, MessageMoved, RunRecovered
from redisworld.world import Outgoing
from tests.apps import conf_app
from tests.chaos import invariants
from tests.conformance.conftest import Connect
from tests.conformance.harness import Consumers, monitored

pytestmark = pytest.mark.anyio


def recovery(consumers: Consumers, *, streams: tuple[str, ...] = ("steps", "workflows")) -> Recovery:
    """The loop of a worker that reads these streams; tests call its tick."""
    return Recovery(consumers.world, consumers.app, [(consumers.partition, stream) for stream in streams])


async def ticks(loop: Recovery, count: int = 4) -> int:
    """So many ticks: both statuses are looked at, and looked at again. How many messages were sent."""
    return sum([await loop.tick() for _ in range(count)])


def delete_all(raw: redis.Redis, key: str, *, acknowledge: bool = True) -> None:
    """XACK and XDEL of every entry, by hand."""
    for entry, _ in raw.xrange(key):
        if acknowledge:
            raw.xack(key, GROUP, entry)
        raw.xdel(key, entry)


@asynccontextmanager
async def finishing(consumers: Consumers, raw: redis.Redis, run_id: str) -> AsyncIterator[None]:
    """What is done inside strands the run; afterwards it is recovered, once, and ends."""
    yield
    loop = recovery(consumers)
    assert await ticks(loop) == 1
    assert await ticks(loop) == 0, "what lives now is not sent again"
    await consumers.drain()
    assert (await consumers.world.row(run_id)).status is Status.COMPLETED
    invariants.check(raw, consumers.app, settled=False)  # what a person left half done stays


Delayed = Callable[[Consumers], Awaitable[None]]
Strand = Callable[[Consumers, redis.Redis], Awaitable[None]]


async def before_its_first_read(consumers: Consumers, raw: redis.Redis) -> None:
    await consumers.world.start(conf_app.pair, run_id="r")
    delete_all(raw, consumers.partition.workflows())


async def with_the_whole_stream(consumers: Consumers, raw: redis.Redis) -> None:
    await consumers.world.start(conf_app.pair, run_id="r")
    raw.delete(consumers.partition.workflows())
    await consumers.world.queue.ensure_groups([consumers.stream("workflows")])


async def while_it_was_delivered(consumers: Consumers, raw: redis.Redis) -> None:
    await consumers.world.start(conf_app.pair, run_id="r")
    assert await consumers.take("workflows") is not None
    delete_all(raw, consumers.partition.workflows(), acknowledge=False)


async def acknowledged_and_left_in_the_stream(consumers: Consumers, raw: redis.Redis) -> None:
    await consumers.world.start(conf_app.pair, run_id="r")
    delivery = await consumers.take("workflows")
    assert delivery is not None
    raw.xack(consumers.partition.workflows(), GROUP, delivery.entry_id)


async def of_a_timer(consumers: Consumers, raw: redis.Redis) -> None:
    await consumers.world.start(conf_app.napped, 5, run_id="r")
    await consumers.wake()
    due = int(raw.zrange(consumers.partition.delayed, 0, 0, withscores=True)[0][1])
    consumers.world.clock = lambda: due
    await consumers.world.upkeep.promote(consumers.partition)
    delete_all(raw, consumers.partition.workflows())


@pytest.mark.parametrize(
    "strand",
    [
        before_its_first_read,
        with_the_whole_stream,
        while_it_was_delivered,
        acknowledged_and_left_in_the_stream,
        of_a_timer,
    ],
)
async def test_a_run_whose_wake_was_deleted_goes_on(connect: Connect, raw: redis.Redis, strand: Strand) -> None:
    async with connect() as consumers, finishing(consumers, raw, "r"):
        await strand(consumers, raw)


async def test_each_recovery_wake_has_an_id_that_no_wake_before_it_had(connect: Connect, raw: redis.Redis) -> None:
    """Else a lost one that comes back would be responsible too."""
    async with connect() as consumers:
        await of_a_timer(consumers, raw)
        wakes = [(await consumers.world.row("r")).wake]
        for _ in range(3):
            assert await ticks(recovery(consumers)) == 1
            wakes.append((await consumers.world.row("r")).wake)
            delete_all(raw, consumers.partition.workflows())

    first = wakes[0]
    assert wakes == [first, f"{first}r1", f"{first}r2", f"{first}r3"]


async def test_a_last_completer_that_was_deleted_is_replaced(connect: Connect, raw: redis.Redis) -> None:
    async with connect(max_inline_steps=0) as consumers, finishing(consumers, raw, "r"):
        await consumers.world.start(conf_app.chain, 1, run_id="r")
        await consumers.wake()
        [message] = consumers.queued()
        await consumers.completed(await consumers.claimed(message), b"\x02")
        assert (await consumers.world.row("r")).wake == message.message_id
        delete_all(raw, consumers.partition.steps())


@pytest.mark.parametrize("state", ["pending", "running"])
async def test_a_queued_step_whose_message_was_deleted_is_sent_again(
    connect: Connect, raw: redis.Redis, state: str
) -> None:
    async with connect(max_inline_steps=0) as consumers, finishing(consumers, raw, "r"):
        await consumers.world.start(conf_app.chain, 1, run_id="r")
        await consumers.wake()
        [message] = consumers.queued()
        if state == "running":
            await consumers.claimed(message)
        delete_all(raw, consumers.partition.steps())
    assert consumers.kinds("r").count(EventKind.STEP_CREATED) == 1
    assert conf_app.executions("double") == 1
    assert consumers.saw(RunRecovered) == [RunRecovered("step", "r")]


async def test_an_inline_step_whose_owner_was_deleted_goes_to_the_queue(connect: Connect, raw: redis.Redis) -> None:
    async with connect() as consumers, finishing(consumers, raw, "r"):
        await consumers.world.start(conf_app.chain, 1, run_id="r")

        delivery = await consumers.take("workflows")
        assert delivery is not None
        await consumers.die_in_the_body(delivery)
        assert raw.xlen(consumers.partition.workflows()) == 1
        delete_all(raw, consumers.partition.workflows())


async def test_a_step_of_a_queue_that_nobody_reads_lives_all_the_same(connect: Connect, raw: redis.Redis) -> None:
    async with connect(max_inline_steps=0) as consumers:
        await consumers.world.start(conf_app.chain, 1, run_id="r")
        await consumers.wake()
        raw.rename(consumers.partition.steps(), consumers.partition.steps("gpu"))

        assert await ticks(recovery(consumers)) == 0


async def test_a_wait_whose_timer_was_deleted_gets_it_again(connect: Connect, raw: redis.Redis) -> None:
    async with connect() as consumers, finishing(consumers, raw, "r"):
        await consumers.world.start(conf_app.napped, 5, run_id="r")
        await consumers.wake()
        due = raw.zrange(consumers.partition.delayed, 0, 0, withscores=True)
        raw.delete(consumers.partition.delayed)
        loop = recovery(consumers)
        await ticks(loop)
        assert raw.zrange(consumers.partition.delayed, 0, 0, withscores=True) == due
        raw.delete(consumers.partition.delayed)


async def test_nothing_is_sent_for_runs_that_wait_for_what_lives(connect: Connect, raw: redis.Redis) -> None:
    async with connect(max_inline_steps=0) as consumers:
        # given a wake that is queued, one that is delivered, steps in every state, a retry, a timer
        await consumers.world.start(conf_app.pair, run_id="delivered")
        assert await consumers.take("workflows") is not None
        for run_id, workflow, arguments in (
            ("queued", conf_app.pair, ()),
            ("napped", conf_app.napped, (60,)),
            ("steps", conf_app.wide, (3,)),
        ):
            await consumers.world.start(workflow, *arguments, run_id=run_id)
        for _ in range(3):
            await consumers.wake()
        await consumers.world.start(conf_app.chain, 1, run_id="waiting")
        messages = consumers.queued()
        await consumers.claimed(messages[0])

        assert await ticks(recovery(consumers), 8) == 0
        assert consumers.saw(RunRecovered) == []


async def test_a_parked_run_is_left_alone_until_its_letter_is_dropped(connect: Connect, raw: redis.Redis) -> None:
    async with connect() as consumers:
        await consumers.world.start(conf_app.pair, run_id="r")
        delivery = await consumers.take("workflows")
        assert delivery is not None
        await consumers.world.deliveries.bury(delivery, run_id="r", reason="unknown_name", detail="no workflow 'pair'")
        loop = recovery(consumers)
        assert await ticks(loop) == 0
        row = await consumers.world.row("r")
        assert row.parked == tuple([letter.name async for letter in consumers.world.dead.letters()])

        await consumers.world.dead.drop(row.parked[0])

        assert await ticks(loop) == 1
        await consumers.drain()
        assert (await consumers.world.row("r")).status is Status.COMPLETED


async def test_a_run_whose_letter_was_trimmed_by_hand_is_recovered(connect: Connect, raw: redis.Redis) -> None:
    async with connect() as consumers, finishing(consumers, raw, "r"):
        await consumers.world.start(conf_app.pair, run_id="r")
        delivery = await consumers.take("workflows")
        assert delivery is not None
        await consumers.world.deliveries.bury(delivery, run_id="r", reason="unknown_name", detail="no workflow 'pair'")
        raw.delete(consumers.partition.dead)


async def test_who_waits_in_a_long_backlog_is_not_looked_for_at_every_tick(
    connect: Connect, raw: redis.Redis, redis_url: str
) -> None:
    async with connect() as consumers:
        for number in range(1_000):
            await consumers.world.start(conf_app.pair, run_id=f"r{number}")
        loop = recovery(consumers)
        with monitored(redis_url) as calls:
            assert await ticks(loop, 28) == 0
    searches = calls().count("XRANGE") / (1_000 / 100)
    assert 3 <= searches < 8, "a rest of a tick for 200 entries, after each"


async def test_a_fan_out_of_ten_thousand_steps_gets_back_the_messages_it_has_lost_and_no_other(
    connect: Connect, raw: redis.Redis, redis_url: str
) -> None:
    async with connect(max_inline_steps=0) as consumers:
        await consumers.world.start(conf_app.wide, 10_000, run_id="r")
        await consumers.wake()
        key = consumers.partition.steps()
        entries = raw.xrange(key)
        assert len(entries) == 10_000
        lost = [entries[at][1][b"step"] for at in (0, 5_000, 9_999)]
        raw.xdel(key, *(entries[at][0] for at in (0, 5_000, 9_999)))
        loop = recovery(consumers)

        with monitored(redis_url) as calls:
            assert await ticks(loop, 8) == 3
            assert await ticks(loop, 4) == 0

        assert sorted(fields[b"step"] for _, fields in raw.xrange(key)[-3:]) == sorted(lost)
        assert raw.xlen(key) == 10_000
    looks = calls().count("look_at_runs")
    assert looks >= 2 * 10_000 / 400, "no script looks at more than about 400 fields"


async def test_a_whole_stream_of_steps_that_was_deleted_is_sent_again_as_fast_as_a_tick_allows(
    connect: Connect, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumers.recovery.SENT", 200)
    async with connect(max_inline_steps=0) as consumers:
        await consumers.world.start(conf_app.wide, 500, run_id="r")
        await consumers.wake()
        raw.delete(consumers.partition.steps())
        await consumers.world.queue.ensure_groups([consumers.stream("steps")])
        loop = recovery(consumers)

        sent = [await loop.tick() for _ in range(8)]

        assert [number for number in sent if number] == [200, 200, 100]
        await consumers.drain()
        assert await consumers.world.run("r", conf_app.wide).result(timeout=5) == sum(2 * n for n in range(500))
    invariants.check(raw, conf_app.wf)


async def test_a_search_goes_on_over_ticks_and_finds_what_moved_meanwhile(
    connect: Connect, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumers.recovery.ENTRIES", 100)
    async with connect() as consumers:
        for number in range(350):
            await consumers.world.start(conf_app.pair, run_id=f"r{number}")
        key = consumers.partition.workflows()
        entries = raw.xrange(key)
        raw.xdel(key, entries[340][0])
        loop, seen = recovery(consumers), []
        while not seen or not seen[-1]:
            seen.append(await loop.tick())
            assert len(seen) < 20
            at = 300 + len(seen)  # ahead of the search, as a worker that hands it back does
            raw.xadd(key, entries[at][1])
            raw.xdel(key, entries[at][0])

        assert len(seen) > 4, "it took several ticks"
        assert seen[-1] == 1
        [(_, recovered)] = [(i, fields) for i, fields in raw.xrange(key) if fields[b"reason"] == b"recovery"]
        assert recovered[b"run"] == b"r340"


async def test_more_suspects_than_are_remembered_are_all_recovered(
    connect: Connect, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumers.recovery.REMEMBERED", 5)
    monkeypatch.setattr("consumers.recovery.PAGE", 4)
    async with connect() as consumers:
        for number in range(30):
            await consumers.world.start(conf_app.pair, run_id=f"r{number}")
        delete_all(raw, consumers.partition.workflows())

        assert await ticks(recovery(consumers), 24) == 30


@pytest.mark.parametrize(
    "damage",
    [lambda raw, log: raw.ltrim(log, 0, 0), lambda raw, log: raw.lset(log, -1, raw.lindex(log, 0))],
    ids=["a log that is cut", "another event in the place of the step"],
)
async def test_a_run_that_cannot_be_read_holds_up_no_other(
    connect: Connect, raw: redis.Redis, caplog: pytest.LogCaptureFixture, damage: Callable[[redis.Redis, str], object]
) -> None:
    async with connect(max_inline_steps=0) as consumers:
        for run_id in ("broken", "whole"):
            await consumers.world.start(conf_app.chain, 1, run_id=run_id)
            await consumers.wake()
        damage(raw, consumers.partition.log("broken"))
        delete_all(raw, consumers.partition.steps())

        assert await ticks(recovery(consumers)) == 1
        assert [message.run_id for message in consumers.queued()] == ["whole"]
    assert "not recovered: run=broken lost=step id=" in caplog.text


async def test_a_partition_with_a_key_that_is_not_ours_holds_up_no_other(redis_url: str, raw: redis.Redis) -> None:
    async with World.connect(settings=Settings(url=redis_url, partitions=2)) as world:
        run_id = next(f"r{n}" for n in range(50) if world.partition(f"r{n}") is world.partitions[1])
        other = next(f"r{n}" for n in range(50) if world.partition(f"r{n}") is world.partitions[0])
        for started in (run_id, other):
            await world.start(conf_app.pair, run_id=started)
        raw.set(world.partitions[0].delayed, "another program's")
        raw.delete(world.partitions[1].workflows())

        streams = [(partition, "workflows") for partition in world.partitions]
        assert await ticks(Recovery(world, conf_app.wf, streams), 12) == 1


# -- what is due later


async def test_a_delayed_start_that_was_deleted_begins_when_it_was_to_begin_and_not_before(
    connect: Connect, raw: redis.Redis
) -> None:
    async with connect() as consumers:
        await consumers.world.start(conf_app.pair, run_id="r", delay="1h")
        [(_, due)] = raw.zrange(consumers.partition.delayed, 0, 0, withscores=True)
        raw.delete(consumers.partition.delayed, consumers.partition.delayed_body)

        assert await ticks(recovery(consumers)) == 1

        assert consumers.queued("workflows") == []
        [(again, wake)] = consumers.delayed()
        assert (again, wake.message_id) == (due, (await consumers.world.row("r")).wake)
        assert await ticks(recovery(consumers)) == 0
        await consumers.drain()
        assert (await consumers.world.row("r")).status is Status.COMPLETED
    invariants.check(raw, conf_app.wf)


async def test_the_body_of_a_delayed_start_gets_its_member_back_with_its_due_time(
    connect: Connect, raw: redis.Redis
) -> None:
    async with connect() as consumers:
        await consumers.world.start(conf_app.pair, run_id="r", delay="1h")
        before = raw.zrange(consumers.partition.delayed, 0, 0, withscores=True)
        raw.delete(consumers.partition.delayed)

        assert await consumers.world.recovery.delayed("workflow", "r", "start", mode="mend") == "restored"
        assert raw.zrange(consumers.partition.delayed, 0, 0, withscores=True) == before


async def a_start(consumers: Consumers) -> None:
    await consumers.world.start(conf_app.chain, 1, run_id="r", delay="1h")


async def a_retry(consumers: Consumers) -> None:
    await consumers.world.start(conf_app.chain, 1, run_id="r")
    await consumers.wake()
    delivery = await consumers.take("steps")
    assert delivery is not None
    again = Outgoing.again(delivery, body=delivery.fields["msg"], message_id=delivery.text("step"))
    await consumers.world.deliveries.move(delivery, again, old_id=again.id, target="steps", delay_ms=3_600_000)


@pytest.mark.parametrize(("delayed", "kind"), [(a_start, "workflow"), (a_retry, "step")])
async def test_a_delayed_message_that_is_due_without_its_body_is_told_and_its_run_recovered(
    connect: Connect, raw: redis.Redis, caplog: pytest.LogCaptureFixture, delayed: Delayed, kind: str
) -> None:
    async with connect(max_inline_steps=0) as consumers:
        await delayed(consumers)
        [(member, due)] = raw.zrange(consumers.partition.delayed, 0, 0, withscores=True)
        raw.delete(consumers.partition.delayed_body)
        consumers.world.clock = lambda: int(due)

        assert await consumers.world.upkeep.promote(consumers.partition) == (None, [])

        assert consumers.saw(DelayedLost) == [DelayedLost(kind)]
        assert consumers.metric("redisworld_delayed_lost_total", kind=kind) == 1
        assert raw.hget(consumers.partition.stats, "delayed_lost") == b"1"
        assert f'recovery looks for who waits for it: member="{member.decode()}"' in caplog.text
        assert raw.zcard(consumers.partition.delayed) == 0
        assert await ticks(recovery(consumers)) == 1
        await consumers.drain()
        assert (await consumers.world.row("r")).status is Status.COMPLETED
    invariants.check(raw, conf_app.wf)


async def test_a_delayed_message_that_is_buried_when_it_is_due_is_told(
    connect: Connect, raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(max_inline_steps=0) as consumers:
        await a_retry(consumers)
        [(member, due)] = raw.zrange(consumers.partition.delayed, 0, 0, withscores=True)
        raw.hset(consumers.partition.delayed_body, member, "nonsense")
        consumers.world.clock = lambda: int(due)

        assert await consumers.world.upkeep.promote(consumers.partition) == (None, [])

        assert consumers.saw(MessageBuried) == [MessageBuried("step", "undecodable", "0-0")]
        assert raw.xlen(consumers.partition.dead) == 1
        assert member.decode() in caplog.text
        assert await ticks(recovery(consumers)) == 1, "the log has the message again"


# -- replays


async def test_a_recovery_wake_that_was_handed_back_often_is_no_replay_of_a_run_that_diverged(
    connect: Connect, raw: redis.Redis
) -> None:
    """Else the first divergence after it would fail the run at once."""
    async with connect(max_inline_steps=0) as consumers:
        await consumers.world.start(conf_app.chain, 1, run_id="r")
        await consumers.wake()
        [message] = consumers.queued()
        await consumers.completed(await consumers.claimed(message), b"\x02")
        delete_all(raw, consumers.partition.steps())
        assert await ticks(recovery(consumers)) == 1
        [wake] = consumers.queued("workflows")
        assert isinstance(wake, WorkflowMessage)
        delete_all(raw, consumers.partition.workflows())
        consumers.put(msgspec.structs.replace(wake, deliveries=9), kind="workflows")
        log = consumers.partition.log("r")
        [index] = [i for i, e in enumerate(raw.lrange(log, 0, -1)) if e.startswith(b"step_created")]
        raw.lset(log, index, raw.lindex(log, index).replace(b" double\n", b" halve\n"))

        await consumers.wake()

        assert [seen.reason for seen in consumers.saw(MessageMoved)] == ["divergence"]
        assert (await consumers.world.row("r")).status is Status.RUNNING
        [(_, again)] = consumers.delayed()
        assert (again.reason, again.recoveries) == ("divergence", 1)


async def test_a_wake_of_a_run_that_diverged_counts_its_replays_however_often_it_is_handed_back(
    connect: Connect, raw: redis.Redis
) -> None:
    """By drains, and by workers that do not know the workflow: each used up one of the three."""
    async with connect() as consumers:
        world = consumers.world
        await world.start(conf_app.pair, run_id="r")
        await consumers.wake()
        log = consumers.partition.log("r")
        [index] = [i for i, e in enumerate(raw.lrange(log, 0, -1)) if e.startswith(b"step_created") and b"s1_" in e]
        raw.lset(log, index, raw.lindex(log, index).replace(b" double\n", b" halve\n"))
        await consumers.step()

        for _ in range(4):
            [(due, wake)] = consumers.delayed()
            world.clock = lambda due=due: due
            await world.upkeep.promote(consumers.partition)
            delivery = await consumers.take("workflows")
            assert delivery is not None
            await refuse(world, delivery, wake, reason="unknown_name", detail="another application's worker")
        [(due, wake)] = consumers.delayed()
        assert isinstance(wake, WorkflowMessage)
        assert (wake.reason, wake.recoveries, wake.deliveries) == ("divergence", 1, 5)
        world.clock = lambda: due
        await world.upkeep.promote(consumers.partition)
        await consumers.wake()

        assert (await world.row("r")).status is Status.RUNNING
        [(_, again)] = consumers.delayed()
        assert isinstance(again, WorkflowMessage)
        assert again.recoveries == 2


# -- several


async def test_two_workers_never_send_both(connect: Connect, raw: redis.Redis) -> None:
    async with connect() as consumers:
        await before_its_first_read(consumers, raw)
        one, other = recovery(consumers), recovery(consumers)
        seen = [await loop.tick() for loop in (one, other, one, other, one, other)]

        assert sum(seen) == 1
        assert raw.xlen(consumers.partition.workflows()) == 1


async def test_the_old_wake_that_comes_back_after_all_is_settled(connect: Connect, raw: redis.Redis) -> None:
    """Somebody restores it: the row names the recovery wake, and only that one continues the run."""
    async with connect() as consumers:
        await consumers.world.start(conf_app.pair, run_id="r")
        [old] = consumers.queued("workflows")
        delete_all(raw, consumers.partition.workflows())
        assert await ticks(recovery(consumers)) == 1
        consumers.put(old, kind="workflows")

        await consumers.drain()

        assert (await consumers.world.row("r")).status is Status.COMPLETED
        assert conf_app.executions("double") == 2
    invariants.check(raw, conf_app.wf)


async def test_an_idle_tick_is_two_commands(connect: Connect, raw: redis.Redis, redis_url: str) -> None:
    async with connect() as consumers:
        await consumers.world.start(conf_app.napped, 60, run_id="r")
        await consumers.wake()
        loop = recovery(consumers)
        with monitored(redis_url) as calls:
            await ticks(loop, 2)
    assert calls() == ["ZSCAN", "look_at_runs", "ZSCAN"]


async def test_a_start_whose_run_was_lost_creates_it_again(connect: Connect, raw: redis.Redis) -> None:
    async with connect() as consumers:
        await consumers.world.start(conf_app.chain, 1, run_id="r")
        raw.delete(consumers.partition.run("r"), consumers.partition.log("r"))

        await consumers.drain()
        assert (await consumers.world.row("r")).status is Status.COMPLETED


@pytest.mark.parametrize("retention_ms", [0, 60_000])
async def test_a_run_that_was_cancelled_before_a_worker_came_is_not_started_once_it_has_gone(
    connect: Connect, raw: redis.Redis, retention_ms: int
) -> None:
    async with connect(retention_ms=retention_ms) as consumers:
        await consumers.world.start(conf_app.chain, 1, run_id="r")
        await consumers.world.cancel("r", terminate=True)
        later = consumers.world.now_ms() + 120_000
        consumers.world.clock = lambda: later
        assert await consumers.world.upkeep.reap(consumers.partition, 10) == 1
        assert not raw.exists(consumers.partition.run("r"))

        await consumers.wake()
        assert not raw.exists(consumers.partition.run("r"))
        assert consumers.saw(MessageMoved) == [MessageMoved("workflow", "not_found")]
        assert conf_app.ran == []

        [(due, _)] = consumers.delayed()
        consumers.world.clock = lambda: due
        await consumers.world.upkeep.promote(consumers.partition)
        await consumers.wake()
        assert not raw.exists(consumers.partition.run("r"))


@pytest.mark.parametrize("stale", ["start", "step"])
async def test_a_run_under_the_id_of_one_that_has_gone_is_not_given_what_messages_of_that_one_say(
    connect: Connect, stale: str
) -> None:
    async with connect(retention_ms=60_000, max_inline_steps=0) as consumers:
        world = consumers.world
        await world.start(conf_app.one, "double", 1, run_id="r")
        if stale == "step":
            await consumers.wake()
        await world.cancel("r", terminate=True)
        later = world.now_ms() + 120_000
        world.clock = lambda: later
        assert await world.upkeep.reap(consumers.partition, 10) == 1
        run = await world.start(conf_app.one, "double", 20, run_id="r")
        if stale == "step":  # that of the new run comes second
            await consumers.wake()

        await consumers.drain()
        assert await run.result(timeout=5) == 40
        assert [value for _, value, _ in conf_app.ran] == [20]
